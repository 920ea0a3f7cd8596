"""Whether two studies can be compared: the same text, split into the same tokens, and searched in the same way."""

import json
from typing import Any

import numpy as np
import pyarrow.parquet as pq

from ffscope.axes import Array
from ffscope.effects.texts import is_masked
from ffscope.errors import StudyError
from ffscope.models.info import ModelInfo
from ffscope.study.folder import Study

_SEARCH = ("bos", "prefixes")  # settings that decide which prefixes are triggers


def refuse_other_text(before: Study, after: Study) -> None:
    """Raise unless both studies are of the same text and the same vocabulary, searched alike."""
    for study in (before, after):
        study.need("triggers")
    if _vocabulary(before) != _vocabulary(after):
        raise StudyError(
            f"{before.folder} and {after.folder} have different vocabularies, so their tokens cannot be compared. Expected two "
            "models with the same tokenizer."
        )
    texts = [study.manifest["corpus"] for study in (before, after)]
    if texts[0].get("fingerprint") != texts[1].get("fingerprint"):
        sources = " and ".join(f"{text.get('sentences', 0):,} sentences of {text.get('source')}" for text in texts)
        raise StudyError(
            f"{before.folder} and {after.folder} were made over different text: {sources}. Expected the same corpus, held-out text "
            "and --max-tokens in both; make one of the studies again."
        )
    for name in _SEARCH:
        settings = [study.settings.get(name) for study in (before, after)]
        if settings[0] != settings[1]:
            raise StudyError(
                f"{before.folder} was searched with {name} = {settings[0]}, {after.folder} with {settings[1]}. Expected the same; "
                "make one of the studies again."
            )
    counts = [study.manifest["stages"]["triggers"]["sentences"] for study in (before, after)]
    if counts[0] != counts[1]:
        raise StudyError(
            f"{before.folder} has triggers from {counts[0]:,} sentences, {after.folder} from {counts[1]:,}. Expected the same "
            "sentences; make one of the studies again, with --sentences instead of --minutes."
        )


def refuse_other_base(before: Study, model: dict[str, Any]) -> None:
    """Raise if the model before is not the one that its study was made of; its location may differ."""
    stored = before.manifest["model"]
    for name, value in model.items():
        if name != "source" and stored.get(name, value) != value:
            raise StudyError(
                f"{before.folder} is a study of a model with {name} = {json.dumps(stored[name])}; the model before has "
                f"{json.dumps(value)}. Nothing was changed: name the model of that study with --model-a."
            )


def refuse_other_lens(before: Study, after: Study) -> None:
    """Raise unless both studies have their values, read through the same lens."""
    for study in (before, after):
        study.need("values")
    lenses = [study.settings.get("lens") for study in (before, after)]
    if lenses[0] != lenses[1]:
        raise StudyError(
            f"The values of {before.folder} were read through the lens {lenses[0]}, those of {after.folder} through {lenses[1]}. "
            "Expected the same lens; make one of the studies again."
        )


def why_no_predictions(before: ModelInfo, after: ModelInfo) -> str | None:
    """Why the predictions of two models cannot be compared, if they cannot."""
    for model in (before, after):
        if model.no_lens is not None:
            return model.no_lens
    if is_masked(before) != is_masked(after):
        return "One of the models predicts masked tokens, the other one the next token."
    sizes = [model.entry["vocab"] for model in (before, after)]
    return None if sizes[0] == sizes[1] else f"The models have {sizes[0]:,} and {sizes[1]:,} tokens."


def _vocabulary(study: Study) -> list[str]:
    return pq.read_table(study.path("vocabulary.parquet"), columns=["text"])["text"].to_pylist()


def counts_of(study: Study, memories: list[int]) -> dict[str, Array]:
    """The mean coefficient and the firing rate of every memory; NaN where it was not searched."""
    table = pq.read_table(study.path("memories.parquet"), columns=["layer", "memory", "seen", "fired", "mean"])
    columns = {name: table[name].to_numpy() for name in table.column_names}
    number = np.cumsum([0, *memories])[columns["layer"]] + columns["memory"]
    counts = {name: np.full(sum(memories), np.nan) for name in ("mean", "firing")}
    counts["mean"][number] = columns["mean"]
    counts["firing"][number] = columns["fired"] / np.maximum(columns["seen"], 1)
    return counts
