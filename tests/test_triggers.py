"""The search for triggers compared with a plain one: every prefix of every sentence, run and sorted."""

import errno
import itertools
import json
import signal
import subprocess
import sys
import time
from contextlib import ExitStack, contextmanager
from dataclasses import replace

import numpy as np
import pyarrow.parquet as pq
import pytest
import torch

import tiny
from ffscope import read
from ffscope.corpus.batches import batches
from ffscope.corpus.prefixes import chunks
from ffscope.errors import CoefficientError, CorpusError, InputError, StudyError
from ffscope.models.inputs import bos_token
from ffscope.models.loading import make_memory_model
from ffscope.options.corpus import CorpusOptions
from ffscope.options.search import SearchOptions
from ffscope.pipeline import triggers
from ffscope.search import checkpoint
from ffscope.search.execute import Search
from ffscope.search.histogram import BINS, bin_of
from ffscope.search.plan import rarity
from ffscope.study.folder import Study

TEXT = "The cat sat. On a mat, it saw the dog! Why? A bird flew by <and> sang [a song] / of old. It was late."
WORDS = TEXT.split()
FAMILIES = [name for name in tiny.TABLE if name != "vit"]  # which reads no text


@pytest.fixture(scope="module")
def corpus(tmp_path_factory):
    """Twenty-five documents, made of few words, so that sentences begin alike and lengths recur."""
    generator = torch.Generator().manual_seed(3)
    folder = tmp_path_factory.mktemp("corpus")
    file = folder / "text.jsonl"
    with file.open("w") as out:
        for _ in range(25):
            picks = torch.randint(len(WORDS), (24,), generator=generator).tolist()
            text = " ".join(WORDS[i] for i in picks)
            print(json.dumps({"text": text[:60] + "\n" + text[60:]}), file=out)
    return file


def read_rows(study, name="triggers.parquet"):
    return pq.read_table(study.path(name)).to_pylist()


class Plain:
    """Every searched prefix's coefficients, by one pass per sentence."""

    def __init__(self, model, study, *, bos=True):
        config = model.model.config
        first = bos_token(model.tokenizer) if bos else None
        start = config.decoder_start_token_id if getattr(config, "is_encoder_decoder", False) else None
        rows = [row for row in pq.read_table(study.path("sentences.parquet")).to_pylist() if not row["held_out"]]
        kept = [[[] for _ in model.layer(layer).parts] for layer in range(model.layers)]
        places = []
        with ExitStack() as stack, torch.no_grad():
            for layer, parts in enumerate(kept):
                for part, held in zip(model.layer(layer).parts, parts, strict=True):
                    stack.enter_context(
                        part.tap(lambda _part, values, _past, held=held: held.append(values[0].numpy()))
                    )
            for row in rows:
                tokens = row["tokens"]
                inputs = {"input_ids": tokens if first is None else [first, *tokens]}
                if start is not None:
                    inputs["decoder_input_ids"] = [start, *tokens]
                model.model(**{name: torch.tensor([ids]) for name, ids in inputs.items()})
                following = [*tokens[1:], row["next_token"]]
                places += [(row["sentence"], position, token) for position, token in enumerate(following)]
        lengths = [len(row["tokens"]) for row in rows]
        kept = [
            [np.concatenate([values[-n:] for values, n in zip(held, lengths, strict=True)]) for held in parts]
            for parts in kept
        ]
        self.coefficients = [np.concatenate(parts, -1) for parts in kept]  # layer → prefix × memory
        self.places = np.array(places)  # sentence, position, next token of every prefix
        self.number = {(sentence, position): i for i, (sentence, position, _) in enumerate(places)}

    def highest(self, layer, memory, top, *, prefixes="best", sign=1):
        """The coefficients of the first `top`; of each sentence only the best prefix, unless `prefixes` is "all"."""
        column = sign * self.coefficients[layer][:, memory]
        order = np.lexsort((self.places[:, 1], self.places[:, 0], -column))
        order = order[column[order] > 0]
        if prefixes == "best":
            _, firsts = np.unique(self.places[order, 0], return_index=True)
            order = order[np.sort(firsts)]
        return sign * column[order[:top]]

    def holds(self, rows, top, *, sign=1, prefixes="best"):
        """Assert that rows are the triggers: each rank's coefficient is right, and is that of the prefix it names."""
        by_memory = {key: list(some) for key, some in itertools.groupby(rows, key=lambda r: (r["layer"], r["memory"]))}
        for layer, coefficients in enumerate(self.coefficients):
            for memory in range(coefficients.shape[1]):
                some = by_memory.pop((layer, memory), [])
                got = np.array([row["coefficient"] for row in some])
                expected = self.highest(layer, memory, top, sign=sign, prefixes=prefixes)
                np.testing.assert_allclose(got, expected, rtol=1e-4, atol=1e-6)
                assert [row["rank"] for row in some] == list(range(1, len(some) + 1))
                numbers = [self.number[row["sentence"], row["position"]] for row in some]
                assert len(set(numbers)) == len(numbers)
                assert [row["next_token"] for row in some] == self.places[numbers, 2].tolist()
                np.testing.assert_allclose(got, coefficients[numbers, memory], rtol=1e-4, atol=1e-6)
        assert not by_memory


