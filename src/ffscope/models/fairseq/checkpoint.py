"""A folder with fairseq's model.pt and dict.txt as a model and its tokenizer."""

from pathlib import Path
from typing import Any

import torch

from ffscope.errors import SourceError
from ffscope.models.adaptive_lm import AdaptiveLM, AdaptiveLMConfig
from ffscope.models.fairseq.arguments import read_arguments
from ffscope.models.fairseq.dictionary import SYMBOLS, make_tokenizer, read_words
from ffscope.models.fairseq.unpickling import load_checkpoint
from ffscope.models.fairseq.weights import Weights, own_weights, read_weights, shape_of

_ACTIVATIONS = {
    "relu": "relu",
    "relu_squared": "relu2",
    "gelu": "gelu",
    "gelu_fast": "gelu_new",
    "gelu_accurate": "gelu_new",
    "tanh": "tanh",
    "linear": "linear",
}
"""fairseq's names → those of transformers."""

_UNHANDLED = (
    "base_layers",
    "character_embeddings",
    "cross_self_attention",
    "decoder_layers_to_keep",
    "decoder_learned_pos",
    "decoder_xformers_att_config",
    "layernorm_embedding",
    "no_token_positional_embeddings",
    "scale_attn",
    "scale_fc",
    "scale_heads",
    "scale_resids",
)
"""Arguments that change what is computed in ways that are not followed here; others than off are refused."""

_POSITIONS = 1024  # where nothing else is said


def find_checkpoint(source: str) -> Path | None:
    """The checkpoint that a path names: a .pt file, a folder with model.pt, or one with a single .pt file; else None."""
    path = Path(source).expanduser()
    if path.is_file():
        return path if path.suffix == ".pt" else None
    if not path.is_dir() or (path / "config.json").is_file():
        return None
    if (path / "model.pt").is_file():
        return path / "model.pt"
    found = sorted(path.glob("*.pt"))
    if len(found) > 1:
        raise SourceError(
            f"{source} holds {len(found)} checkpoints: {', '.join(f.name for f in found[:5])}. Name one of them."
        )
    return found[0] if found else None


def read_tokenizer(file: Path, model: AdaptiveLM) -> Any:
    """The tokenizer that dict.txt beside a checkpoint makes; it must have the model's words."""
    words = read_words(file.parent / "dict.txt")
    vocab = model.config.vocab_size
    if len(words) != vocab:
        raise SourceError(
            f"{file.parent / 'dict.txt'} has {len(words) - len(SYMBOLS)} words, which with fairseq's {len(SYMBOLS)} symbols makes "
            f"{len(words)}; {file.name} has embeddings for {vocab}. Expected the dictionary that the model was trained with."
        )
    return make_tokenizer(words, bos=words[model.config.bos_token_id])


def read_checkpoint(file: Path, dtype: torch.dtype | str) -> AdaptiveLM:
    """The model of a checkpoint, in a precision or, with `auto`, in its own."""
    checkpoint = load_checkpoint(file)
    weights = read_weights(checkpoint["model"])
    shape = shape_of(weights)
    config = AdaptiveLMConfig(**shape, **_said(read_arguments(checkpoint), shape))
    own = own_weights(weights, shape)
    kept = next(iter(own.values())).dtype if isinstance(dtype, str) else dtype
    with torch.device("meta"):  # no time is spent on weights that are replaced
        model = AdaptiveLM(config).to(kept)
    model = model.to_empty(device="cpu")
    _fill(model, own, file)
    return model.eval()


def _said(arguments: dict[str, Any], shape: dict[str, Any]) -> dict[str, Any]:
    """What only the arguments tell."""
    for name in _UNHANDLED:
        if arguments.get(name):
            raise SourceError(
                f"The checkpoint's model has {name}={arguments[name]!r}, which is not handled. Expected fairseq's adaptive "
                "language model without it."
            )
    activation = arguments.get("activation_fn") or "relu"
    if activation not in _ACTIVATIONS:
        raise SourceError(f"The activation {activation!r} is not handled. Expected one of: {', '.join(_ACTIVATIONS)}.")
    heads = arguments.get("decoder_attention_heads", 8)
    if not isinstance(heads, int) or heads < 1 or shape["hidden_size"] % heads:
        raise SourceError(
            f"The checkpoint gives decoder_attention_heads {heads!r}. Expected a divisor of its width {shape['hidden_size']}."
        )
    bos = 0 if arguments.get("add_bos_token") else 2
    return {
        "num_attention_heads": heads,
        "activation_function": _ACTIVATIONS[activation],
        "norm_before": _norm_before(arguments),
        "scale_embedding": not arguments.get("no_scale_embedding"),
        "max_position_embeddings": _positions(arguments),
        "bos_token_id": bos,
    }


def _norm_before(arguments: dict[str, Any]) -> bool:
    """Every named architecture has its norms before, whatever its arguments say; the plain one is asked."""
    plain = (arguments.get("_name") or arguments.get("arch")) == "transformer_lm"
    return bool(arguments.get("decoder_normalize_before")) if plain else True


def _positions(arguments: dict[str, Any]) -> int:
    named = (arguments.get(name) for name in ("max_target_positions", "max_positions", "tokens_per_sample"))
    return next((number for number in named if isinstance(number, int) and number > 0), _POSITIONS)


def _fill(model: AdaptiveLM, weights: Weights, file: Path) -> None:
    """Copy the weights in; they must be the model's, all of them, and of its shapes."""
    expected = model.state_dict()
    missing, unknown = sorted(expected.keys() - weights.keys()), sorted(weights.keys() - expected.keys())
    if missing or unknown:
        which = ", ".join(missing[:3] or unknown[:3])
        what = (
            f"lacks {len(missing)} weights"
            if missing
            else f"has {len(unknown)} weights that the model has no place for"
        )
        raise SourceError(f"{file} {what}, {which} among them. Expected fairseq's adaptive language model, whole.")
    for name, own in expected.items():
        if own.shape != weights[name].shape:
            raise SourceError(
                f"{name} in {file} is {tuple(weights[name].shape)}. Expected {tuple(own.shape)}, as its other weights say."
            )
        own.copy_(weights[name])
