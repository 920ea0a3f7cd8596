"""Writes the result of a search as tables of the study."""

from typing import Any

import numpy as np
import pyarrow as pa
from torch import Tensor

from ffscope.axes import Array
from ffscope.corpus.prefixes import Places, locate
from ffscope.search.histogram import ABOVE_ZERO
from ffscope.search.merge import State
from ffscope.search.trigger_keys import EMPTY, coefficients_of, prefixes_of
from ffscope.study.folder import Study
from ffscope.study.schemas import SCHEMAS


def write_tables(study: Study, names: dict[str, Array], state: State) -> None:
    """Write triggers.parquet, memories.parquet and, if the lowest coefficients were kept, negative_triggers.parquet."""
    tensors = {name: tensor.cpu() for name, tensor in state.items()}
    tensors["sample"] = tensors["sample"].sort(1, descending=True).values  # by coefficient, for display
    places = _locate(study, {name: tensors[name] for name in ("top", "low", "sample") if name in tensors})
    _write_table(study, "triggers.parquet", _triggers(names, tensors["top"], places["top"]))
    if "low" in tensors:
        lowest = _triggers(names, tensors["low"], places["low"])
        lowest["coefficient"] = -lowest["coefficient"]
        _write_table(study, "negative_triggers.parquet", lowest)
    _write_table(study, "memories.parquet", {**names, **_counts(tensors, places["sample"])})


def _locate(study: Study, keys: dict[str, Tensor]) -> dict[str, Places]:
    """The places of all keys that are not empty, in one pass over the sentences."""
    prefixes = [prefixes_of(tensor[tensor != EMPTY]).numpy() for tensor in keys.values()]
    places = locate(study.path("sentences.parquet"), np.concatenate(prefixes))
    ends = np.cumsum([len(numbers) for numbers in prefixes])[:-1]
    columns = [np.split(column, ends) for column in places]
    return {name: Places(*column) for name, column in zip(keys, zip(*columns, strict=True), strict=True)}


def _write_table(study: Study, name: str, columns: dict[str, Any]) -> None:
    with study.table(name) as writer:
        writer.write_table(pa.Table.from_pydict(columns, SCHEMAS[name]), row_group_size=2**16)


def _triggers(names: dict[str, Array], keys: Tensor, places: Places) -> dict[str, Any]:
    """The columns of a table of triggers, sorted by layer, memory and rank."""
    row, rank = (column.numpy() for column in (keys != EMPTY).nonzero().unbind(1))
    return {
        "layer": names["layer"][row],
        "memory": names["memory"][row],
        "rank": (rank + 1).astype(np.int32),
        "coefficient": coefficients_of(keys[keys != EMPTY]).numpy(),
        "sentence": places.sentences,
        "position": places.positions,
        "next_token": places.next_tokens,
    }


def _counts(state: State, places: Places) -> dict[str, Any]:
    """The columns of memories.parquet, except the names."""
    sampled = state["sample"]
    present = sampled != EMPTY
    histogram = state["histogram"]
    seen = histogram.sum(1)
    bins = np.arange(len(histogram) + 1) * histogram.shape[1]
    samples = np.concatenate([[0], present.sum(1).cumsum(0).numpy()])
    return {
        "seen": seen.numpy(),
        "fired": histogram[:, ABOVE_ZERO].sum(1).numpy(),
        "mean": ((state["total_coarse"] + state["total_fine"]) / seen).float().numpy(),
        "maximum": state["maximum"].numpy(),
        "histogram": _lists(bins, histogram.flatten().numpy()),
        "sample_coefficients": _lists(samples, coefficients_of(sampled[present]).numpy()),
        "sample_sentences": _lists(samples, places.sentences),
        "sample_positions": _lists(samples, places.positions),
    }


def _lists(offsets: Any, values: Any) -> pa.ListArray:
    kind = np.float32 if values.dtype == np.float32 else np.int32
    return pa.ListArray.from_arrays(pa.array(offsets, pa.int32()), pa.array(values.astype(kind)))