@pytest.mark.parametrize("name", FAMILIES)
def test_the_same_as_a_plain_search(name, corpus, tokenizer, tmp_path):
    model = read(tiny.make(name), tokenizer)
    searching = SearchOptions(top=7, negative=True, batch_tokens=100)
    study = triggers(model, CorpusOptions(str(corpus), max_tokens=20), tmp_path / "study", search=searching)
    plain = Plain(model, study)
    plain.holds(read_rows(study), 7)
    plain.holds(read_rows(study, "negative_triggers.parquet"), 7, sign=-1)


def test_all_prefixes(corpus, tokenizer, tmp_path):
    model = read(tiny.make("llama"), tokenizer)
    searching = SearchOptions(top=9, prefixes="all", bos=False)
    study = triggers(model, CorpusOptions(str(corpus), max_tokens=20), tmp_path / "study", search=searching)
    Plain(model, study, bos=False).holds(read_rows(study), 9, prefixes="all")


FILES = ("sentences.parquet", "triggers.parquet", "negative_triggers.parquet", "memories.parquet")
QUICK = SearchOptions(top=5, negative=True, batch_tokens=60)


@pytest.fixture(scope="module")
def llama(tokenizer):
    return read(tiny.make("llama"), tokenizer, source="tiny")


@pytest.fixture(scope="module")
def whole(llama, corpus, tmp_path_factory):
    """A study that was not interrupted."""
    return triggers(llama, CorpusOptions(str(corpus)), tmp_path_factory.mktemp("whole") / "study", search=QUICK)


def same_bytes(study, other):
    return all(study.path(name).read_bytes() == other.path(name).read_bytes() for name in FILES)


@pytest.mark.parametrize("at", [1, 2, 7])
@pytest.mark.parametrize("stop", [KeyboardInterrupt, MemoryError])
def test_an_interrupted_search_ends_with_the_same_bytes(at, stop, llama, corpus, whole, tmp_path, monkeypatch):
    run, count = Search.run_prepared, itertools.count(1)

    def stopping(self, batch):
        if next(count) == at:
            raise stop
        run(self, batch)

    monkeypatch.setattr(Search, "run_prepared", stopping)
    with pytest.raises(stop):
        triggers(llama, CorpusOptions(str(corpus)), tmp_path / "study", search=QUICK, checkpoint_every=0.0)
    assert not (tmp_path / "study" / "triggers.parquet").exists()
    monkeypatch.setattr(Search, "run_prepared", run)
    study = triggers(llama, CorpusOptions(str(corpus)), tmp_path / "study", search=QUICK)
    assert same_bytes(study, whole)
    assert sorted(path.name for path in study.folder.iterdir()) == sorted(path.name for path in whole.folder.iterdir())


