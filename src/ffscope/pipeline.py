"""The stages in their order, each on the same study folder."""

import logging
from dataclasses import replace
from pathlib import Path

from ffscope.analysis.sentences import Reading, write_sentences
from ffscope.analysis.triggers import Searching, find_triggers
from ffscope.errors import InputError
from ffscope.models.account import account
from ffscope.models.inputs import bos_token
from ffscope.models.memory_model import MemoryModel
from ffscope.progress import Tell, nobody
from ffscope.study import Study

logger = logging.getLogger(__name__)


def triggers(
    model: MemoryModel,
    reading: Reading,
    out: Path | str,
    *,
    searching: Searching | None = None,
    checkpoint_every: float = 60.0,
    progress: Tell = nobody,
) -> Study:
    """Read a corpus into a study and find every memory's triggers in it. What is there already is not done again."""
    searching = searching or Searching()
    reading = replace(reading, max_tokens=_room(model, reading.max_tokens, bos=searching.bos))
    with Study.writing(out, account(model)) as study:
        write_sentences(study, model.tokenizer, reading, progress=progress)
        find_triggers(study, model, searching, checkpoint_every=checkpoint_every, progress=progress)
    return study


def _room(model: MemoryModel, max_tokens: int, *, bos: bool) -> int:
    """How many tokens of a sentence the model takes, up to those that are wanted."""
    if model.tokenizer is None:
        raise InputError(
            "This model came without a tokenizer, so it cannot read a corpus. Put its tokenizer beside it."
        )
    room = model.positions
    if room is None:
        return max_tokens
    room -= int(bos and bos_token(model.tokenizer) is not None)
    if room < max_tokens:
        logger.warning(
            "This model takes %d tokens of a sentence; longer ones are cut there, not at %d.", room, max_tokens
        )
    return min(room, max_tokens)
