"""What the model would lose without each memory: estimates for all, exact effects of some, and of whole groups."""

import logging
import time
from collections.abc import Iterator
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import torch

from ffscope.axes import Array
from ffscope.effects.baseline import Baselines, read_baselines
from ffscope.effects.estimated import Estimate, effect_columns, mean_interval
from ffscope.effects.exact import Exact, Selection, select
from ffscope.effects.groups import WithoutGroups, digest_of, make_groups, smallest
from ffscope.effects.shards import State, added, summed
from ffscope.effects.sums import merge_states
from ffscope.effects.texts import Batch, batches_by_prediction, example_batches, is_masked
from ffscope.errors import CorpusError, LensError
from ffscope.options.analysis import ExampleOptions
from ffscope.search.example_pass import Examples, draw_examples
from ffscope.search.passes import bos_of
from ffscope.stages.effects import STAGE, EffectOptions
from ffscope.stages.stage import Work
from ffscope.study.folder import Study
from ffscope.study.resumable import ResumableFolder
from ffscope.study.schemas import SCHEMAS

logger = logging.getLogger(__name__)


def run(work: Work) -> None:
    """Run the stage."""
    study, settings = work.study, STAGE.settings(work.options)
    study.need("triggers")
    if study.done("effects", settings):
        return
    if work.info.no_lens is not None:
        raise LensError(f"{work.info.no_lens} Without logits there is no loss, so memories have no effect on it.")
    start = time.perf_counter()
    effects = _Effects(work, settings)
    estimated = effects.estimate()
    entries: dict[str, Any] = {"scored": effects.count, "masked": is_masked(work.info)}
    entries |= {**effects.measure(estimated), **effects.take_groups_away(estimated)}
    study.finish("effects", settings, seconds=time.perf_counter() - start, **entries)
    effects.folder.drop()