def test_ctrl_c_waits_for_the_batch_and_loses_nothing(llama, corpus, whole, tmp_path, monkeypatch):
    run, count, usual = Search.run_prepared, itertools.count(1), signal.getsignal(signal.SIGINT)

    def interrupted(self, batch):
        if next(count) == 4:
            signal.raise_signal(signal.SIGINT)
        run(self, batch)

    monkeypatch.setattr(Search, "run_prepared", interrupted)
    folder = tmp_path / "study"
    with pytest.raises(KeyboardInterrupt):
        triggers(llama, CorpusOptions(str(corpus)), folder, search=QUICK, checkpoint_every=1000.0)
    batches_done = checkpoint.read_note(Study.open(folder))["batches"]
    assert batches_done == 4
    assert signal.getsignal(signal.SIGINT) is usual
    study = triggers(llama, CorpusOptions(str(corpus)), folder, search=QUICK)
    assert next(count) == 5 + sum(1 for _ in _batches(study)) - batches_done
    assert same_bytes(study, whole)


def _batches(study):
    read = chunks(study.path("sentences.parquet"))
    return batches(read, tokens=60, before=1, rows=10**6)


@pytest.mark.parametrize("full", ["triggers.checkpoint", "sentences.parquet", "triggers.parquet", "study.json"])
def test_a_full_disk_is_a_sentence_and_loses_nothing(full, llama, corpus, whole, tmp_path, monkeypatch):
    replacing = Study.replacing

    @contextmanager
    def failing(self, name):
        with replacing(self, name) as path:
            yield path
            if name == full:
                raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(Study, "replacing", failing)
    folder = tmp_path / "study"
    with pytest.raises(StudyError, match="cannot be written: The disk is full. Finished stages"):
        triggers(llama, CorpusOptions(str(corpus)), folder, search=QUICK, checkpoint_every=0.0)
    assert not list(folder.glob("*.unfinished"))
    monkeypatch.setattr(Study, "replacing", replacing)
    assert same_bytes(triggers(llama, CorpusOptions(str(corpus)), folder, search=QUICK), whole)


def test_what_a_stopped_run_was_writing_is_removed(llama, corpus, whole, tmp_path):
    folder = tmp_path / "study"
    of_a_worker = folder / ".triggers" / "search" / "states" / "tmp1.unfinished"
    of_a_worker.mkdir(parents=True)
    for left in (folder / "triggers.parquet.unfinished", of_a_worker / "file"):
        left.write_bytes(b"half")
    study = triggers(llama, CorpusOptions(str(corpus)), folder, search=QUICK)
    assert not list(folder.rglob("*.unfinished"))
    assert same_bytes(study, whole)


@pytest.mark.parametrize("kills", [pytest.param(1, marks=pytest.mark.ray), pytest.param(3, marks=pytest.mark.slow)])
def test_killed_again_and_again_it_ends_with_the_same_bytes(kills, corpus, tokenizer, tmp_path):
    tiny.make("llama").save_pretrained(tmp_path / "model")
    tokenizer.save_pretrained(tmp_path / "model")

    def begin(out):
        options = [
            "--corpus",
            corpus,
            "--out",
            out,
            "--top",
            "5",
            "--negative",
            "--batch-tokens",
            "60",
            "--checkpoint",
            "0",
        ]
        return subprocess.Popen(
            [sys.executable, "-m", "ffscope", "triggers", tmp_path / "model", *options],
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
        )

    study, whole = tmp_path / "study", tmp_path / "whole"
    for _ in range(kills):
        process = begin(study)
        before = _done(study)
        while process.poll() is None and _done(study) < before + 2:
            time.sleep(0.002)
        process.send_signal(signal.SIGKILL)
        process.wait()
        process.stderr.close()
    for out in (study, whole):
        process = begin(out)
        assert process.wait(120) == 0, process.stderr.read()
        process.stderr.close()
    assert same_bytes(Study.open(study), Study.open(whole))


def _done(folder):
    """How many batches a study's checkpoint has; a finished study has more than any."""
    if (folder / "triggers.parquet").exists():
        return 10**9
    try:
        return checkpoint.read_note(Study.open(folder))["batches"]
    except (StudyError, TypeError):
        return 0


