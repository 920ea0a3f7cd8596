"""Compares the model of a study with that of another, memory by memory, and copies what is needed of the other study."""

import logging
import time
from functools import cached_property
from math import exp
from typing import Any

import numpy as np
import pyarrow as pa
from safetensors.torch import load_file, save_file

from ffscope.axes import Array
from ffscope.comparison.coefficients import draw_batches, tokens_at_once
from ffscope.comparison.moments import Moments, SumsOver, correlations, moments_of
from ffscope.comparison.partners import Partners, Search, find_partners
from ffscope.comparison.predictions import ComparePredictions
from ffscope.comparison.rotation import Rotation
from ffscope.comparison.similarity import Pairs, are_related, similarities
from ffscope.comparison.studies import (
    counts_of,
    refuse_other_base,
    refuse_other_lens,
    refuse_other_text,
    why_no_predictions,
)
from ffscope.comparison.table import change_of, nullable, top_tokens
from ffscope.comparison.triggers import Triggers, copied, kept
from ffscope.effects.held_out import held_out_batches
from ffscope.effects.shards import State, added, summed
from ffscope.errors import CorpusError, InputError, StudyError
from ffscope.models.fingerprint import manifest_entry
from ffscope.models.info import describe
from ffscope.models.loading import load
from ffscope.models.memory_model import MemoryModel
from ffscope.progress import Progress
from ffscope.search.passes import bos_of
from ffscope.search.text_pass import TextBatch
from ffscope.stages.diff import BaseOptions, DiffOptions
from ffscope.stages.stage import Work
from ffscope.study.folder import Study
from ffscope.study.resumable import ResumableFolder
from ffscope.study.schemas import SCHEMAS

logger = logging.getLogger(__name__)
_RELATED = 0.2  # least mean cosine of the values of a layer for memories to be paired by index
_TRIGGERS, _TOKENS = 10, 10  # of a partner, that are copied


def run(work: Work) -> None:
    """Run the stage: the other study is named by the options, and its model loaded from where that study records it."""
    options = work.options(BaseOptions)
    if options.base is None:
        raise InputError(
            "The stage diff compares two studies. Name the other one: base=DIR, or ffscope diff BEFORE AFTER."
        )
    before = Study.open(options.base)
    refuse_other_text(before, work.study)
    recorded = before.manifest["model"]
    named = {"model_type": recorded.get("model_type"), "dtype": recorded["dtype"], "device": work.device}
    compare(before, load(options.base_model or recorded["source"], **named), work)


def compare(before: Study, model: MemoryModel, work: Work) -> None:
    """Compare a study's model with that of another study, which is only read. A finished comparison is not repeated."""
    study, options = work.study, work.options(DiffOptions)
    if work.engine.name != "local":
        raise InputError("Two models are compared in one process. Run the stage diff with the local engine.")
    refuse_other_text(before, study)
    refuse_other_base(before, manifest_entry(model))
    refuse_other_lens(before, study)
    chosen = {name: getattr(options, name) for name in ("match", "diff_tokens", "diff_prefixes")}
    of_base = {
        name: before.manifest["model"].get(name) for name in ("source", "family", "layers", "memories", "fingerprint")
    }
    entry = {
        "options": {**chosen, "universal_above": options.universal_above},
        "base": {**of_base, "study": str(before.folder)},
    }
    finished = study.manifest["stages"].get("diff", {}) if study.has("diff") else {}
    start = time.perf_counter()
    if _same(finished, entry):
        if finished["options"] != entry["options"]:
            study.amend("diff", **entry)
        return
    diff = _Diff(before, model, work, {**chosen, "base": of_base["fingerprint"]})
    if finished:  # otherwise what an interrupted repetition leaves would be removed
        study.skip("diff", "It is being repeated with other options. Run the command again.")
    entries = {**entry, **diff.write(), **diff.predictions()}
    study.finish("diff", {}, seconds=time.perf_counter() - start, **entries)
    diff.folder.drop()


def _same(finished: dict[str, Any], entry: dict[str, Any]) -> bool:
    """Whether a finished comparison was with this model and these options; the threshold only matters to what is shown."""

    def relevant(of: dict[str, Any]) -> Any:
        options = {name: value for name, value in of.get("options", {}).items() if name != "universal_above"}
        return options, of.get("base", {}).get("fingerprint")

    return relevant(finished) == relevant(entry)


