"""Text or token ids as a model takes them, checked before they reach it."""

import inspect
from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import Tensor

from ffscope.errors import InputError

Inputs = dict[str, Any]
Source = Any
"""A text, token ids (one sequence, or batch × pos) or the model's keyword arguments; anything else is refused with a sentence."""


def encode(model: Any, tokenizer: Any, text: Source, *, bos: bool, reserved: int) -> Inputs:
    """A text, token ids (one sequence or a batch × pos tensor) or ready-made inputs as keyword arguments of the model."""
    if isinstance(text, Mapping):
        inputs = dict(text)
    else:
        ids = _tokens(tokenizer, text, bos=bos) if isinstance(text, str) else text
        inputs = {"input_ids": ids}
    for name in {"input_ids", "decoder_input_ids"} & inputs.keys():
        inputs[name] = _as_batch(inputs[name])
        _check_ids(model, inputs[name], reserved=reserved)
    if getattr(model.config, "is_encoder_decoder", False) and "decoder_input_ids" not in inputs:
        inputs["decoder_input_ids"] = _shifted(inputs["input_ids"], model.config)
    if "use_cache" in inspect.signature(model.forward).parameters:
        inputs.setdefault("use_cache", False)
    return {name: value.to(model.device) if isinstance(value, Tensor) else value for name, value in inputs.items()}


def random_inputs(model: Any, *, batch: int, length: int, seed: int = 0) -> Inputs:
    """Random token ids, or random pixels for a model that sees."""
    generator = torch.Generator().manual_seed(seed)
    config = model.config
    if model.main_input_name == "pixel_values":
        sides = config.image_size if isinstance(config.image_size, Sequence) else (config.image_size,) * 2
        pixels = torch.randn((batch, config.num_channels, *sides), generator=generator).to(model.dtype)
        return encode(model, None, {"pixel_values": pixels}, bos=False, reserved=0)
    if model.main_input_name != "input_ids":
        raise InputError(
            f"{type(model).__name__} takes {model.main_input_name}; expected a model that takes text (input_ids) or images "
            "(pixel_values). Its layers cannot be proven without an input."
        )
    vocab = model.get_input_embeddings().weight.shape[0]
    names = ["input_ids"]
    if getattr(config, "is_encoder_decoder", False):
        names.append("decoder_input_ids")
    # Each stack gets a length of its own, so that none is taken for the other.
    ids = {name: torch.randint(vocab, (batch, length - i), generator=generator) for i, name in enumerate(names)}
    return encode(model, None, ids, bos=False, reserved=0)


def bos_token(tokenizer: Any) -> int | None:
    """The token put before every text: the tokenizer's BOS, else its EOS."""
    return tokenizer.eos_token_id if tokenizer.bos_token_id is None else tokenizer.bos_token_id


def _tokens(tokenizer: Any, text: str, *, bos: bool) -> list[int]:
    if tokenizer is None:
        raise InputError("This model came without a tokenizer, so it cannot read text. Pass token ids instead.")
    first = bos_token(tokenizer) if bos else None
    ids = tokenizer.encode(text, add_special_tokens=False)
    if not ids:
        raise InputError("The text has no tokens. Expected at least one.")
    return ids if first is None else [first, *ids]


def _as_batch(ids: Any) -> Tensor:
    try:
        tensor = ids if isinstance(ids, Tensor) else torch.tensor(ids)
    except (TypeError, ValueError, RuntimeError) as error:
        raise InputError(f"Expected one text, or token ids; found {str(ids)[:60]!r}.") from error
    if tensor.is_floating_point() or tensor.is_complex() or tensor.dim() not in (1, 2) or tensor.numel() == 0:
        raise InputError(
            "Expected token ids: whole numbers, one sequence or a batch × position table, "
            f"and at least one; found {tensor.dtype} of shape {tuple(tensor.shape)}."
        )
    return tensor.long().reshape(-1, tensor.shape[-1])


def _check_ids(model: Any, ids: Tensor, *, reserved: int) -> None:
    config = model.config.get_text_config()
    vocab = model.get_input_embeddings().weight.shape[0]
    if ids.min() < 0 or ids.max() >= vocab:
        wrong = ids[(ids < 0) | (ids >= vocab)][0].item()
        raise InputError(f"Token id {wrong} is outside the vocabulary. This model takes ids from 0 to {vocab - 1}.")
    limit = getattr(config, "max_position_embeddings", None)
    if limit and limit > 0 and ids.shape[-1] > limit - reserved:
        raise InputError(
            f"The text has {ids.shape[-1]} tokens, BOS included, and this model takes {limit - reserved}. Shorten it."
        )


def _shifted(ids: Tensor, config: Any) -> Tensor:
    """What the decoder sees when nothing else is given: the same text, one position later, behind its start token."""
    start = config.decoder_start_token_id
    if start is None:
        raise InputError("This encoder–decoder names no decoder start token. Pass `decoder_input_ids` too.")
    return torch.cat([torch.full_like(ids[:, :1], start), ids[:, :-1]], dim=1)
