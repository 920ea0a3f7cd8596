"""What a checkpoint says of its model, as one flat dictionary: from an argparse Namespace, or from omegaconf's tree."""

import re
from typing import Any

from ffscope.errors import SourceError
from ffscope.models.fairseq.unpickling import Record

_REFERENCE = re.compile(r"\$\{([\w.]+)\}")


def read_arguments(checkpoint: dict[str, Any]) -> dict[str, Any]:
    """The arguments of model and task by their names."""
    if checkpoint.get("args") is not None:
        return _plain(checkpoint["args"])
    tree = _plain(checkpoint.get("cfg"))
    if not isinstance(tree, dict) or not isinstance(tree.get("model"), dict):
        raise SourceError(
            "The checkpoint does not say how its model is built. Expected its arguments in 'args', or in 'cfg' with a 'model' part."
        )
    found = {**_dictionary(tree.get("task")), **tree["model"]}
    return {name: _resolved(value, tree) for name, value in found.items()}


def _plain(node: Any) -> Any:
    """Records as dictionaries and lists of what they hold; omegaconf keeps a node's content in `_content`, a value in `_val`."""
    if isinstance(node, Record):
        held = vars(node)
        if "_content" in held:
            return _plain(held["_content"])
        return _plain(held["_val"]) if "_val" in held else {name: _plain(value) for name, value in held.items()}
    if isinstance(node, dict):
        return {name: _plain(value) for name, value in node.items()}
    return [_plain(value) for value in node] if isinstance(node, list | tuple) else node


def _dictionary(found: Any) -> dict[str, Any]:
    return found if isinstance(found, dict) else {}


def _resolved(value: Any, tree: dict[str, Any]) -> Any:
    """`${task.tokens_per_sample}` as what stands there."""
    reference = _REFERENCE.fullmatch(value) if isinstance(value, str) else None
    if reference is None:
        return value
    found: Any = tree
    for name in reference[1].split("."):
        found = _dictionary(found).get(name)
    return found
