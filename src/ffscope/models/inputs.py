"""Text or token ids as a model takes them, checked before they reach it."""

import inspect
from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import Tensor

from ffscope.errors import InputError, first_line
from ffscope.panics import Unreadable, guarded

Inputs = dict[str, Any]
# What a model's own code raises for inputs that it was not made for.
RUNNING = (
    ArithmeticError,
    AssertionError,
    AttributeError,
    ImportError,
    LookupError,
    RuntimeError,
    TypeError,
    ValueError,
)
Source = Any
"""A text, token ids (one sequence, or batch × pos) or the model's keyword arguments; anything else is refused with a sentence."""


def encode(model: Any, tokenizer: Any, text: Source, *, bos: bool = False, reserved: int = 0) -> Inputs:
    """A text, token ids (one sequence or a batch × pos tensor) or ready-made inputs as keyword arguments of the model."""
    if isinstance(text, Mapping):
        inputs = dict(text)
    elif model.main_input_name != "input_ids":
        raise InputError(
            f"This model takes {model.main_input_name}, not text. Pass {{'{model.main_input_name}': tensor}}."
        )
    else:
        inputs = {"input_ids": _tokens(tokenizer, text, bos=bos) if isinstance(text, str) else text}
    if not inputs:
        raise InputError(f"There is nothing to run: expected {model.main_input_name}.")
    for name in {"input_ids", "decoder_input_ids"} & inputs.keys():
        inputs[name] = _as_batch(inputs[name])
        _check_ids(model, inputs[name], reserved=reserved)
    _check_mask(inputs)
    shifts = getattr(model.config, "is_encoder_decoder", False) and "decoder_input_ids" not in inputs
    if shifts and "input_ids" in inputs:
        inputs["decoder_input_ids"] = _shifted(inputs["input_ids"], model.config)
    taken = inspect.signature(model.forward).parameters
    if "use_cache" in taken:
        inputs["use_cache"] = False
    if "return_dict" in taken or any(parameter.kind is parameter.VAR_KEYWORD for parameter in taken.values()):
        inputs["return_dict"] = True
    return {name: value.to(model.device) if isinstance(value, Tensor) else value for name, value in inputs.items()}


def run(model: Any, inputs: Inputs) -> Any:
    """One pass; what the model itself has to say against its inputs becomes one sentence."""
    try:
        return model(**inputs)
    except RUNNING as error:
        shapes = ", ".join(
            f"{name} {tuple(value.shape)}" for name, value in inputs.items() if isinstance(value, Tensor)
        )
        raise InputError(
            f"{type(model).__name__} does not run on these inputs ({shapes}): {first_line(error)}. "
            "They may be longer than it takes, or lack what its head needs."
        ) from error


def logits_of(result: Any) -> Tensor | None:
    """The logits over the vocabulary among what a model gives."""
    return getattr(result, "logits", getattr(result, "prediction_logits", None))


def random_inputs(model: Any, *, batch: int, length: int, seed: int = 0) -> Inputs:
    """Random token ids, or random pixels for a model that sees."""
    generator = torch.Generator().manual_seed(seed)
    config = model.config
    if model.main_input_name == "pixel_values":
        sides = config.image_size if isinstance(config.image_size, Sequence) else (config.image_size,) * 2
        pixels = torch.randn((batch, config.num_channels, *sides), generator=generator).to(model.dtype)
        return encode(model, None, {"pixel_values": pixels})
    if model.main_input_name != "input_ids":
        raise InputError(
            f"{type(model).__name__} takes {model.main_input_name}; expected a model that takes text (input_ids) or images "
            "(pixel_values). Its layers cannot be proven without an input."
        )
    vocab = vocabulary(model)
    length = min(length, positions(model) or length)
    names = ["input_ids"]
    if getattr(config, "is_encoder_decoder", False):
        names.append("decoder_input_ids")
    # Each stack gets a length of its own, so that none is taken for the other.
    ids = {name: torch.randint(vocab, (batch, length - i), generator=generator) for i, name in enumerate(names)}
    return encode(model, None, ids)