def test_a_finished_study_is_not_done_again(llama, corpus, whole, monkeypatch):
    monkeypatch.setattr(Search, "run_prepared", None)
    stamps = {path.name: path.stat().st_mtime_ns for path in whole.folder.iterdir()}
    triggers(llama, CorpusOptions(str(corpus)), whole.folder, search=QUICK)
    assert stamps == {path.name: path.stat().st_mtime_ns for path in whole.folder.iterdir()}


def test_nothing_is_mixed_with_another_study(llama, corpus, whole, tokenizer, tmp_path):
    stamps = {path.name: path.stat().st_mtime_ns for path in whole.folder.iterdir()}
    other = read(tiny.make("llama", seed=1), tokenizer)
    for model, reading, searching, message in (
        (other, CorpusOptions(str(corpus)), QUICK, "is a study of another model: .*with fingerprint "),
        (
            llama,
            CorpusOptions(str(corpus), max_tokens=7),
            QUICK,
            "is a study with max_tokens = 40; this run has 7.",
        ),
        (
            llama,
            CorpusOptions(str(corpus)),
            replace(QUICK, top=6),
            "is a study with top = 5; this run has 6.",
        ),
    ):
        with pytest.raises(StudyError, match=message):
            triggers(model, reading, whole.folder, search=searching)
    assert stamps == {path.name: path.stat().st_mtime_ns for path in whole.folder.iterdir()}
    (tmp_path / "mine.txt").write_text("precious")
    with pytest.raises(StudyError, match=r"is not empty and not a study \(mine.txt …\). Nothing was written"):
        triggers(llama, CorpusOptions(str(corpus)), tmp_path, search=QUICK)
    assert [path.name for path in tmp_path.iterdir()] == ["mine.txt"]
    with pytest.raises(StudyError, match="is a file"):
        triggers(llama, CorpusOptions(str(corpus)), tmp_path / "mine.txt", search=QUICK)


def test_a_search_begun_with_other_settings_is_not_resumed(llama, corpus, tmp_path, monkeypatch):
    monkeypatch.setattr("ffscope.analysis.triggers.write_tables", lambda *_: 1 / 0)
    for searching, error in ((QUICK, ZeroDivisionError), (replace(QUICK, top=6), StudyError)):
        with pytest.raises(error):
            triggers(llama, CorpusOptions(str(corpus)), tmp_path / "study", search=searching, checkpoint_every=0.0)


def test_a_checkpoint_of_another_version_is_refused_in_a_sentence(llama, corpus, tmp_path, monkeypatch):
    monkeypatch.setattr("ffscope.analysis.triggers.write_tables", lambda *_: 1 / 0)
    monkeypatch.setattr(checkpoint, "_FORMAT", 1)
    for error, message in (
        (ZeroDivisionError, "zero"),
        (StudyError, "another version of ffscope.*delete triggers.checkpoint"),
    ):
        with pytest.raises(error, match=message):
            triggers(llama, CorpusOptions(str(corpus)), tmp_path / "study", search=QUICK, checkpoint_every=0.0)
        monkeypatch.setattr(checkpoint, "_FORMAT", 2)


@pytest.mark.parametrize("tokens", [1, 37, 5000])
def test_another_batch_size_finds_the_same(tokens, llama, corpus, whole, tmp_path):
    searching = replace(QUICK, batch_tokens=tokens)
    study = triggers(llama, CorpusOptions(str(corpus)), tmp_path / "study", search=searching)
    for row, other in zip(read_rows(study), read_rows(whole), strict=True):
        assert row["coefficient"] == pytest.approx(other["coefficient"], rel=1e-4, abs=1e-6)
        assert (row["layer"], row["memory"], row["rank"]) == (other["layer"], other["memory"], other["rank"])


