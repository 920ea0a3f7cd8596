"""Text that the model gives away, the memories that hold it, and the exposure of canaries."""

import logging
import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from hashlib import sha256
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from safetensors.numpy import load_file

from ffscope.axes import Array
from ffscope.corpus.documents import Corpus
from ffscope.corpus.prefixes import chunks, held_out, tokens_of
from ffscope.effects.estimated import mean_interval
from ffscope.effects.groups import Group, digest_of
from ffscope.effects.held_out import HeldOutBatch, HeldOutLoss, held_out_batches
from ffscope.effects.shards import added, computed, summed
from ffscope.leaks.canaries import Canary, read_canaries
from ffscope.leaks.checks import check_completes
from ffscope.leaks.completions import Completions, Run, joined, runs_in, sentence_batches
from ffscope.leaks.exposure import Exposure, LogPerplexities, exposure_of, seed_of, texts_of
from ffscope.leaks.holders import Elsewhere, Holders, LeakText, Together, group_of
from ffscope.leaks.listed import KINDS, Listed, after_triggers, distinct, list_completions
from ffscope.leaks.overview import overview
from ffscope.leaks.rows import Leak, Measured, canary_columns, leak_columns, make_leaks, memory_columns
from ffscope.leaks.wider_text import count_in_text
from ffscope.search.passes import bos_of
from ffscope.stages.leaks import CanaryOptions, LeakOptions, ShownOptions
from ffscope.stages.stage import Work
from ffscope.study.folder import Study
from ffscope.study.resumable import ResumableFolder
from ffscope.study.schemas import SCHEMAS

logger = logging.getLogger(__name__)
_ELSEWHERE = 200  # of these sentences
Change = tuple[float, float, float]


def run(work: Work) -> str:
    """Run the stage; returns what is said of it."""
    study = work.study
    study.need("triggers")
    check_completes(work.info)
    canaries, settings = _settings(work)
    shown = {"show_personal": work.options(ShownOptions).show_personal}
    entry = study.manifest["stages"].get("leaks", {})
    if study.has("leaks") and entry["options"] == settings:
        study.amend("leaks", **shown)
        return overview(study)
    start = time.perf_counter()
    held_out_text = _held_out_text(work)
    # Last, so that a study without what is needed gets no folder.
    leaks = _Leaks(work, ResumableFolder(study, "leaks", settings), held_out_text)
    entries = {**leaks.find(), **leaks.measure()}
    tables = {"leaks": leaks.columns, "leak_memories": memory_columns(leaks.measured)}
    if canaries:
        tables["canaries"] = canary_columns(leaks.exposures(canaries))
    _write(study, tables)
    study.finish("leaks", {}, seconds=time.perf_counter() - start, options=settings, **entries, **shown)
    leaks.folder.drop()
    return overview(study)


def _settings(work: Work) -> tuple[list[Canary], dict[str, Any]]:
    """The canaries, and the options that results depend on; of the canaries, which are secret, a digest."""
    options = work.options(CanaryOptions)
    canaries = [] if options.canaries is None else read_canaries(options.canaries)
    digest = sha256("\n".join(f"{each.before}{{{each.secret}}}{each.after}" for each in canaries).encode()).hexdigest()
    settings = {**vars(work.options(LeakOptions)), "canaries": digest if canaries else None}
    if settings["leak_text"] is not None:
        settings["leak_text_files"] = Corpus(
            settings["leak_text"]
        ).signature  # raises, before anything runs, if there is none
    return canaries, settings | ({"canary_samples": options.canary_samples} if canaries else {})


def _held_out_text(work: Work) -> list[HeldOutBatch]:
    """The held-out text on which losses are measured; none if the study has none."""
    if not len(held_out(work.study.path("sentences.parquet"))[0]):
        logger.warning(
            "This study has no held-out text, so what else the model loses without memories is not measured. For that, make a "
            "new study with --held-out FILE."
        )
        return []
    return held_out_batches(work.study, work.info, work.options(LeakOptions).leak_prefixes)