class _Diff:
    """The parts of the stage, on two studies and their models."""

    def __init__(self, before: Study, model: MemoryModel, work: Work, settings: dict[str, Any]) -> None:
        self.before, self.model_before, self.work, self.study = before, model, work, work.study
        self.model, self.options = work.model, work.options(DiffOptions)
        self.bos, self.seed = bos_of(self.study, work.info), self.study.settings["seed"]
        self.memories, self.memories_before = list(work.info.memories), list(model.memories)
        self.same_width = model.hidden == self.model.hidden
        self.matching, self.reason = self._choose_matching()
        # Last, so that a model or text that is refused leaves no folder.
        self.folder = ResumableFolder(self.study, "diff", settings)

    def _choose_matching(self) -> tuple[str, str]:
        """How memories are paired, and why."""
        before, after, asked_for = self.model_before, self.model, self.options.match
        same = before.memories == after.memories and before.hidden == after.hidden
        if asked_for == "activations":
            return "activations", "requested"
        if not same:
            shapes = " and ".join(f"{sum(each.memories):,} memories of width {each.hidden}" for each in (before, after))
            if asked_for == "index":
                raise StudyError(
                    f"Memories can be paired by index only if both models have the same layers and widths; found {shapes}. Use "
                    "--match activations."
                )
            return "activations", f"the models have {shapes}"
        if asked_for == "index":
            return "index", "requested"
        related, cosine = are_related(before, after, _RELATED)
        measured = f"the lowest mean cosine of a layer's values with those of the same numbers is {cosine:.3f}"
        compared = "at least" if related else "below"
        return ("index" if related else "activations"), f"{measured}, {compared} {_RELATED:g}"

    @cached_property
    def batches(self) -> list[TextBatch]:
        """The sample of the searched text."""
        most = tokens_at_once(self.model.device, sum(self.memories) + sum(self.memories_before))
        return draw_batches(self.study, self.options.diff_tokens, at_once=most)

    def write(self) -> dict[str, Any]:
        """Pair the memories, and write diff.parquet and diff_triggers.parquet; returns entries for study.json."""
        partners, sums = self._pair()
        columns = self._columns(partners, sums)
        top = min(study.settings["top"] for study in (self.before, self.study))
        of_before, of_after = (
            Triggers.read(study, memories, top)
            for study, memories in ((self.before, self.memories_before), (self.study, self.memories))
        )
        columns["triggers_kept"] = nullable(kept(of_before, of_after, partners.partner))
        owner, places = copied(of_before, partners.partner, _TRIGGERS)
        numbers = {name: column[owner] for name, column in self._numbers().items()}
        _write(self.study, "diff.parquet", {**self._numbers(), **columns})
        _write(self.study, "diff_triggers.parquet", {**numbers, **places})
        return {
            "match": self.matching,
            "match_reason": self.reason,
            "sampled_tokens": sum(batch.tokens.size for batch in self.batches),
            "sampled_sentences": sum(len(batch.tokens) for batch in self.batches),
            "triggers_compared": top,
        }

    def _numbers(self) -> dict[str, Array]:
        layers = np.repeat(np.arange(len(self.memories)), self.memories)
        return {"layer": layers, "memory": np.concatenate([np.arange(count) for count in self.memories])}

    def _pair(self) -> tuple[Partners, State]:
        """The partners, and the sums over the sample with each memory's product with its partner."""
        if self.matching == "index":
            count = sum(self.memories)
            partners = Partners(np.arange(count), np.full(count, np.nan))
        else:
            rotation = Rotation(self.memories_before, self.seed, self.model.device)
            state = self._summed("moments", SumsOver(self.model_before, self.bos, rotation))
            before, after, rotated = (moments_of(state, side) for side in ("before", "after", "rotated"))
            search = Search(self.model_before, self.model, before, after, rotated, self.batches, self.bos, rotation)
            partners = find_partners(search, self.folder, self._report)
        pairs = SumsOver(self.model_before, self.bos, partner=np.maximum(partners.partner, 0))
        return partners, self._summed(f"pairs by {self.matching}", pairs)

    def _summed(self, name: str, function: SumsOver) -> State:
        depends = repr([batch.tokens.shape for batch in self.batches]).encode()
        return summed(self.work, self.folder, name, function, self.batches, merge=added, depends=depends)

    def _report(self, done: int, total: int) -> None:
        self.work.progress(Progress("pairs of memories", done, total, unit="tokens"))

    def _columns(self, partners: Partners, sums: State) -> dict[str, Any]:
        """The columns of diff.parquet but those of the triggers."""
        partner, none = partners.partner, partners.partner < 0
        before = Moments(*(np.where(none, 0, column[partner]) for column in moments_of(sums, "before")))
        after, product = moments_of(sums, "after"), (sums["product"] / float(sums["count"])).numpy()
        ends = np.cumsum(self.memories_before)
        layer = np.where(none, -1, np.searchsorted(ends, np.maximum(partner, 0), side="right"))
        memory = np.where(none, -1, partner - np.concatenate([[0], ends])[np.maximum(layer, 0)])
        tops = top_tokens(self.before, self.memories_before, _TOKENS)
        top_before, top_after = tops.of(partner)[:, 0], top_tokens(self.study, self.memories, 1).first
        state = self._similarities(layer, memory, top_before)
        square_before, square_after = before.square * state["norm_before"] ** 2, after.square * state["norm_after"] ** 2
        change = change_of(square_before, square_after, product * state["product"], self.memories)
        counts = {"before": counts_of(self.before, self.memories_before), "after": counts_of(self.study, self.memories)}
        counts["before"] = {name: np.where(none, np.nan, column[partner]) for name, column in counts["before"].items()}
        no_tokens = (top_before < 0) | (top_after < 0)
        return {
            "partner_layer": pa.array(layer, mask=none),
            "partner_memory": pa.array(memory, mask=none),
            "correlation": nullable(correlations(before, after, product)),
            "baseline": nullable(partners.baseline),
            **{name: nullable(state[name]) for name in ("gate_cosine", "key_cosine", "value_cosine")},
            **{
                f"{name}_{side}": nullable(column[name])
                for side, column in counts.items()
                for name in ("mean", "firing")
            },
            "top_before": pa.array(top_before, mask=top_before < 0),
            "top_after": pa.array(top_after, mask=top_after < 0),
            "top_kept": pa.array(top_before == top_after, mask=no_tokens),
            "rank_of_top": pa.array(state["rank"], mask=state["rank"] == 0),
            "tokens_before": tops.lists(partner),
            "contribution_before": np.sqrt(square_before),
            "contribution_after": np.sqrt(square_after),
            "change": nullable(change if self.same_width else np.full(len(partner), np.nan)),
        }

    def _similarities(self, layer: Array, memory: Array, top: Array) -> dict[str, Array]:
        """The similarities of all pairs, layer by layer; those of finished layers are kept."""
        lens, ends = self.study.settings["lens"], np.cumsum(self.memories)[:-1]
        of_layers = zip(*(np.split(column, ends) for column in (layer, memory, top)), strict=True)
        pairs = [Pairs(number, *of_layer) for number, of_layer in enumerate(of_layers)]
        files = {f"{self.matching}-{number:04}.safetensors": number for number in range(len(pairs))}
        missing = self.folder.missing(files)
        for count, name in enumerate(missing, start=len(files) - len(missing)):
            self.work.progress(Progress("keys and values", count, len(files), unit="layers"))
            state = similarities(self.model_before, self.model, pairs[files[name]], lens=lens)
            with self.folder.writing(name) as path:
                save_file({key: tensor.contiguous() for key, tensor in state.items()}, path)
        self.work.progress(Progress("keys and values", len(files), len(files), unit="layers"))
        states = [load_file(self.folder.path(name)) for name in files]
        return {name: np.concatenate([state[name].numpy() for state in states]) for name in states[0]}

    def predictions(self) -> dict[str, Any]:
        """Compare the predictions at held-out text; returns entries for study.json."""
        why = why_no_predictions(describe(self.model_before), self.work.info)
        try:
            batches = [] if why else held_out_batches(self.study, self.work.info, self.options.diff_prefixes)
        except CorpusError as error:
            why, batches = str(error), []
        if not batches:
            logger.warning("The predictions are not compared. %s", why or "No held-out prefix has a known next token.")
            return {"predictions": None, "why_no_predictions": why}
        function = ComparePredictions(self.model_before, self.bos)
        state = summed(self.work, self.folder, "predictions", function, batches, merge=added)
        count = int(state["count"])
        means = {name: float(state[name]) / count for name in ("before", "after", "changed", "divergence")}
        return {
            "predictions": {
                "prefixes": count,
                "changed": means["changed"],
                "divergence": means["divergence"],
                "loss_before": means["before"],
                "loss_after": means["after"],
                "perplexity_before": exp(means["before"]),
                "perplexity_after": exp(means["after"]),
            }
        }


def _write(study: Study, file: str, columns: dict[str, Any]) -> None:
    with study.table(file) as writer:
        ordered = {name: columns[name] for name in SCHEMAS[file].names}
        writer.write_table(pa.Table.from_pydict(ordered, SCHEMAS[file]), row_group_size=2**16)
