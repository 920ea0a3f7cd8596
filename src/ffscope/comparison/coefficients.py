"""The coefficients of all memories of a model on a sample of the searched text."""

import numpy as np
import torch
from torch import Tensor

from ffscope.axes import Array, Float
from ffscope.corpus.prefixes import chunks, tokens_of
from ffscope.models.memory_model import MemoryModel
from ffscope.models.parts import Part
from ffscope.search.text_pass import TextBatch, read_coefficients, text_batches
from ffscope.study.folder import Study

_NUMBERS, _NUMBERS_ON_GPU = 2**26, 2**30  # coefficients of both models that are held at once


def draw_batches(study: Study, tokens: int, *, at_once: int) -> list[TextBatch]:
    """Random searched sentences with at least this many tokens together, in batches of up to `at_once` tokens.

    The sentences depend on the study's text and seed alone.
    """
    path, searched = study.path("sentences.parquet"), study.manifest["stages"]["triggers"]["sentences"]
    parts = list(chunks(path, first=searched))
    numbers, lengths = (np.concatenate([getattr(part, name) for part in parts]) for name in ("sentences", "lengths"))
    order = np.random.default_rng([study.settings["seed"], *b"diff"]).permutation(len(numbers))
    drawn = np.sort(order[: int(np.searchsorted(np.cumsum(lengths[order]), tokens)) + 1])
    texts = tokens_of(path, numbers[drawn])
    return text_batches([texts[number] for number in numbers[drawn].tolist()], tokens=at_once)


def tokens_at_once(device: torch.device, memories: int) -> int:
    """How many tokens are run at once, given the memories of both models."""
    return max(1, (_NUMBERS if device.type == "cpu" else _NUMBERS_ON_GPU) // memories)


def coefficients(
    model: MemoryModel, tokens: Array, bos: int | None, *, layers: range | None = None
) -> Float[Tensor, "prefix memory"]:
    """The coefficients of every memory of some consecutive layers, by default all, at every token of a batch."""
    chosen = range(model.layers) if layers is None else layers
    starts = np.cumsum([0, *(model.memories[layer] for layer in chosen)]).tolist()
    observed = torch.empty(tokens.size, starts[-1], device=model.device)
    first = {
        part: starts[place] + part.offset for place, layer in enumerate(chosen) for part in model.layer(layer).parts
    }

    def keep(part: Part, rows: Tensor) -> None:
        observed[:, first[part] : first[part] + part.memories] = rows.to(observed.device, observed.dtype)

    read_coefficients(model, tokens, bos, first, keep)
    return observed
