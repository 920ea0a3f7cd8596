"""Greedy text, without interventions and with them."""

import copy
from dataclasses import replace
from typing import Any

import torch

from ffscope.cancellation import Stop
from ffscope.corpus.sentences import is_word_level
from ffscope.errors import InputError
from ffscope.live.interventions import Interventions, apply, placed
from ffscope.live.prompt import Asked, heeding
from ffscope.live.responses import Generated
from ffscope.models.inputs import RUNNING
from ffscope.models.memory_model import MemoryModel
from ffscope.tokens import spelling


def can_generate(model: MemoryModel) -> bool:
    """Whether the model writes text: an encoder alone, and a model that sees, do not."""
    own = model.model
    return own.main_input_name == "input_ids" and model.tokenizer is not None and bool(own.can_generate())


def generate_text(
    model: MemoryModel, asked: Asked, *, interventions: Interventions, new_tokens: int, stop: Stop
) -> Generated:
    """What the model writes after the text; a model with an encoder reads the text there, and writes from its start token on.

    Positions of the interventions are those of the text: -1 is its last token, and nothing is changed at the new tokens.
    """
    if interventions.positions is not None:
        _refuse_positions_beside_an_encoder(model)
        at = placed(interventions, length=len(asked.ids))
        interventions = replace(interventions, positions=None if at is None else tuple(at))
    with heeding(model, stop):
        before = _greedy(model, asked, new_tokens)
        after = None
        if interventions.any:
            with apply(model, interventions):
                after = _greedy(model, asked, new_tokens)
    return Generated(before, after, new_tokens)


def refuse_without_words(model: MemoryModel) -> None:
    """Raise for a model that cannot write."""
    if not can_generate(model):
        raise InputError(
            f"{type(model.model).__name__} does not generate text. Expected a language model that predicts the next token, "
            "with its head and its tokenizer."
        )


def _refuse_positions_beside_an_encoder(model: MemoryModel) -> None:
    if _is_pair(model):
        raise InputError(
            f"{type(model.model).__name__} reads the text in its encoder and writes in its decoder, so a position of the text "
            "is none of the new text. Intervene at all positions to generate."
        )


def refuse_too_long(model: MemoryModel, asked: Asked, *, new_tokens: int) -> None:
    """Raise where text and new tokens are more than the model takes."""
    length = 1 if _is_pair(model) else len(asked.ids)
    if model.positions is not None and length + new_tokens > model.positions:
        raise InputError(
            f"{new_tokens} new tokens are asked for, and {length} stand before them, BOS included; this model takes "
            f"{model.positions} in all. Shorten the text, or ask for fewer."
        )


def _is_pair(model: MemoryModel) -> bool:
    return bool(getattr(model.model.config, "is_encoder_decoder", False))


def _greedy(model: MemoryModel, asked: Asked, new_tokens: int) -> list[str]:
    # Another handle on the same modules: what the model's own settings leave open must not be filled in from them (sampling,
    # penalties, forced tokens), and the model that other threads run is not to be changed.
    own = copy.copy(model.model)
    own.generation_config = _settings(model, new_tokens)
    ids = asked.inputs["input_ids"]
    try:
        written = own.generate(
            ids, attention_mask=torch.ones_like(ids), generation_config=copy.deepcopy(own.generation_config)
        )
    except RUNNING as error:
        said = str(error).strip().splitlines()[0] if str(error).strip() else type(error).__name__
        raise InputError(f"{type(own).__name__} does not generate from this text: {said}.") from error
    new = written[0, 1 if _is_pair(model) else ids.shape[1] :].tolist()
    between = "␣" if is_word_level(model.tokenizer) else ""  # words do not hold the space before them
    return [between + spelling(model.tokenizer, token) for token in new]


def _settings(model: MemoryModel, new_tokens: int) -> Any:
    """Greedy, to the first EOS."""
    own, config, tokenizer = model.model.generation_config, model.model.config, model.tokenizer
    ends = sorted({*_listed(own.eos_token_id), *_listed(tokenizer.eos_token_id)})
    padding = [*_listed(tokenizer.pad_token_id), *ends, 0][0]
    return type(own)(
        do_sample=False,
        num_beams=1,
        use_cache=True,
        max_new_tokens=new_tokens,
        eos_token_id=ends or None,
        pad_token_id=padding,
        decoder_start_token_id=getattr(config, "decoder_start_token_id", None),
    )


def _listed(ids: int | list[int] | None) -> list[int]:
    return [] if ids is None else [ids] if isinstance(ids, int) else list(ids)
