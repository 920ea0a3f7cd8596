"""Reading a corpus in several processes, while the search runs: the same bytes, whatever happens on the way."""

import json
import os
import signal
import subprocess
import sys
import threading
import time

import numpy as np
import psutil
import pytest

import tiny
from ffscope import read, triggers
from ffscope.ahead import ahead
from ffscope.corpus import ingest, paragraphs, prefixes, readers
from ffscope.corpus.ingest import Ingestion, write_sentences
from ffscope.corpus.reading import Reading
from ffscope.corpus.sentences import SentenceSplitter
from ffscope.corpus.tokenizing import TextTokenizer
from ffscope.engines.local import LocalEngine
from ffscope.errors import CorpusError
from ffscope.options.corpus import CorpusOptions
from ffscope.options.search import SearchOptions
from ffscope.search import checkpoint, plan
from ffscope.search.execute import Search
from ffscope.study.folder import Study
from splitting import rows, split

FILES = ("sentences.parquet", "documents.parquet", "vocabulary.parquet")
QUICK = SearchOptions(top=5, batch_tokens=300)
WORDS = ["one", "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten"]


@pytest.fixture(scope="module")
def corpus(tmp_path_factory):
    """Documents of several lengths, some without text, with repeated sentences and lines that are not JSON."""
    generator = np.random.default_rng(0)
    file = tmp_path_factory.mktemp("corpus") / "text.jsonl"
    with file.open("w") as out:
        for number in range(130):
            texts = []
            for paragraph in range(int(generator.integers(0, 9))):
                words = generator.choice(WORDS, (int(generator.integers(1, 6)), int(generator.integers(2, 9))))
                texts.append(" ".join(f"{' '.join(sentence)} {number % 40} {paragraph}." for sentence in words))
            print(json.dumps({"text": "\n".join(texts), "title": f"Document {number}"}), file=out)
            if number % 30 == 7:
                print("not JSON", file=out)
    return file


@pytest.fixture(autouse=True)
def small_groups(monkeypatch):
    """Many groups and parts, so that a short text has several."""
    monkeypatch.setattr(paragraphs, "_FIRST_GROUP", 50)
    monkeypatch.setattr(paragraphs, "_GROUP", 700)
    monkeypatch.setattr(ingest, "_PART", 200)


def study_of(tokenizer, corpus, folder, count, **options):
    with Study.writing(folder, {"source": "none"}) as study:
        write_sentences(study, tokenizer, CorpusOptions(str(corpus), **options), readers=count)
    return study


def same(study, other):
    assert study.manifest["corpus"] == other.manifest["corpus"]
    for name in FILES:
        assert study.path(name).read_bytes() == other.path(name).read_bytes(), name
    assert sorted(path.name for path in study.folder.iterdir()) == sorted(path.name for path in other.folder.iterdir())


def reader_processes():
    children = psutil.Process().children(recursive=True)
    return [child for child in children if "reader_process" in " ".join(child.cmdline())]


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"sentences": 40},
        {"sentences": 400},
        {"dedupe": False},
        {"held_out": True},
        {"held_out": True, "sentences": 150},
    ],
)
def test_the_number_of_readers_changes_nothing(tokenizer, corpus, tmp_path, options):
    if options.get("held_out"):
        options = {**options, "held_out": str(corpus)}
    alone = study_of(tokenizer, corpus, tmp_path / "1", 1, **options)
    for count in (2, 3):
        same(alone, study_of(tokenizer, corpus, tmp_path / str(count), count, **options))
    assert not reader_processes()
    assert alone.manifest["corpus"]["sentences"] > 40