def vocabulary(model: Any) -> int:
    """How many tokens the model has embeddings for."""
    embeddings = model.get_input_embeddings()
    return embeddings.weight.shape[0] if hasattr(embeddings, "weight") else embeddings.num_embeddings


def token_ids(tokenizer: Any, text: str) -> list[int]:
    """The tokens of a text alone; a text that the tokenizer cannot read is refused."""
    try:
        text.encode()
    except UnicodeEncodeError as error:  # bytes of a command line that are not UTF-8, say
        raise InputError("The text holds half of a character (a lone surrogate). Write it anew, in UTF-8.") from error
    try:
        with guarded():
            return tokenizer.encode(text, add_special_tokens=False)
    except Unreadable as unreadable:
        raise InputError(f"The tokenizer cannot read this text: {unreadable}. Change it.") from unreadable.error


def bos_token(tokenizer: Any) -> int | None:
    """The token put before every text: the tokenizer's BOS, else its EOS."""
    return tokenizer.eos_token_id if tokenizer.bos_token_id is None else tokenizer.bos_token_id


def positions(model: Any) -> int | None:
    """How many positions the model's config names; None where it sets no limit."""
    limit = getattr(model.config.get_text_config(), "max_position_embeddings", None)
    return limit if limit and limit > 0 else None


def _tokens(tokenizer: Any, text: str, *, bos: bool) -> list[int]:
    if tokenizer is None:
        raise InputError("This model came without a tokenizer, so it cannot read text. Pass token ids instead.")
    first = bos_token(tokenizer) if bos else None
    ids = token_ids(tokenizer, text)
    if not ids:
        raise InputError("The text has no tokens. Expected at least one.")
    return ids if first is None else [first, *ids]


def _as_batch(ids: Any) -> Tensor:
    try:
        tensor = ids if isinstance(ids, Tensor) else torch.tensor(ids)
    except (TypeError, ValueError, RuntimeError, OverflowError) as error:
        raise InputError(f"Expected one text, or token ids; found {str(ids)[:60]!r}.") from error
    if tensor.is_floating_point() or tensor.is_complex() or tensor.dim() not in (1, 2) or tensor.numel() == 0:
        raise InputError(
            "Expected token ids: whole numbers, one sequence or a batch × position table, "
            f"and at least one; found {tensor.dtype} of shape {tuple(tensor.shape)}."
        )
    return tensor.long().reshape(-1, tensor.shape[-1])


def _check_ids(model: Any, ids: Tensor, *, reserved: int) -> None:
    vocab = vocabulary(model)
    if ids.min() < 0 or ids.max() >= vocab:
        wrong = ids[(ids < 0) | (ids >= vocab)][0].item()
        raise InputError(f"Token id {wrong} is outside the vocabulary. This model takes ids from 0 to {vocab - 1}.")
    limit = positions(model)
    if limit is not None and ids.shape[-1] > limit - reserved:
        raise InputError(
            f"The text has {ids.shape[-1]} tokens, BOS included, and this model takes {limit - reserved}. Shorten it."
        )


def _check_mask(inputs: Inputs) -> None:
    if "attention_mask" not in inputs or "input_ids" not in inputs:
        return
    ids = inputs["input_ids"]
    mask = inputs["attention_mask"] = _as_batch(inputs["attention_mask"])
    if mask.shape != ids.shape:
        raise InputError(
            f"The attention mask has shape {tuple(mask.shape)} and the ids {tuple(ids.shape)}. Expected the same."
        )


def _shifted(ids: Tensor, config: Any) -> Tensor:
    """What the decoder sees when nothing else is given: the same text, one position later, behind its start token."""
    start = config.decoder_start_token_id
    if start is None:
        raise InputError("This encoder–decoder names no decoder start token. Pass `decoder_input_ids` too.")
    return torch.cat([torch.full_like(ids[:, :1], start), ids[:, :-1]], dim=1)
