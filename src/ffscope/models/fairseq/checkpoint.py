"""A folder with fairseq's model.pt and dict.txt as a model and its tokenizer."""

from functools import reduce
from pathlib import Path
from typing import Any

import torch

from ffscope.errors import SourceError
from ffscope.models.adaptive_lm import AdaptiveLM, AdaptiveLMConfig
from ffscope.models.fairseq.arguments import PLAIN, read_arguments
from ffscope.models.fairseq.dictionary import SYMBOLS, make_tokenizer, read_words
from ffscope.models.fairseq.unpickling import load_checkpoint
from ffscope.models.fairseq.weights import Weights, own_weights, read_weights, shape_of
from ffscope.tokens import visible

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
    "quant_noise_scalar",
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
    found = sorted(file for file in path.glob("*.pt") if file.is_file())
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
    try:
        weights = read_weights(checkpoint["model"])
        shape = shape_of(weights)
        config = AdaptiveLMConfig(**shape, **_said(read_arguments(checkpoint), shape))
        return _filled(config, own_weights(weights, shape), file, dtype)
    except SourceError:
        raise
    # What fits no shape breaks the reading of it in every way.
    except Exception as error:
        raise SourceError(
            f"{file} does not hold fairseq's adaptive language model: its weights or arguments are of other kinds "
            f"({type(error).__name__}). Expected a checkpoint as fairseq writes it."
        ) from error


def _said(arguments: dict[str, Any], shape: dict[str, Any]) -> dict[str, Any]:
    """What only the arguments tell."""
    for name in _UNHANDLED:
        if _is_on(arguments.get(name)):
            raise SourceError(
                f"The checkpoint's model has {name}={_shown(arguments[name])}, which is not handled. Expected fairseq's adaptive "
                "language model without it."
            )
    norm_before = _norm_before(arguments)
    if shape["final_norm"] and not norm_before:
        raise SourceError(
            "The checkpoint has a final norm, and its norms stand behind the sub-layers. Expected one or the other: "
            "mend decoder_normalize_before in its arguments."
        )
    return {
        "num_attention_heads": _heads(arguments.get("decoder_attention_heads"), shape["hidden_size"]),
        "activation_function": _activation(arguments.get("activation_fn")),
        "norm_before": norm_before,
        "scale_embedding": not _is_on(arguments.get("no_scale_embedding")),
        "max_position_embeddings": _positions(arguments),
        "bos_token_id": 0 if _is_on(arguments.get("add_bos_token")) else 2,
    }


def _heads(said: Any, width: int) -> int:
    heads = int(said) if str(said).isdecimal() else 0
    if not heads or width % heads:
        raise SourceError(
            f"The checkpoint gives decoder_attention_heads as {_shown(said)}. Expected a divisor of its width {width}."
        )
    return heads


def _activation(said: Any) -> str:
    if said not in _ACTIVATIONS:
        raise SourceError(
            f"The checkpoint gives activation_fn as {_shown(said)}. Expected one of: {', '.join(_ACTIVATIONS)}."
        )
    return _ACTIVATIONS[said]


def _shown(said: Any) -> str:
    """What a file says may be of any length."""
    return visible(repr(said), longest=80)


def _is_on(said: Any) -> bool:
    """Whether an option is set; a tree may hold it as a word."""
    return said.lower() not in ("", "false", "no", "off", "none", "0") if isinstance(said, str) else bool(said)


def _norm_before(arguments: dict[str, Any]) -> bool:
    """Every named architecture has its norms before, whatever its arguments say; the plain one is asked."""
    return _is_on(arguments.get("decoder_normalize_before")) if arguments.get("arch") == PLAIN else True


def _positions(arguments: dict[str, Any]) -> int:
    named = (arguments.get(name) for name in ("max_target_positions", "max_positions", "tokens_per_sample"))
    return next((number for number in named if isinstance(number, int) and number > 0), _POSITIONS)


def _filled(config: AdaptiveLMConfig, weights: Weights, file: Path, dtype: torch.dtype | str) -> AdaptiveLM:
    """A model with these weights; in its own precision, which is the finest among them, where no other is asked for."""
    own = reduce(torch.promote_types, (weight.dtype for weight in weights.values()))
    with torch.device("meta"):  # no time is spent on weights that are replaced
        model = AdaptiveLM(config).to(own if isinstance(dtype, str) else dtype)
    _refuse_other(model.state_dict(), weights, file)
    model = model.to_empty(device="cpu").eval()
    for name, held in model.state_dict().items():
        held.copy_(weights[name])
    return model


def _refuse_other(expected: Weights, weights: Weights, file: Path) -> None:
    """Raise unless the weights are the model's, all of them, and of its shapes."""
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