@pytest.mark.parametrize("options", [{}, {"sentences": 400}, {"sentences": 300, "held_out": True}])
@pytest.mark.parametrize("after", [1, 7, 12, 30])
def test_an_interrupted_reading_resumes_with_the_same_bytes(tokenizer, corpus, tmp_path, monkeypatch, options, after):
    if options.get("held_out"):
        options = {**options, "held_out": str(corpus)}
    texts, usual = [], SentenceSplitter.split

    def counting(self, group):
        texts.extend(group)
        return usual(self, group)

    monkeypatch.setattr(SentenceSplitter, "split", counting)
    whole = study_of(tokenizer, corpus, tmp_path / "whole", 1, **options)
    all_texts = texts.copy()
    texts.clear()
    folder = tmp_path / "study"
    calls = iter(range(10**6))
    with Study.writing(folder, {"source": "none"}) as study:
        stopped = Ingestion(
            study, tokenizer, CorpusOptions(str(corpus), **options), readers=1, stopped=lambda: next(calls) >= after
        )
        stopped.begin()
        finished = stopped.run()
    resumed = study_of(tokenizer, corpus, folder, 1, **options)
    same(resumed, whole)
    if not finished and not options:
        assert len(texts) == len(all_texts)  # nothing is split again


@pytest.mark.parametrize("options", [{}, {"sentences": 300, "dedupe": False}, {"sentences": 300, "held_out": True}])
def test_a_run_stopped_before_the_tables_are_written_reads_nothing_again(
    tokenizer, corpus, tmp_path, monkeypatch, options
):
    if options.get("held_out"):
        options = {**options, "held_out": str(corpus)}
    whole = study_of(tokenizer, corpus, tmp_path / "whole", 1, **options)
    usual = Ingestion._write_tables

    def stopping(self, seconds):
        raise MemoryError

    monkeypatch.setattr(Ingestion, "_write_tables", stopping)
    with pytest.raises(MemoryError):
        study_of(tokenizer, corpus, tmp_path / "study", 2, **options)
    monkeypatch.setattr(Ingestion, "_write_tables", usual)
    monkeypatch.setattr(paragraphs.Paragraphs, "groups", None)
    same(study_of(tokenizer, corpus, tmp_path / "study", 1, **options), whole)


def test_a_killed_reader_is_a_sentence_and_the_reading_resumes(tokenizer, corpus, tmp_path, monkeypatch):
    whole = study_of(tokenizer, corpus, tmp_path / "whole", 1)
    usual, calls = Ingestion._write_part, iter(range(10**6))

    def killing(self, **options):
        usual(self, **options)
        if next(calls) == 1:
            for process in reader_processes():
                os.kill(process.pid, signal.SIGKILL)

    monkeypatch.setattr(Ingestion, "_write_part", killing)
    with pytest.raises(CorpusError, match=r"A reader process ended unexpectedly, with exit status -9.*--readers"):
        study_of(tokenizer, corpus, tmp_path / "study", 2)
    monkeypatch.setattr(Ingestion, "_write_part", usual)
    same(study_of(tokenizer, corpus, tmp_path / "study", 2), whole)


def test_a_tokenizer_that_cannot_be_sent_is_used_here(tokenizer, corpus, tmp_path, monkeypatch, caplog):
    class Local(type(tokenizer)):
        """Neither importable elsewhere, nor the compiled tokenizer alone."""

        def __call__(self, *args, **options):
            return super().__call__(*args, **options)

    local = Local(tokenizer_object=tokenizer.backend_tokenizer, eos_token=tokenizer.eos_token)
    caplog.set_level("INFO")
    monkeypatch.setattr(readers, "_Process", None)
    study = study_of(local, corpus, tmp_path / "study", 3)
    assert "Reading in one process" in caplog.text
    monkeypatch.undo()
    assert study.manifest["corpus"]["sentences"] > 1000


def test_a_group_is_split_like_each_of_its_paragraphs(tokenizer, corpus):
    lines = [line for line in corpus.read_text().splitlines() if line[0] == "{"]
    texts = [text for line in lines for text in json.loads(line)["text"].split("\n") if text]
    texts += ["  Leading. And more.  ", " ", "日本語です。はい。 Mixed text. ", "A."]
    for longest in (1000, 5):
        together, _ = split(tokenizer, *texts, max_tokens=longest)
        assert together == [split(tokenizer, text, max_tokens=longest)[0][0] for text in texts]


