"""Edits of memories that are written into a model's weights, and undone.

`written` writes one and proves it against the same edit made live, `record` is the file beside the weights, `undo` takes it back,
`side_effects` measures it on held-out text. `promote` searches for an edit that makes a token the prediction after a text, by the
runs of `trials`.
"""
