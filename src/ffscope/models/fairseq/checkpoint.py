"""Read a folder with fairseq's model.pt and dict.txt as a model and its tokenizer."""

from functools import reduce
from pathlib import Path
from typing import Any

import torch

from ffscope.errors import SourceError
from ffscope.models.adaptive_lm import AdaptiveLM, AdaptiveLMConfig
from ffscope.models.fairseq.arguments import PLAIN, read_arguments
from ffscope.models.fairseq.dictionary import SYMBOLS, make_tokenizer, read_words
from ffscope.models.fairseq.unpickling import load_checkpoint
from ffscope.models.fairseq.weights import Weights, read_weights, shape_of, untied_weights
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
"""Arguments that change the computation in ways that are not implemented here; refused if they are on."""

_POSITIONS = 1024  # the default


def find_checkpoint(source: str) -> Path | None:
    """The checkpoint at a path: a .pt file, or model.pt or the only .pt file of a folder; else None."""
    path = Path(source).expanduser()
    if path.is_file():
        return path if path.suffix == ".pt" else None
    if not path.is_dir() or (path / "config.json").is_file():
        return None
    if (path / "model.pt").is_file():
        return path / "model.pt"
    files = sorted(file for file in path.glob("*.pt") if file.is_file())
    if len(files) > 1:
        raise SourceError(
            f"{source} contains {len(files)} checkpoints: {', '.join(f.name for f in files[:5])}. Name one of them."
        )
    return files[0] if files else None


def read_tokenizer(file: Path, model: AdaptiveLM) -> Any:
    """The tokenizer made from the dict.txt next to a checkpoint; raises if its size is not the model's."""
    words = read_words(file.parent / "dict.txt")
    vocab = model.config.vocab_size
    if len(words) != vocab:
        raise SourceError(
            f"{file.parent / 'dict.txt'} has {len(words) - len(SYMBOLS)} words, {len(words)} with fairseq's {len(SYMBOLS)} "
            f"symbols; {file.name} has embeddings for {vocab}. Expected the dictionary of the model's training data: copy it there."
        )
    return make_tokenizer(words, bos=words[model.config.bos_token_id])


def read_checkpoint(file: Path, dtype: torch.dtype | str) -> AdaptiveLM:
    """The model of a checkpoint, in a given precision or, with `auto`, in its own."""
    checkpoint = load_checkpoint(file)
    try:
        weights = read_weights(checkpoint["model"])
        shape = shape_of(weights)
        config = AdaptiveLMConfig(**shape, **_config_options(read_arguments(checkpoint), shape))
        return _make_model(config, untied_weights(weights, shape), file, dtype)
    except SourceError:
        raise
    # Weights or arguments of unexpected types can raise any error.
    except Exception as error:
        raise SourceError(
            f"{file} does not contain fairseq's adaptive language model: its weights or arguments have unexpected types "
            f"({type(error).__name__}). Expected a checkpoint written by fairseq."
        ) from error


def _config_options(arguments: dict[str, Any], shape: dict[str, Any]) -> dict[str, Any]:
    """The options of the config that only the arguments give, not the weights."""
    for name in _UNHANDLED:
        if _is_on(arguments.get(name)):
            raise SourceError(
                f"The checkpoint's model has {name}={_abbreviate(arguments[name])}, which is not supported. Expected fairseq's "
                "adaptive language model without it."
            )
    norm_before = _norm_before(arguments)
    if shape["final_norm"] and not norm_before:
        raise SourceError(
            "The checkpoint has a final norm, but also norms after its sub-layers. Expected one or the other: "
            "correct decoder_normalize_before in its arguments."
        )
    return {
        "num_attention_heads": _heads(arguments.get("decoder_attention_heads"), shape["hidden_size"]),
        "activation_function": _activation(arguments.get("activation_fn")),
        "norm_before": norm_before,
        "scale_embedding": not _is_on(arguments.get("no_scale_embedding")),
        "max_position_embeddings": _positions(arguments),
        "bos_token_id": 0 if _is_on(arguments.get("add_bos_token")) else 2,
    }


def _heads(value: Any, width: int) -> int:
    heads = int(value) if str(value).isdecimal() else 0
    if not heads or width % heads:
        raise SourceError(
            f"The checkpoint has decoder_attention_heads={_abbreviate(value)}. Expected a divisor of its width {width}."
        )
    return heads


def _activation(value: Any) -> str:
    if value not in _ACTIVATIONS:
        raise SourceError(
            f"The checkpoint has activation_fn={_abbreviate(value)}. Expected one of: {', '.join(_ACTIVATIONS)}."
        )
    return _ACTIVATIONS[value]


def _abbreviate(value: Any) -> str:
    """A value for an error message; in a file it may be of any length."""
    return visible(repr(value), longest=80)


def _is_on(value: Any) -> bool:
    """Whether an option is on; an omegaconf tree may contain it as a string."""
    return value.lower() not in ("", "false", "no", "off", "none", "0") if isinstance(value, str) else bool(value)


def _norm_before(arguments: dict[str, Any]) -> bool:
    """Every named architecture is pre-norm, whatever its arguments; only for the plain one do the arguments decide."""
    return _is_on(arguments.get("decoder_normalize_before")) if arguments.get("arch") == PLAIN else True


def _positions(arguments: dict[str, Any]) -> int:
    limits = (arguments.get(name) for name in ("max_target_positions", "max_positions", "tokens_per_sample"))
    return next((limit for limit in limits if isinstance(limit, int) and limit > 0), _POSITIONS)


def _make_model(config: AdaptiveLMConfig, weights: Weights, file: Path, dtype: torch.dtype | str) -> AdaptiveLM:
    """A model with these weights, in `dtype` or, with `auto`, in the highest precision among them."""
    own = reduce(torch.promote_types, (weight.dtype for weight in weights.values()))
    with torch.device("meta"):  # weights that are replaced need no initialisation
        model = AdaptiveLM(config).to(own if isinstance(dtype, str) else dtype)
    _check_weights(model.state_dict(), weights, file)
    model = model.to_empty(device="cpu").eval()
    for name, parameter in model.state_dict().items():
        parameter.copy_(weights[name])
    return model


def _check_weights(expected: Weights, weights: Weights, file: Path) -> None:
    """Raise unless the names and shapes of the weights are exactly those of the model."""
    missing, unknown = sorted(expected.keys() - weights.keys()), sorted(weights.keys() - expected.keys())
    if missing or unknown:
        names = ", ".join(missing[:3] or unknown[:3])
        problem = (
            f"lacks {len(missing)} weights" if missing else f"has {len(unknown)} weights that the model does not use"
        )
        raise SourceError(
            f"{file} {problem}, such as {names}. Expected a complete checkpoint of fairseq's adaptive language model."
        )
    for name, parameter in expected.items():
        if parameter.shape != weights[name].shape:
            raise SourceError(
                f"{name} in {file} has shape {tuple(weights[name].shape)}. Expected {tuple(parameter.shape)}, to fit the others."
            )