def test_the_compiled_tokenizer_does_what_transformers_does(tokenizer):
    class Slower(type(tokenizer)):
        def __call__(self, *args, **options):
            return super().__call__(*args, **options)

    texts = ["One is here.  Two is there. ", "日本語です。 😀", "", f"a{tokenizer.eos_token}b"]
    slower = Slower(tokenizer_object=tokenizer.backend_tokenizer, eos_token=tokenizer.eos_token)
    compiled, general = TextTokenizer(tokenizer), TextTokenizer(slower)
    assert compiled._compiled is not None
    assert general._compiled is None
    for fast, plain in zip(compiled.tokenize(texts), general.tokenize(texts), strict=True):
        assert fast.tolist() == plain.tolist()
    for text in texts:
        (sentences,) = rows(SentenceSplitter(compiled, language="en", max_tokens=9).split([text]), 1)
        (others,) = rows(SentenceSplitter(general, language="en", max_tokens=9).split([text]), 1)
        assert sentences == others


def test_a_script_without_a_guard_can_use_readers(tokenizer, corpus, tmp_path):
    tokenizer.save_pretrained(tmp_path / "tokenizer")
    script = tmp_path / "script.py"
    script.write_text(
        "from transformers import AutoTokenizer\n"
        "from ffscope.corpus.ingest import write_sentences\n"
        "from ffscope.options.corpus import CorpusOptions\n"
        "from ffscope.study.folder import Study\n"
        f"tokenizer = AutoTokenizer.from_pretrained({str(tmp_path / 'tokenizer')!r})\n"
        f"with Study.writing({str(tmp_path / 'study')!r}, {{}}) as study:\n"
        f"    write_sentences(study, tokenizer, CorpusOptions({str(corpus)!r}), readers=2)\n"
        "print(study.manifest['corpus']['sentences'])\n"
    )
    ran = subprocess.run([sys.executable, script], capture_output=True, text=True, timeout=120)
    assert ran.stdout.strip().isdigit(), ran.stderr


# The search beside the reading


@pytest.fixture(scope="module")
def llama(tokenizer):
    return read(tiny.make("llama"), tokenizer, source="tiny")


@pytest.fixture
def early(monkeypatch):
    """The search begins after a few hundred prefixes, and counts all of them."""
    monkeypatch.setattr(prefixes, "_ROWS", 64)
    monkeypatch.setattr(plan, "_RAREST", 1)
    monkeypatch.setattr(plan, "_LONG", 500)


SEARCHED = (*FILES, "triggers.parquet", "memories.parquet")


@pytest.mark.parametrize("count", [1, 2])
def test_the_search_begins_before_the_reading_ends(llama, corpus, tmp_path, monkeypatch, early, count):
    whole = triggers(llama, CorpusOptions(str(corpus)), tmp_path / "whole", search=QUICK, readers=1)
    searched, usual_run, usual_part = threading.Event(), Search.run_prepared, Ingestion._write_part
    unfinished = []

    def searching(self, batch):
        unfinished.append((tmp_path / "study" / "sentences.parquet").exists())
        searched.set()
        usual_run(self, batch)

    def reading(self, *, last=False):
        if last:
            assert searched.wait(60)
        usual_part(self, last=last)

    monkeypatch.setattr(Search, "run_prepared", searching)
    monkeypatch.setattr(Ingestion, "_write_part", reading)
    updates = []
    study = triggers(
        llama, CorpusOptions(str(corpus)), tmp_path / "study", search=QUICK, readers=count, progress=updates.append
    )
    assert unfinished[0] is False
    for name in SEARCHED:
        assert study.path(name).read_bytes() == whole.path(name).read_bytes(), name
    stages = [update.stage for update in updates]
    assert stages.index("searching") < len(stages) - 1 - stages[::-1].index("reading")  # both at the same time
    assert study.manifest["stages"]["triggers"]["sentences"] == whole.manifest["stages"]["triggers"]["sentences"]


