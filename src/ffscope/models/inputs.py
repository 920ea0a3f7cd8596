"""Text or token ids as inputs of a model, checked before they reach it."""

import inspect
from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import Tensor

from ffscope.errors import InputError, first_line
from ffscope.models.placement import input_device
from ffscope.panics import Unreadable, guarded

Inputs = dict[str, Any]
# What a model's code may raise for inputs that it does not support.
MODEL_ERRORS = (
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
"""A text, token ids (one sequence, or batch × pos) or the model's keyword arguments; anything else raises InputError."""


def encode(model: Any, tokenizer: Any, text: Source, *, bos: bool = False, reserved: int = 0) -> Inputs:
    """A text, token ids (one sequence or a batch × pos tensor) or ready-made inputs as keyword arguments of the model."""
    if isinstance(text, Mapping):
        inputs = dict(text)
    elif model.main_input_name != "input_ids":
        raise InputError(
            f"Expected {model.main_input_name} for this model, found text. Pass {{'{model.main_input_name}': tensor}}."
        )
    else:
        inputs = {"input_ids": _tokens(tokenizer, text, bos=bos) if isinstance(text, str) else text}
    if not inputs:
        raise InputError(
            f"Expected {model.main_input_name}, found an empty dictionary. Pass at least {model.main_input_name}."
        )
    for name in {"input_ids", "decoder_input_ids"} & inputs.keys():
        inputs[name] = _as_batch(inputs[name])
        _check_ids(model, inputs[name], reserved=reserved)
    _check_mask(inputs)
    shifts = getattr(model.config, "is_encoder_decoder", False) and "decoder_input_ids" not in inputs
    if shifts and "input_ids" in inputs:
        inputs["decoder_input_ids"] = _shift_right(inputs["input_ids"], model.config)
    parameters = inspect.signature(model.forward).parameters
    if "use_cache" in parameters:
        inputs["use_cache"] = False
    if "return_dict" in parameters or any(parameter.kind is parameter.VAR_KEYWORD for parameter in parameters.values()):
        inputs["return_dict"] = True
    device = input_device(model)
    # Not blocking: a copy from pinned memory does not wait for what the device is doing.
    return {
        name: value.to(device, non_blocking=True) if isinstance(value, Tensor) else value
        for name, value in inputs.items()
    }


def run(model: Any, inputs: Inputs) -> Any:
    """Run one pass; an error in the model's own code becomes an InputError of one sentence."""
    try:
        return model(**inputs)
    except MODEL_ERRORS as error:
        shapes = ", ".join(
            f"{name} {tuple(value.shape)}" for name, value in inputs.items() if isinstance(value, Tensor)
        )
        raise InputError(
            f"{type(model).__name__} does not run on these inputs ({shapes}): {first_line(error)}. "
            "They may be too long for it, or lack an input that its head needs."
        ) from error


def logits_of(result: Any) -> Tensor | None:
    """The logits over the vocabulary in a model's result; None if it has none."""
    return getattr(result, "logits", getattr(result, "prediction_logits", None))


def random_inputs(model: Any, *, batch: int, length: int, seed: int = 0) -> Inputs:
    """Random token ids, or random pixels for a vision model."""
    generator = torch.Generator().manual_seed(seed)
    config = model.config
    if model.main_input_name == "pixel_values":
        sides = config.image_size if isinstance(config.image_size, Sequence) else (config.image_size,) * 2
        pixels = torch.randn((batch, config.num_channels, *sides), generator=generator).to(model.dtype)
        return encode(model, None, {"pixel_values": pixels})
    if model.main_input_name != "input_ids":
        raise InputError(
            f"{type(model).__name__} takes {model.main_input_name}; expected a model that takes text (input_ids) or images "
            "(pixel_values). Its layers cannot be checked without an input."
        )
    vocab = vocabulary(model)
    length = min(length, max_positions(model) or length)
    names = ["input_ids"]
    if getattr(config, "is_encoder_decoder", False):
        names.append("decoder_input_ids")
    # Each stack gets a different length, so that neither can be mistaken for the other.
    ids = {name: torch.randint(vocab, (batch, length - i), generator=generator) for i, name in enumerate(names)}
    return encode(model, None, ids)


def vocabulary(model: Any) -> int:
    """How many tokens the model has embeddings for."""
    embeddings = model.get_input_embeddings()
    return embeddings.weight.shape[0] if hasattr(embeddings, "weight") else embeddings.num_embeddings


def token_ids(tokenizer: Any, text: str) -> list[int]:
    """The tokens of a text, without special tokens; raises InputError for a text that the tokenizer cannot read."""
    try:
        text.encode()
    except UnicodeEncodeError as error:  # for example from bytes on the command line that are not UTF-8
        raise InputError("The text contains half a character (a lone surrogate). Write it again, in UTF-8.") from error
    try:
        with guarded():
            return tokenizer.encode(text, add_special_tokens=False)
    except Unreadable as unreadable:
        raise InputError(f"The tokenizer cannot read this text: {unreadable}. Change it.") from unreadable.error


def bos_token(tokenizer: Any) -> int | None:
    """The token put before every text: the tokenizer's BOS, else its EOS."""
    return tokenizer.eos_token_id if tokenizer.bos_token_id is None else tokenizer.bos_token_id


def max_positions(model: Any) -> int | None:
    """The maximum number of positions according to the model's config; None if it sets no limit."""
    limit = getattr(model.config.get_text_config(), "max_position_embeddings", None)
    return limit if limit and limit > 0 else None


def _tokens(tokenizer: Any, text: str, *, bos: bool) -> list[int]:
    if tokenizer is None:
        raise InputError("This model has no tokenizer, so it cannot read text. Pass token ids instead.")
    first = bos_token(tokenizer) if bos else None
    ids = token_ids(tokenizer, text)
    if not ids:
        raise InputError("The text has no tokens. Expected at least one.")
    return ids if first is None else [first, *ids]


def _as_batch(ids: Any) -> Tensor:
    try:
        tensor = ids if isinstance(ids, Tensor) else torch.tensor(ids)
    except (TypeError, ValueError, RuntimeError, OverflowError) as error:
        raise InputError(f"Expected one text or token ids, found {str(ids)[:60]!r}.") from error
    if tensor.is_floating_point() or tensor.is_complex() or tensor.dim() not in (1, 2) or tensor.numel() == 0:
        raise InputError(
            "Expected token ids: integers, at least one, as one sequence or a batch × position table; "
            f"found {tensor.dtype} of shape {tuple(tensor.shape)}."
        )
    return tensor.long().reshape(-1, tensor.shape[-1])


def _check_ids(model: Any, ids: Tensor, *, reserved: int) -> None:
    vocab = vocabulary(model)
    if ids.min() < 0 or ids.max() >= vocab:
        wrong = ids[(ids < 0) | (ids >= vocab)][0].item()
        raise InputError(f"Token id {wrong} is not in the vocabulary. This model takes ids from 0 to {vocab - 1}.")
    limit = max_positions(model)
    if limit is not None and ids.shape[-1] > limit - reserved:
        raise InputError(
            f"The text has {ids.shape[-1]} tokens, BOS included; this model takes at most {limit - reserved}. Shorten it."
        )


def _check_mask(inputs: Inputs) -> None:
    if "attention_mask" not in inputs or "input_ids" not in inputs:
        return
    ids = inputs["input_ids"]
    mask = inputs["attention_mask"] = _as_batch(inputs["attention_mask"])
    if mask.shape != ids.shape:
        raise InputError(
            f"The attention mask has shape {tuple(mask.shape)}, but the ids have {tuple(ids.shape)}. Expected the same shape."
        )


def _shift_right(ids: Tensor, config: Any) -> Tensor:
    """The default decoder input: the same text, shifted right by one behind the decoder's start token."""
    start = config.decoder_start_token_id
    if start is None:
        raise InputError(
            "The config of this encoder–decoder has no decoder_start_token_id. Pass `decoder_input_ids` too."
        )
    return torch.cat([torch.full_like(ids[:, :1], start), ids[:, :-1]], dim=1)
