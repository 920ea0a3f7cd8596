"""What a checkpoint says of its model, as one flat dictionary: from an argparse Namespace, or from omegaconf's tree."""

import re
from typing import Any

from ffscope.errors import SourceError
from ffscope.models.fairseq.unpickling import Record

_REFERENCE = re.compile(r"\$\{([\w.]+)\}")
PLAIN = "transformer_lm"
"""The one architecture that sets nothing by itself."""
# What fairseq takes where nothing is said. A named architecture has defaults of its own for a tree, which are not known here.
_DEFAULTS = {"decoder_attention_heads": 8, "activation_fn": "relu"}


def read_arguments(checkpoint: dict[str, Any]) -> dict[str, Any]:
    """The arguments of model and task by their names, the architecture's among them as `arch`."""
    if checkpoint.get("args") is not None:
        return {**_DEFAULTS, **_fields(checkpoint["args"])}
    tree = _fields(checkpoint.get("cfg"))
    model = _fields(tree.get("model"))
    if not model:
        raise SourceError(
            "The checkpoint does not say how its model is built. Expected its arguments in 'args', or in 'cfg' with a 'model' part."
        )
    arch = model.get("_name", model.get("arch"))
    found = {**(_DEFAULTS if arch == PLAIN else {}), **_fields(tree.get("task")), **model, "arch": arch}
    return {name: _resolved(value, tree) for name, value in found.items()}


def _fields(node: Any) -> dict[str, Any]:
    """What a dictionary, a Namespace or a node of omegaconf holds, one level deep: below it nothing is asked for."""
    held = vars(node) if isinstance(node, Record) else node
    if isinstance(node, Record) and isinstance(held.get("_content"), dict):
        held = held["_content"]
    return {name: _value(value) for name, value in held.items()} if isinstance(held, dict) else {}


def _value(node: Any) -> Any:
    """omegaconf keeps a value inside a node."""
    return vars(node)["_val"] if isinstance(node, Record) and "_val" in vars(node) else node


def _resolved(value: Any, tree: dict[str, Any]) -> Any:
    """`${task.tokens_per_sample}` as what stands there."""
    reference = _REFERENCE.fullmatch(value) if isinstance(value, str) else None
    if reference is None:
        return value
    found: Any = tree
    for name in reference[1].split("."):
        found = _fields(found).get(name)
    return found