def begin_at_once(monkeypatch, *, after_batches=lambda: None):
    """Let the search begin with the first part, as on a GPU, and the reading end after three batches. Returns their rarities."""
    rarities, enough = [], threading.Event()
    usual_run, usual_part = Search.run_prepared, Ingestion._write_part

    def searching(self, batch):
        usual_run(self, batch)
        rarities.append(self.rarity)
        if len(rarities) == 3:
            after_batches()
            enough.set()

    def reading(self, *, last=False):
        assert not last or enough.wait(60)
        usual_part(self, last=last)

    monkeypatch.setattr(LocalEngine, "waits_for_text", False)
    monkeypatch.setattr(Search, "run_prepared", searching)
    monkeypatch.setattr(Ingestion, "_write_part", reading)
    return rarities


@pytest.fixture(params=[4, 256], ids=["long text", "short text"])
def rarest(request, monkeypatch):
    """One prefix in this many is counted in a long text; this text is long for 4, and short for 256."""
    monkeypatch.setattr(prefixes, "_ROWS", 64)
    monkeypatch.setattr(plan, "_RAREST", request.param)
    monkeypatch.setattr(plan, "_ENOUGH_PICKED", 500)
    monkeypatch.setattr(plan, "_LONG", request.param * 500)
    return request.param


@pytest.mark.parametrize("count", [1, 2])
def test_a_search_that_assumed_more_text_restarts(llama, corpus, tmp_path, monkeypatch, rarest, count):
    whole = triggers(llama, CorpusOptions(str(corpus)), tmp_path / "whole", search=QUICK, readers=1)
    rarities = begin_at_once(monkeypatch)
    study = triggers(llama, CorpusOptions(str(corpus)), tmp_path / "study", search=QUICK, readers=count)
    for name in SEARCHED:
        assert study.path(name).read_bytes() == whole.path(name).read_bytes(), name
    settings = study.settings
    assert settings == whole.settings
    assert (rarities[0], rarities[-1]) == (rarest, settings["picked_one_in"])
    assert (rarities[0] == rarities[-1]) == (rarest == 4)


def test_ctrl_c_before_the_plan_is_certain_leaves_no_checkpoint(llama, corpus, tmp_path, monkeypatch, rarest):
    whole = triggers(llama, CorpusOptions(str(corpus)), tmp_path / "whole", search=QUICK, readers=1)
    folder = tmp_path / "study"
    with monkeypatch.context() as patch:
        patch.setattr(plan, "_LONG", 10**9)
        begin_at_once(patch, after_batches=lambda: signal.raise_signal(signal.SIGINT))
        with pytest.raises(KeyboardInterrupt):
            triggers(llama, CorpusOptions(str(corpus)), folder, search=QUICK, readers=1)
    assert checkpoint.read_note(Study(folder, {})) is None
    study = triggers(llama, CorpusOptions(str(corpus)), folder, search=QUICK, readers=1)
    for name in SEARCHED:
        assert study.path(name).read_bytes() == whole.path(name).read_bytes(), name


def test_both_resume_after_ctrl_c(llama, corpus, tmp_path, monkeypatch, early):
    whole = triggers(llama, CorpusOptions(str(corpus)), tmp_path / "whole", search=QUICK, readers=1)
    usual_run, usual_part, calls = Search.run_prepared, Ingestion._write_part, iter(range(10**6))
    folder = tmp_path / "study"

    def interrupted(self, batch):
        usual_run(self, batch)
        if next(calls) == 3:
            while len(list((folder / ".sentences").glob("*.arrow"))) < 4:
                time.sleep(0.01)
            signal.raise_signal(signal.SIGINT)

    def slowly(self, *, last=False):
        while self.parts.count == 4 and not self._stopped():
            time.sleep(0.01)
        usual_part(self, last=last)

    monkeypatch.setattr(Search, "run_prepared", interrupted)
    monkeypatch.setattr(Ingestion, "_write_part", slowly)
    with pytest.raises(KeyboardInterrupt):
        triggers(llama, CorpusOptions(str(corpus)), folder, search=QUICK, readers=2)
    assert not (folder / "sentences.parquet").exists()
    assert len(list((folder / ".sentences").glob("*.arrow"))) >= 4
    assert checkpoint.read_note(Study(folder, {}))["batches"] == 4
    assert not reader_processes()
    monkeypatch.setattr(Search, "run_prepared", usual_run)
    monkeypatch.setattr(Ingestion, "_write_part", usual_part)
    study = triggers(llama, CorpusOptions(str(corpus)), folder, search=QUICK, readers=1)
    for name in SEARCHED:
        assert study.path(name).read_bytes() == whole.path(name).read_bytes(), name
    assert not (folder / ".sentences").exists()


