"""Text that a model gives away.

`completions` finds what it completes word for word, `occurrences` how common that is in the searched text, `listed` makes a list of
it, of secrets, phrases and copied text. `holders` removes memories to find those that a completion needs. `canaries` are strings
with a secret part, `exposure` is how much more probable one is than others of its format.
"""