def test_some_layers_and_memories_alone(llama, corpus, whole, tmp_path):
    searching = replace(QUICK, layers=[0, 1], memories=[2, 3, 11])
    study = triggers(llama, CorpusOptions(str(corpus)), tmp_path / "study", search=searching)
    wanted = [row for row in read_rows(whole) if row["layer"] < 2 and row["memory"] in (2, 3, 11)]
    assert read_rows(study) == wanted
    names = [(row["layer"], row["memory"]) for row in read_rows(study, "memories.parquet")]
    assert names == [(layer, memory) for layer in (0, 1) for memory in (2, 3, 11)]


def test_the_table_of_memories(llama, corpus, whole):
    plain = Plain(llama, whole)
    assert whole.settings["picked_one_in"] == 1
    for row in read_rows(whole, "memories.parquet"):
        column = plain.coefficients[row["layer"]][:, row["memory"]]
        assert (row["seen"], row["fired"]) == (len(column), int((column > 0).sum()))
        assert row["mean"] == pytest.approx(column.mean(), rel=1e-4, abs=1e-6)
        assert row["maximum"] == pytest.approx(column.max(), rel=1e-4, abs=1e-6)
        assert len(row["histogram"]) == BINS
        moved = np.abs(np.bincount([bin_of(float(c)) for c in column], minlength=BINS) - row["histogram"]).sum()
        assert moved <= 2  # a coefficient at an edge may fall to either side by rounding
        places = zip(row["sample_sentences"], row["sample_positions"], row["sample_coefficients"], strict=True)
        for sentence, position, coefficient in places:
            assert coefficient == pytest.approx(column[plain.number[sentence, position]], rel=1e-4)
            assert coefficient > 0
        assert len(row["sample_sentences"]) == min(10, row["fired"])


def test_rarity_keeps_enough_prefixes():
    assert [rarity(prefixes) for prefixes in (1, 16_383, 16_384, 660_000, 10**8)] == [1, 1, 2, 64, 1024]


@pytest.mark.parametrize("number", [torch.nan, torch.inf, -torch.inf])
@pytest.mark.parametrize("layer", [0, 2])
def test_nan_stops_the_search(number, layer, corpus, tokenizer, tmp_path):
    plain = tiny.make("llama")
    with torch.no_grad():  # one token's embedding makes one memory's coefficient infinite, or none at all
        plain.model.layers[layer].mlp.up_proj.bias[3] = number
    model = make_memory_model(plain, tokenizer)
    with pytest.raises(
        CoefficientError,
        match=rf"Memory L{layer}.3 has the coefficient (nan|-?inf) in sentence \d+ \('.+'\)\. Expected a finite number",
    ):
        triggers(model, CorpusOptions(str(corpus)), tmp_path / "study", search=QUICK)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_low_precision_runs_and_is_recorded(dtype, corpus, tokenizer, tmp_path, monkeypatch):
    torch._C._set_mkldnn_enabled(False)
    try:
        model = read(tiny.make("llama").to(dtype), tokenizer)
        study = triggers(model, CorpusOptions(str(corpus)), tmp_path / "study", search=QUICK)
    finally:
        torch._C._set_mkldnn_enabled(True)
    assert study.manifest["model"]["dtype"] == str(dtype).removeprefix("torch.")
    assert all(row["coefficient"] == np.float32(row["coefficient"]) for row in read_rows(study))


def test_held_out_documents_are_not_searched(llama, corpus, whole, tmp_path):
    sentences = {row["sentence"]: row for row in read_rows(whole, "sentences.parquet")}
    assert {row["document"] for row in sentences.values() if row["held_out"]} == {19}
    assert not any(sentences[row["sentence"]]["held_out"] for row in read_rows(whole))
    (tmp_path / "apart.txt").write_text("Apart it is. Held out.")
    reading = CorpusOptions(str(corpus), held_out=str(tmp_path / "apart.txt"))
    study = triggers(llama, reading, tmp_path / "study", search=QUICK)
    apart = [row for row in read_rows(study, "sentences.parquet") if row["held_out"]]
    assert [row["text"] for row in apart] == ["Apart it is.", "Held out."]
    assert {row["document"] for row in apart} == {25}