def test_a_search_of_a_text_that_is_read_anew_begins_anew(llama, corpus, tmp_path, monkeypatch, early):
    test_folder = tmp_path / "study"
    usual_run, calls = Search.run_prepared, iter(range(10**6))
    usual_part = Ingestion._write_part

    def failing(self, batch):
        usual_run(self, batch)
        if next(calls) == 2:
            raise MemoryError

    def slowly(self, *, last=False):
        while self.parts.count == 4 and not self._stopped():
            time.sleep(0.01)
        usual_part(self, last=last)

    monkeypatch.setattr(Search, "run_prepared", failing)
    monkeypatch.setattr(Ingestion, "_write_part", slowly)
    with pytest.raises(MemoryError):
        triggers(llama, CorpusOptions(str(corpus)), test_folder, search=QUICK, readers=1, checkpoint_every=0.0)
    monkeypatch.setattr(Search, "run_prepared", usual_run)
    monkeypatch.setattr(Ingestion, "_write_part", usual_part)
    assert checkpoint.read_note(Study(test_folder, {}))["corpus"] is None
    other = CorpusOptions(str(corpus), max_tokens=6)
    study = triggers(llama, other, test_folder, search=QUICK, readers=1)
    whole = triggers(llama, other, tmp_path / "whole", search=QUICK, readers=1)
    for name in SEARCHED:
        assert study.path(name).read_bytes() == whole.path(name).read_bytes(), name


def test_an_error_of_the_reading_ends_the_search(llama, tmp_path, early):
    file = tmp_path / "text.jsonl"
    file.write_text("\n")
    with pytest.raises(CorpusError, match="has no sentence to search"):
        triggers(llama, CorpusOptions(str(file)), tmp_path / "study", search=QUICK)
    assert not (tmp_path / "study").exists()


def test_waiting_for_text_reports_progress(tokenizer, corpus, tmp_path):
    updates = []
    with (
        Study.writing(tmp_path / "study", {"source": "none"}) as study,
        Reading.of(study, tokenizer, CorpusOptions(str(corpus)), readers=1, progress=updates.append) as reading,
    ):
        assert {update.stage for update in updates} <= {"reading"}
        reading.wait()
        assert reading.searched == study.manifest["corpus"]["searched"]
    assert updates[-1].done == updates[-1].total


# Elements ahead


def test_elements_ahead_are_the_same_in_order():
    assert list(ahead(range(100), 3)) == list(range(100))
    assert list(ahead([], 1)) == []


def test_an_error_ahead_is_raised_where_the_elements_are_used():
    def failing():
        yield 1
        raise ValueError("no more")

    elements = ahead(failing(), 2)
    assert next(elements) == 1
    with pytest.raises(ValueError, match="no more"):
        next(elements)


def test_no_more_than_the_count_is_prepared_and_closing_stops_it():
    prepared = []

    def counting():
        for number in range(1000):
            prepared.append(number)
            yield number

    elements = ahead(counting(), 2)
    next(elements)
    time.sleep(0.3)
    assert len(prepared) <= 4
    elements.close()
    time.sleep(0.3)
    assert len(prepared) <= 5
    assert not [thread for thread in threading.enumerate() if thread.name == "ahead"]
