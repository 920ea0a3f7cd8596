"""The arguments of a checkpoint's model as one flat dictionary, from an argparse Namespace or an omegaconf tree."""

import re
from typing import Any

from ffscope.errors import SourceError
from ffscope.models.fairseq.unpickling import Record

_REFERENCE = re.compile(r"\$\{([\w.]+)\}")
PLAIN = "transformer_lm"
"""The only architecture without its own defaults."""
# fairseq's defaults. Other architectures have different defaults in an omegaconf tree, which are not known here.
_DEFAULTS = {"decoder_attention_heads": 8, "activation_fn": "relu"}


def read_arguments(checkpoint: dict[str, Any]) -> dict[str, Any]:
    """The arguments of model and task by name; `arch` is the architecture."""
    if checkpoint.get("args") is not None:
        return {**_DEFAULTS, **_fields(checkpoint["args"])}
    tree = _fields(checkpoint.get("cfg"))
    model = _fields(tree.get("model"))
    if not model:
        raise SourceError(
            "The checkpoint has no model arguments. Expected them in 'args', or in 'cfg' with a 'model' part: "
            "use a checkpoint that fairseq itself wrote."
        )
    arch = model.get("_name", model.get("arch"))
    arguments = {**(_DEFAULTS if arch == PLAIN else {}), **_fields(tree.get("task")), **model, "arch": arch}
    return {name: _resolve(value, tree) for name, value in arguments.items()}


def _fields(node: Any) -> dict[str, Any]:
    """The entries of a dictionary, a Namespace or an omegaconf node, one level deep; deeper levels are not needed."""
    entries = vars(node) if isinstance(node, Record) else node
    if isinstance(node, Record) and isinstance(entries.get("_content"), dict):
        entries = entries["_content"]
    return {name: _value(value) for name, value in entries.items()} if isinstance(entries, dict) else {}


def _value(node: Any) -> Any:
    """A value, taken out of its omegaconf node if it is in one."""
    return vars(node)["_val"] if isinstance(node, Record) and "_val" in vars(node) else node


def _resolve(value: Any, tree: dict[str, Any]) -> Any:
    """A value, with a reference such as `${task.tokens_per_sample}` replaced by what it refers to."""
    reference = _REFERENCE.fullmatch(value) if isinstance(value, str) else None
    if reference is None:
        return value
    node: Any = tree
    for name in reference[1].split("."):
        node = _fields(node).get(name)
    return node