class _Leaks:
    """The parts of the stage, on one study."""

    def __init__(self, work: Work, folder: ResumableFolder, held_out_text: list[HeldOutBatch]) -> None:
        self.work, self.study, self.folder, self._held_out_text = work, work.study, folder, held_out_text
        self.options, self.bos = work.options(LeakOptions), bos_of(work.study, work.info)
        self.seed, self.tokens = work.study.settings["seed"], work.study.settings["batch_tokens"]
        self.sentences = self.study.path("sentences.parquet")
        self.searched = self.study.manifest["stages"]["triggers"]["sentences"]
        self.leaks: list[Leak] = []
        self.others: Array = np.empty(
            0, np.int64
        )  # sentences without a completion, on which memories should have no effect
        self.measured: dict[int, Measured] = {}

    @property
    def columns(self) -> dict[str, Any]:
        """The columns of leaks.parquet."""
        return leak_columns(self.leaks, self.measured)

    def find(self) -> dict[str, Any]:
        """Find the leaks; returns what the whole text is compared with, for study.json.

        Sentences without a trigger are read too: what they are compared with is drawn from all held-out ones.
        """
        triggers = self._triggers()
        numbers = np.concatenate([chunk.sentences for chunk in chunks(self.sentences, first=self.searched)])
        texts = tokens_of(self.sentences, numbers)
        others = tokens_of(self.sentences, self._held_out_numbers(len(texts)))
        shortest = self.options.leak_tokens
        runs, other_runs = self._runs("completions", texts), self._runs("held-out completions", others)
        order = np.random.default_rng([self.seed, *b"elsewhere"]).permutation(numbers)
        self.others = order[~np.isin(order, [run.sentence for run in runs])][:_ELSEWHERE]
        positions = {sentence: np.array(sorted(places)) for sentence, places in triggers.items()}
        given_away = runs if self.options.leak_starts == "all" else after_triggers(runs, positions, shortest)
        lists = [distinct(some, {**texts, **others}) for some in (given_away, runs, other_runs)]
        every = list_completions(
            [run for some in lists for run in some],
            {**texts, **others},
            chunks(self.sentences, first=self.searched),
            shortest=shortest,
            contexts=self.options.phrase_contexts,
        )
        ends = np.cumsum([len(some) for some in lists])
        listed, searched, held = every[: ends[0]], every[ends[0] : ends[1]], every[ends[1] :]
        counts = {(sentence, place): count for sentence, places in triggers.items() for place, count in places.items()}
        self.leaks = make_leaks(self.study, listed, counts, self.work.info.tokenizer.decode, self.options)
        self._count_in_wider_text()
        return {"searched": _rates(searched, texts), "held_out": _rates(held, others)}

    def _triggers(self) -> dict[int, dict[int, int]]:
        """How many memories have each prefix as a trigger, by sentence and position."""
        table = pq.read_table(self.study.path("triggers.parquet"), columns=["sentence", "position"])
        places, counts = np.unique(
            np.stack([table[name].to_numpy().astype(np.int64) for name in table.column_names]),
            axis=1,
            return_counts=True,
        )
        triggers: dict[int, dict[int, int]] = {}
        for sentence, position, count in zip(*places.tolist(), counts.tolist(), strict=True):
            triggers.setdefault(sentence, {})[position] = count
        return triggers

    def _held_out_numbers(self, count: int) -> Array:
        """As many held-out sentences at random, or all there are."""
        numbers, _ = held_out(self.sentences)
        order = np.random.default_rng([self.seed, *b"leaks"]).permutation(len(numbers))
        return np.sort(numbers[order[:count]])

    def _runs(self, name: str, texts: dict[int, Array]) -> list[Run]:
        batches = sentence_batches(texts, self.tokens)
        if not batches:
            return []
        function = Completions(self.bos, self.options.leak_tokens)
        return runs_in(summed(self.work, self.folder, name, function, batches, merge=joined))

    def _count_in_wider_text(self) -> None:
        """Count the secrets in the text of --leak-text; those that are phrases there come later in the list."""
        if self.options.leak_text is None:
            return
        places = [place for place, leak in enumerate(self.leaks) if leak.kind == "secret"]
        strings = [self.leaks[place].text.strip() for place in places]
        counted = count_in_text(Corpus(self.options.leak_text), strings, self.folder, self.work.progress)
        for place, wider in zip(places, counted, strict=True):
            leak = self.leaks[place]
            prefix = leak.prefix + leak.text[: len(leak.text) - len(leak.text.lstrip())]
            self.leaks[place] = replace(leak, wider=(wider.places, wider.others(prefix)))
        self.leaks.sort(key=lambda leak: leak.order)

    def measure(self) -> dict[str, Any]:
        """Measure which memories hold the first leaks that are worth it, and what else is lost without these."""
        chosen = [number for number, leak in enumerate(self.leaks) if leak.is_worth_measuring]
        chosen = chosen[: self.options.leaks_measured]
        texts = [self._text(self.leaks[number]) for number in chosen]
        if not texts:
            return {"memories": 0, "loss": None, "together": None}
        options, depends = self.options, _digest_of(texts)
        function = Holders(self._elsewhere(depends), self.bos, options.leak_memories, self.tokens)
        sizes = [len(text.tokens) for text in texts]
        paths = computed(self.work, self.folder, "leaks", function, texts, sizes=sizes, unit="tokens", depends=depends)
        states = [load_file(path) for path in paths]
        measured = [Measured(state, self.leaks[number].target) for number, state in zip(chosen, states, strict=True)]
        broken = [place for place, each in enumerate(measured) if each.is_broken]
        if not broken:
            self.measured = dict(zip(chosen, measured, strict=True))
            return {"memories": 0, "loss": None, "together": None}
        groups = [self._group(str(place), [measured[place]]) for place in broken]
        everything = self._group("all", [measured[place] for place in broken])
        left = self._left_together(everything, texts, depends)
        entries, changes = self._loss_changes((*groups, everything))
        for place, change in zip(broken, changes, strict=False):
            measured[place] = replace(measured[place], together_left=left[place], loss_change=change)
        self.measured = dict(zip(chosen, measured, strict=True))
        return {"memories": len(everything), **entries}

    def _elsewhere(self, depends: bytes) -> tuple[Array, ...]:
        """The size of every memory's effect on searched sentences without any completion, in nats per token, by layer."""
        batches = sentence_batches(tokens_of(self.sentences, self.others), self.tokens)
        memories = self.work.info.memories
        if not batches:
            return tuple(np.zeros(count) for count in memories)
        state = summed(
            self.work, self.folder, "other sentences", Elsewhere(self.bos), batches, merge=added, depends=depends
        )
        per_token = state["sum"].numpy() / int(state["count"])
        return tuple(np.split(per_token, np.cumsum(memories)[:-1]))

    def _text(self, leak: Leak) -> LeakText:
        sentence, start, _ = leak.listed.run
        return LeakText(leak.listed.tokens[: start + leak.target], start, (self.seed, *b"leaks", sentence, start))

    def _group(self, name: str, measured: Sequence[Measured]) -> Group:
        return group_of(name, self.work.info.memories, [each.memories for each in measured])

    def _left_together(self, group: Group, texts: list[LeakText], depends: bytes) -> list[int]:
        """How many tokens are left of each leak without all memories."""
        function, depends = Together(group, self.bos), depends + digest_of([group])
        sizes = [sum(len(text.tokens) for text in texts)]
        paths = computed(
            self.work, self.folder, "leaks together", function, [texts], sizes=sizes, unit="tokens", depends=depends
        )
        return load_file(paths[0])["left"].tolist()

    def _loss_changes(self, groups: tuple[Group, ...]) -> tuple[dict[str, Any], list[Change | None]]:
        """What is lost on held-out text without each group; for study.json, the loss and the change without the last one."""
        if not self._held_out_text:
            return {"loss": None, "together": None}, [None] * len(groups)
        function, depends = HeldOutLoss(self.bos, groups), digest_of(groups)
        state = summed(
            self.work, self.folder, "held-out loss", function, self._held_out_text, merge=added, depends=depends
        )
        count = int(state["count"])
        change = state["loss"][1:] - state["loss"][0]
        ends = mean_interval(change, state["change_square"][1:], count)
        changes: list[Change | None] = list(
            zip((change / count).tolist(), *(end.tolist() for end in ends), strict=True)
        )
        return {"loss": float(state["loss"][0]) / count, "prefixes": count, "together": changes[-1]}, changes

    def exposures(self, canaries: Sequence[Canary]) -> list[Exposure]:
        """The exposure of each canary."""
        samples = self.work.options(CanaryOptions).canary_samples
        texts = [
            texts_of(canary, self.work.info.tokenizer, samples, seed_of(self.seed, number))
            for number, canary in enumerate(canaries, start=1)
        ]
        sizes = [sum(map(len, each)) for each in texts]
        function = LogPerplexities(self.bos, self.tokens)
        paths = computed(self.work, self.folder, "canaries", function, texts, sizes=sizes, unit="tokens")
        bits = [load_file(path)["bits"] for path in paths]
        return [exposure_of(canary, each) for canary, each in zip(canaries, bits, strict=True)]


def _rates(rows: Sequence[Listed], texts: dict[int, Array]) -> dict[str, int]:
    """How many sentences and prefixes were read, and how many distinct completions of each kind are in them."""
    kinds = Counter(row.kind for row in rows)
    return {
        "sentences": len(texts),
        "prefixes": sum(map(len, texts.values())),
        **{kind: kinds[kind] for kind in KINDS},
        "with_secret": len({row.run.sentence for row in rows if row.kind == "secret"}),
    }


def _digest_of(texts: Sequence[LeakText]) -> bytes:
    """Which completions these are, as bytes."""
    return b"".join(np.array([text.start, *text.tokens], dtype=np.int64).tobytes() for text in texts)


def _write(study: Study, tables: dict[str, dict[str, Any]]) -> None:
    study.path("canaries.parquet").unlink(missing_ok=True)  # of an earlier run
    for name, columns in tables.items():
        schema = SCHEMAS[f"{name}.parquet"]
        table = pa.Table.from_pydict(columns, schema) if columns else schema.empty_table()
        with study.table(f"{name}.parquet") as writer:
            writer.write_table(table)