class _Effects:
    """The three parts of the stage, on one study."""

    def __init__(self, work: Work, settings: dict[str, Any]) -> None:
        self.work, self.study = work, work.study
        self.options, self.model = work.options(EffectOptions), work.info
        self.seed, self.bos = self.study.settings["seed"], bos_of(self.study, self.model)
        self.examples: Examples = draw_examples(self.study, work.options(ExampleOptions).examples, self.seed)
        self.baselines: Baselines = read_baselines(self.study, self.model, self.options.baseline)
        self.batches = self._batches(None)
        self.count = sum(len(batch.examples) for batch in self.batches)
        # Last, so that a model or text that is refused leaves no folder.
        self.folder = ResumableFolder(self.study, "effects", settings)

    def estimate(self) -> dict[str, Any]:
        """Estimate all effects, and write effects.parquet; returns its columns."""
        function = Estimate(self.baselines, self.bos, self.options.steps)
        batches = batches_by_prediction(self.study, self.model, self.examples)
        state = summed(self.work, self.folder, "effects", function, batches, merge=merge_states)
        columns = effect_columns(state, self.model)
        _write(self.study, "effects.parquet", columns)
        return columns

    def measure(self, estimated: dict[str, Any]) -> dict[str, int]:
        """Measure the effects of some memories, and write exact_effects.parquet; returns the counts of passes for study.json."""
        options, model = self.options, self.model
        selection = select(_by_layer(estimated["effect_size"], model.memories), options.effect_memories, self.seed)
        if len(selection) and model.dtype in (torch.bfloat16, torch.float16):
            logger.warning(
                "This study's model computes in %s. Rounding changes its loss by more than most single memories do, so their "
                "measured effects are mostly noise; for exact ones, make the study with --dtype float32.",
                str(model.dtype).removeprefix("torch."),
            )
        if not len(selection):
            _write(self.study, "exact_effects.parquet", {name: [] for name in SCHEMAS["exact_effects.parquet"].names})
            return {}
        tokens = self.study.settings["batch_tokens"]
        function = Exact(selection, self.baselines, self.bos, options.steps, tokens)
        batches = self._batches(options.exact_examples)
        state = summed(
            self.work, self.folder, "exact effects", function, batches, merge=added, depends=selection.digest
        )
        _write(self.study, "exact_effects.parquet", _exact_columns(state, selection))
        names = ("exact_examples_used", "ablations", "layer_passes", "layer_passes_without_sharing")
        return dict(zip(names, state["counts"].tolist(), strict=True))

    def take_groups_away(self, estimated: dict[str, Any]) -> dict[str, int]:
        """Measure the loss without groups of memories, and write effect_groups.parquet."""
        groups = make_groups(dict(self._groups(estimated)), self.model.memories, self.seed)
        function = WithoutGroups(tuple(groups), self.baselines, self.bos)
        batches = self._batches(self.options.group_examples)
        state = summed(
            self.work, self.folder, "effects of groups", function, batches, merge=added, depends=digest_of(groups)
        )
        count = int(state["count"])
        low, high = mean_interval(state["effect"], state["effect_square"], count)
        columns = {
            "group": [group.name for group in groups],
            "random": [group.random for group in groups],
            "memories": [len(group) for group in groups],
            "effect": (state["effect"] / count).float().numpy(),
            "effect_low": low,
            "effect_high": high,
            "effect_on_prediction": (state["prediction"] / count).float().numpy(),
        }
        _write(self.study, "effect_groups.parquet", columns)
        return {"group_examples_used": count}

    def _groups(self, estimated: dict[str, Any]) -> Iterator[tuple[str, Array]]:
        """The groups by name, as masks over all memories."""
        place = {at: number for number, at in enumerate(zip(estimated["layer"], estimated["memory"], strict=True))}

        def mask(rows: pa.Table) -> Array:
            chosen = np.zeros(len(place), dtype=bool)
            names = zip(rows["layer"].to_pylist(), rows["memory"].to_pylist(), strict=True)
            chosen[[place[at] for at in names]] = True
            return chosen

        memories = pq.read_table(self.study.path("memories.parquet"), columns=["layer", "memory", "maximum"])
        yield "dead", mask(memories.filter(pc.less_equal(memories["maximum"], 0)))
        sizes = estimated["effect_size"]
        for percent in self.options.percentages:
            yield f"least important {percent:g} %", smallest(sizes, percent / 100)
        yield "most important 1 %", smallest(-sizes, 0.01)
        if self.study.has("patterns"):
            filters = [("annotator", "==", "machine")]
            patterns = pq.read_table(self.study.path("patterns.parquet"), columns=["layer", "memory"], filters=filters)
            yield "without a pattern", mask(memories) & ~mask(patterns)

    def _batches(self, count: int | None) -> list[Batch]:
        """All examples, or a random sample of `count`, in batches."""
        if count is not None:
            known = np.sort(np.concatenate([batch.examples for batch in self.batches]))
            sample = np.random.default_rng([self.seed, *b"exact"]).permutation(known)[:count]
            return example_batches(self.study, self.model, self.examples, sample)
        batches = example_batches(self.study, self.model, self.examples)
        if not batches:
            raise CorpusError(
                "No example has a token to predict, so none has a loss. Use more held-out text (--held-out FILE)."
            )
        return batches


def _exact_columns(state: State, selection: Selection) -> dict[str, Any]:
    count = int(state["counts"][0])
    low, high = mean_interval(state["effect"], state["effect_square"], count)
    layers = selection.memories
    means = (
        "effect_size",
        "estimate",
        "estimate_square",
        "effect_square",
        "product",
        "prediction_estimate",
        "prediction",
    )
    return {
        "layer": np.repeat(list(layers), [len(memories) for memories in layers.values()]),
        "memory": np.concatenate(list(layers.values())),
        "selected": [kind for kinds in selection.kinds.values() for kind in kinds],
        "effect": (state["effect"] / count).float().numpy(),
        "effect_low": low,
        "effect_high": high,
        **{name: (state[name] / count).float().numpy() for name in means},
    }


def _by_layer(column: Array, memories: tuple[int, ...]) -> list[Array]:
    return np.split(column, np.cumsum(memories)[:-1])


def _write(study: Study, file: str, columns: dict[str, Any]) -> None:
    with study.table(file) as writer:
        writer.write_table(pa.Table.from_pydict(columns, SCHEMAS[file]), row_group_size=2**16)