def test_the_first_sentences_and_a_held_out_document(llama, corpus, tmp_path):
    study = triggers(llama, CorpusOptions(str(corpus), sentences=5), tmp_path / "study", search=QUICK)
    assert study.manifest["corpus"]["searched"]["sentences"] == 5
    assert study.manifest["corpus"]["held_out"]["documents"] == 1
    assert {row["sentence"] for row in read_rows(study)} <= set(range(5))


@pytest.mark.parametrize("together", [(1, 10), (7, 300), (1000, 10**6)])
def test_what_is_read_does_not_depend_on_how_it_is_grouped(together, llama, tmp_path, monkeypatch):
    paragraphs, characters = together
    monkeypatch.setattr("ffscope.corpus.paragraphs._GROUP_PARAGRAPHS", paragraphs)
    monkeypatch.setattr("ffscope.corpus.paragraphs._FIRST_GROUP", characters)
    rows = [
        {
            "text": f"The {'abcdefgh'[i % 8]} number {'xyzuv'[i // 8 % 5]} {'klmn'[i // 40]}. Again {'abc'[i % 3]} {'b' * i}."
        }
        for i in range(100)
    ]
    (tmp_path / "a.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    for sentences, held_out in ((10, {19}), (50, {19, 39})):
        study = triggers(
            llama,
            CorpusOptions(str(tmp_path / "a.jsonl"), sentences=sentences),
            tmp_path / f"{sentences}",
            search=QUICK,
        )
        kept = read_rows(study, "sentences.parquet")
        assert sum(not row["held_out"] for row in kept) == sentences
        assert {row["document"] for row in kept if row["held_out"]} == held_out
        assert {row["document"] for row in read_rows(study, "documents.parquet")} == {row["document"] for row in kept}


def test_duplicates_are_dropped_and_counted(llama, tmp_path):
    (tmp_path / "a.txt").write_text("Same here. Other. Same here.\nSame here.")
    for dedupe, sentences, duplicates in ((True, 2, 2), (False, 4, 0)):
        reading = CorpusOptions(str(tmp_path / "a.txt"), dedupe=dedupe)
        study = triggers(llama, reading, tmp_path / f"study {dedupe}", search=QUICK)
        corpus = study.manifest["corpus"]
        assert (corpus["sentences"], corpus["duplicates"]) == (sentences, duplicates)


@pytest.mark.parametrize("content", [b"", b" \n\n", b"\xfd\xfe\n" * 3])
def test_a_corpus_without_a_sentence(content, llama, tmp_path):
    (tmp_path / "a.txt").write_bytes(content)
    with pytest.raises(CorpusError, match="has no sentence to search: .* Expected UTF-8 text."):
        triggers(llama, CorpusOptions(str(tmp_path / "a.txt")), tmp_path / "study", search=QUICK)
    assert not (tmp_path / "study").exists()
    (tmp_path / "b.txt").write_text("Now it has one.")
    triggers(llama, CorpusOptions(str(tmp_path / "b.txt")), tmp_path / "study", search=QUICK)


def test_sentences_beyond_the_models_positions_are_cut(llama, tmp_path, caplog):
    (tmp_path / "a.txt").write_text("a" * 100)
    study = triggers(llama, CorpusOptions(str(tmp_path / "a.txt")), tmp_path / "study", search=QUICK)
    (row,) = read_rows(study, "sentences.parquet")
    assert len(row["tokens"]) == 40
    assert study.manifest["corpus"]["cut"] == 1
    assert "takes at most 40 tokens per sentence" in caplog.text


def test_models_without_text_or_tokenizer(corpus, tmp_path):
    for name in ("llama", "vit"):
        with pytest.raises(InputError, match="has no tokenizer"):
            triggers(read(tiny.make(name)), CorpusOptions(str(corpus)), tmp_path / "study")


def test_two_writers_exclude_each_other(llama, corpus, whole):
    with (
        Study.writing(whole.folder, whole.manifest["model"]),
        pytest.raises(StudyError, match="Another ffscope process is writing"),
    ):
        triggers(llama, CorpusOptions(str(corpus)), whole.folder, search=QUICK)
