"""Greedy generation, without and with interventions."""

import copy
from dataclasses import replace
from typing import Any

import torch

from ffscope.cancellation import Stop
from ffscope.corpus.tokenizing import is_word_level
from ffscope.errors import InputError
from ffscope.live.interventions import Interventions, apply, positions_from_start
from ffscope.live.prompt import Prompt, stoppable
from ffscope.live.responses import Generated
from ffscope.models.inputs import MODEL_ERRORS
from ffscope.models.memory_model import MemoryModel
from ffscope.tokens import spelling


def can_generate(model: MemoryModel) -> bool:
    """Whether the model can generate text, unlike an encoder alone or a vision model."""
    own = model.model
    return own.main_input_name == "input_ids" and model.tokenizer is not None and bool(own.can_generate())


def generate_text(
    model: MemoryModel, prompt: Prompt, *, interventions: Interventions, new_tokens: int, stop: Stop
) -> Generated:
    """The model's continuation of the text; an encoder–decoder reads the text in its encoder and generates from its start token.

    Positions of the interventions refer to the text: -1 is its last token, and the new tokens are not changed.
    """
    if interventions.positions is not None:
        _refuse_positions_in_encoder_decoder(model)
        positions = positions_from_start(interventions, length=len(prompt.ids))
        interventions = replace(interventions, positions=None if positions is None else tuple(positions))
    with stoppable(model, stop):
        before = _greedy(model, prompt, new_tokens)
        after = None
        if interventions.any:
            with apply(model, interventions):
                after = _greedy(model, prompt, new_tokens)
    return Generated(before, after, new_tokens)


def refuse_if_not_generative(model: MemoryModel) -> None:
    """Raise for a model that cannot generate text."""
    if not can_generate(model):
        raise InputError(
            f"{type(model.model).__name__} does not generate text. Expected a language model that predicts the next token, "
            "with its head and its tokenizer: load such a model."
        )


def _refuse_positions_in_encoder_decoder(model: MemoryModel) -> None:
    if _is_encoder_decoder(model):
        raise InputError(
            f"{type(model.model).__name__} reads the text in its encoder and generates in its decoder, so positions of the text "
            "do not exist in the new text. Intervene at all positions to generate."
        )


def refuse_too_long(model: MemoryModel, prompt: Prompt, *, new_tokens: int) -> None:
    """Raise if text and new tokens together exceed the model's limit."""
    length = 1 if _is_encoder_decoder(model) else len(prompt.ids)
    if model.positions is not None and length + new_tokens > model.positions:
        raise InputError(
            f"{new_tokens} new tokens after {length}, BOS included, are too many; this model takes at most "
            f"{model.positions} in all. Shorten the text, or generate fewer."
        )


def _is_encoder_decoder(model: MemoryModel) -> bool:
    return bool(getattr(model.model.config, "is_encoder_decoder", False))


def _greedy(model: MemoryModel, prompt: Prompt, new_tokens: int) -> list[str]:
    # A shallow copy with its own generation config: transformers would fill unset options from the model's config (sampling,
    # penalties, forced tokens), and the model itself must not change, since other threads use it.
    own = copy.copy(model.model)
    own.generation_config = _settings(model, new_tokens)
    ids = prompt.inputs["input_ids"]
    try:
        generated = own.generate(
            ids, attention_mask=torch.ones_like(ids), generation_config=copy.deepcopy(own.generation_config)
        )
    except MODEL_ERRORS as error:
        reason = str(error).strip().splitlines()[0] if str(error).strip() else type(error).__name__
        raise InputError(f"{type(own).__name__} cannot generate from this text: {reason}.") from error
    new = generated[0, 1 if _is_encoder_decoder(model) else ids.shape[1] :].tolist()
    between = "␣" if is_word_level(model.tokenizer) else ""  # words do not include the space before them
    return [between + spelling(model.tokenizer, token) for token in new]


def _settings(model: MemoryModel, new_tokens: int) -> Any:
    """Greedy decoding up to the first EOS."""
    own, config, tokenizer = model.model.generation_config, model.model.config, model.tokenizer
    ends = sorted({*_as_list(own.eos_token_id), *_as_list(tokenizer.eos_token_id)})
    padding = [*_as_list(tokenizer.pad_token_id), *ends, 0][0]
    return type(own)(
        do_sample=False,
        num_beams=1,
        use_cache=True,
        max_new_tokens=new_tokens,
        eos_token_id=ends or None,
        pad_token_id=padding,
        decoder_start_token_id=getattr(config, "decoder_start_token_id", None),
    )


def _as_list(ids: int | list[int] | None) -> list[int]:
    return [] if ids is None else [ids] if isinstance(ids, int) else list(ids)
