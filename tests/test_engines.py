"""The Ray engine without Ray: the same bytes as the local engine, whatever is lost, interrupted or fails."""

import shutil

import fsspec
import numpy as np
import pytest
import torch
from fsspec.implementations.memory import MemoryFileSystem

import studies
import tiny
from ffscope import read
from ffscope.corpus import prefixes
from ffscope.corpus.reading import Reading
from ffscope.engines.local import LocalEngine
from ffscope.engines.ray.engine import RayEngine
from ffscope.engines.ray.search import SearchShard
from ffscope.engines.ray.storage import Storage, check_storage
from ffscope.engines.ray.tree import FAN, Node, Tree
from ffscope.errors import EngineError, StudyError
from ffscope.options.corpus import CorpusOptions
from ffscope.options.search import SearchOptions
from ffscope.pipeline import run, triggers
from ffscope.search import plan
from ffscope.search.execute import execute
from ffscope.search.merge import merge
from in_process_pool import InProcessPool
from studies import undrawn, write_corpus

QUICK = SearchOptions(top=6, batch_tokens=64)
SMALL = {**studies.SMALL, "encoder": "model"}
SEARCHED = ("triggers.parquet", "memories.parquet")


@pytest.fixture(autouse=True)
def small_shards(monkeypatch):
    monkeypatch.setattr(plan, "_SHARD", 2)


@pytest.fixture(scope="module")
def corpus(tmp_path_factory):
    return CorpusOptions(str(write_corpus(tmp_path_factory.mktemp("corpus") / "text.jsonl")))


@pytest.fixture(scope="module")
def llama(tokenizer):
    return read(tiny.make("llama"), tokenizer, source="tiny")


def same_tables(study, other, names=None):
    files = names or sorted(path.name for path in other.folder.glob("*.parquet"))
    for name in files:
        assert study.path(name).read_bytes() == other.path(name).read_bytes(), name


@pytest.mark.parametrize("name", tiny.sweep(name for name in tiny.TABLE if name != "vit"))
def test_every_table_is_that_of_the_local_engine(name, tokenizer, corpus, tmp_path):
    model = read(tiny.make(name), tokenizer, source="tiny")
    with undrawn():
        local = run(model, corpus, tmp_path / "local", search=QUICK, **SMALL)
        pool = InProcessPool(model, seed=3, lost=0.2)
        study = run(RayEngine(pool, "tiny"), corpus, tmp_path / "ray", search=QUICK, **SMALL)
    same_tables(study, local)
    assert study.path("summary.json").read_bytes() == local.path("summary.json").read_bytes()
    assert pool.retries > 5
    assert not [path.name for path in study.folder.iterdir() if path.name.startswith(".") and path.name != ".lock"]


def test_a_batch_of_sentences_without_content_words(llama, tmp_path):
    text = "A quick brown fox jumps. The lazy dog sleeps, it seems. Who saw the fox? Few did! "
    (tmp_path / "text.txt").write_text("\n\n".join([text] * 40))
    with undrawn():
        study = run(llama, CorpusOptions(str(tmp_path / "text.txt")), tmp_path / "study", **SMALL)
    assert study.has("patterns")


@pytest.mark.parametrize("seed", range(12))
def test_a_search_that_is_interrupted_again_and_again_ends_equal(seed, llama, corpus, tmp_path, whole):
    generator = np.random.default_rng(seed)
    storage = [None, "memory://ffscope/test", f"file://{tmp_path}/storage"][seed % 3]
    runs, calls = 0, 0
    while True:
        interrupts = int(generator.integers(1, 40)) if runs < 8 else None
        pool = InProcessPool(llama, seed=seed + 100 * runs, lost=0.3, interrupts=interrupts, storage=storage)
        runs += 1
        try:
            study = triggers(RayEngine(pool, "tiny"), corpus, tmp_path / "study", search=QUICK)
            break
        except KeyboardInterrupt:
            calls += pool.calls
            assert (tmp_path / "study" / "triggers.shards").is_file()
    same_tables(study, whole, SEARCHED)
    assert not (tmp_path / "study" / "triggers.shards").exists()
    assert not fsspec.filesystem("memory").glob("/ffscope/test/*")
    assert not list(tmp_path.glob("storage/*"))


@pytest.fixture(scope="module")
def whole(llama, corpus, tmp_path_factory):
    return triggers(llama, corpus, tmp_path_factory.mktemp("whole") / "study", search=QUICK)


def test_finished_shards_are_not_searched_again(llama, corpus, tmp_path, whole, monkeypatch):
    searched = []
    usual = plan.Plan.search
    monkeypatch.setattr(plan.Plan, "search", lambda self, model: searched.append(1) or usual(self, model))
    with pytest.raises(KeyboardInterrupt):
        triggers(RayEngine(InProcessPool(llama, interrupts=12), "tiny"), corpus, tmp_path / "study", search=QUICK)
    before = len(searched)
    study = triggers(RayEngine(InProcessPool(llama), "tiny"), corpus, tmp_path / "study", search=QUICK)
    same_tables(study, whole, SEARCHED)
    reading = Reading(study)
    assert before > 3
    assert len(searched) == len(list(plan.shards(plan.make_plan(LocalEngine(llama), QUICK, reading), reading)))


def test_a_shard_that_a_worker_searches_twice_counts_once(llama, corpus, tmp_path, whole):
    """As after a failure of the storage: what it has found bounds what the next shards keep, and must not be counted double."""
    reading = Reading(whole)
    search_plan = plan.make_plan(LocalEngine(llama), QUICK, reading)
    job = SearchShard(Storage(str(tmp_path)), search_plan)
    states = []
    for shard in plan.shards(search_plan, reading):
        for _ in range(3):
            state = job.compute(llama, (shard.number, list(shard.batches)))[1]()
        states.append(state)
    expected = execute(search_plan.search(llama), plan.batches_of(search_plan, reading))
    merged = merge(states)
    assert len(states) > 5
    assert all(torch.equal(merged[name], tensor) for name, tensor in expected.items())


@pytest.mark.parametrize("rarest", [4, 256], ids=["long text", "short text"])
def test_a_search_that_assumed_more_text_restarts(llama, corpus, tmp_path, monkeypatch, rarest):
    """As with GPUs, whose search begins with the first text."""
    monkeypatch.setattr(prefixes, "_ROWS", 64)
    monkeypatch.setattr(plan, "_RAREST", rarest)
    monkeypatch.setattr(plan, "_ENOUGH_PICKED", 500)
    monkeypatch.setattr(plan, "_LONG", rarest * 500)
    whole = triggers(llama, corpus, tmp_path / "whole", search=QUICK)
    monkeypatch.setattr(RayEngine, "waits_for_text", False)
    study = triggers(RayEngine(InProcessPool(llama, lost=0.2), "tiny"), corpus, tmp_path / "study", search=QUICK)
    same_tables(study, whole, SEARCHED)
    assert study.settings == whole.settings


def test_an_uncertain_search_is_discarded(llama, corpus, tmp_path, whole):
    with pytest.raises(KeyboardInterrupt):
        triggers(RayEngine(InProcessPool(llama, interrupts=12), "tiny"), corpus, tmp_path / "study", search=QUICK)
    note = tmp_path / "study" / "triggers.shards"
    note.write_text(note.read_text().replace('"certain": true', '"certain": false'))
    study = triggers(RayEngine(InProcessPool(llama), "tiny"), corpus, tmp_path / "study", search=QUICK)
    same_tables(study, whole, SEARCHED)


def test_a_certain_search_stays_certain(llama, corpus, tmp_path, monkeypatch):
    """Also if the next run is interrupted before it has read as much of the text again."""
    folder = tmp_path / "study"
    with pytest.raises(KeyboardInterrupt):
        triggers(RayEngine(InProcessPool(llama, interrupts=12), "tiny"), corpus, folder, search=QUICK)
    monkeypatch.setattr(plan.Plan, "is_certain", lambda self, reading: False)
    with pytest.raises(KeyboardInterrupt):
        triggers(RayEngine(InProcessPool(llama, interrupts=3), "tiny"), corpus, folder, search=QUICK)
    assert '"certain": true' in (folder / "triggers.shards").read_text()


def test_engines_do_not_resume_each_others_searches(llama, corpus, tmp_path):
    with pytest.raises(KeyboardInterrupt):
        triggers(RayEngine(InProcessPool(llama, interrupts=12), "tiny"), corpus, tmp_path / "study", search=QUICK)
    with pytest.raises(StudyError, match="unfinished search of --engine ray. Resume it with that engine, or delete"):
        triggers(llama, corpus, tmp_path / "study", search=QUICK)
    (tmp_path / "study" / "triggers.shards").unlink()
    shutil.rmtree(tmp_path / "study" / ".triggers")
    triggers(llama, corpus, tmp_path / "study", search=QUICK)


def test_a_note_of_another_version_is_refused(llama, corpus, tmp_path):
    with pytest.raises(KeyboardInterrupt):
        triggers(RayEngine(InProcessPool(llama, interrupts=12), "tiny"), corpus, tmp_path / "study", search=QUICK)
    (tmp_path / "study" / "triggers.shards").write_text('{"format": 99}')
    with pytest.raises(StudyError, match="was written by another version of ffscope"):
        triggers(RayEngine(InProcessPool(llama), "tiny"), corpus, tmp_path / "study", search=QUICK)


class Flaky(MemoryFileSystem):
    """A file system of which every third call fails."""

    protocol, calls = "flaky", 0

    def _fail(self):
        Flaky.calls += 1
        if Flaky.calls % 3 == 0:
            raise ConnectionError("the network is down")

    def cat_file(self, *args, **options):
        self._fail()
        return super().cat_file(*args, **options)

    def pipe_file(self, *args, **options):
        self._fail()
        return super().pipe_file(*args, **options)

    def get_file(self, *args, **options):
        self._fail()
        return super().get_file(*args, **options)

    def put_file(self, *args, **options):
        self._fail()
        return super().put_file(*args, **options)

    def ls(self, *args, **options):
        self._fail()
        return super().ls(*args, **options)

    def exists(self, *args, **options):
        self._fail()
        return super().exists(*args, **options)


@pytest.fixture
def flaky(monkeypatch):
    monkeypatch.setattr("ffscope.engines.ray.storage._FIRST_PAUSE", 0.0)
    fsspec.register_implementation("flaky", Flaky, clobber=True)
    return "flaky://somewhere"


def test_storage_that_fails_now_and_then(llama, corpus, tmp_path, whole, flaky):
    pool = InProcessPool(llama, lost=0.1, storage=flaky)
    study = triggers(RayEngine(pool, "tiny"), corpus, tmp_path / "study", search=QUICK)
    same_tables(study, whole, SEARCHED)
    assert Flaky.calls > 50
    check_storage(flaky)


def test_storage_that_always_fails_is_named(flaky, monkeypatch):
    monkeypatch.setattr(Flaky, "_fail", lambda self: (_ for _ in ()).throw(ConnectionError("the network is down")))
    with pytest.raises(OSError, match="The storage flaky://somewhere failed 6 times to read a: the network is down"):
        Storage(flaky).read("a")
    with pytest.raises(
        EngineError, match="The storage flaky://somewhere cannot be used: the network is down. Expected"
    ):
        check_storage(flaky)


@pytest.mark.parametrize("kind", ["memory", "file", "path"])
def test_storage(kind, tmp_path):
    url = {"memory": "memory://a/b", "file": f"file://{tmp_path}/s", "path": f"{tmp_path}/s"}[kind]
    storage = Storage(url).folder("c")
    assert storage.names("x") == set()
    assert not storage.has("x/1")
    with pytest.raises(FileNotFoundError):
        storage.read("x/1")
    storage.write("x/1", b"one")
    storage.write("x/1", b"two")
    assert storage.read("x/1") == b"two"
    assert storage.names("x") == {"1"}
    assert storage.has("x/1")
    with storage.writing("x/1") as path:
        path.write_bytes(b"three")
        assert storage.read("x/1") == b"two"
    with storage.reading("x/1") as path:
        assert path.read_bytes() == b"three"
    with pytest.raises(KeyboardInterrupt), storage.writing("x/4") as path:
        path.write_bytes(b"four")
        assert storage.names("x") == {"1"}
        raise KeyboardInterrupt
    assert storage.names("x") == {"1"}
    storage.delete("x/1", "x/2")
    assert not storage.has("x/1")
    storage.write("x/3", b"")
    storage.drop()
    assert storage.names("x") == set()


def test_storage_that_cannot_be_used(tmp_path):
    (tmp_path / "file").write_text("")
    for url, reason in {
        str(tmp_path / "file" / "folder"): "Not a directory",
        "nothing://somewhere": "Protocol not known: nothing",
        "s3://bucket/folder": "s3fs",
    }.items():
        with pytest.raises(EngineError, match=f"The storage .* cannot be used: .*{reason}"):
            check_storage(url)


@pytest.mark.parametrize("seed", range(20))
def test_the_tree_ends_with_every_shard_once(seed):
    """In any order, with interruptions after which only the files are known."""
    generator = np.random.default_rng(seed)
    count = int(generator.integers(1, 700))
    waiting, files, most = [Node(0, number) for number in generator.permutation(count).tolist()], set(), 0
    tree = Tree()
    while waiting:
        node = waiting.pop(int(generator.integers(len(waiting))))
        files -= set(node.children) if node.level else set()
        files.add(node)
        following = tree.add(node)
        waiting += [] if following is None else [following]
        most = max(most, len(files))
        if generator.random() < 0.01:
            stale = {
                child for parent in files if parent.level and generator.random() < 0.2 for child in parent.children
            }
            tree = Tree(files | stale)
            assert set(tree.superseded) == stale - files
            merges = list(tree.complete())
            waiting = [node for node in waiting if not node.level] + merges
    covered = sorted(
        number
        for node in tree.nodes
        for number in range(node.number * FAN**node.level, (node.number + 1) * FAN**node.level)
    )
    assert covered == list(range(count))
    assert all(tree.has(number) for number in range(count))
    assert not tree.has(count)
    assert len(tree.nodes) < FAN * 4


def test_products_do_not_depend_on_the_number_of_threads():
    """With MKL, for one thread and two; products of fewer than four rows may still differ with three."""
    if not torch.backends.mkl.is_available():
        pytest.skip("needs torch with MKL")
    generator = torch.Generator().manual_seed(0)
    threads = torch.get_num_threads()
    try:
        for rows in (1, 5, 7, 9, 11, 31, 257, 1031):
            states, keys = torch.randn(rows, 256, generator=generator), torch.randn(1024, 256, generator=generator)
            products = []
            for count in (1, 2):
                torch.set_num_threads(count)
                products.append(torch.nn.functional.linear(states, keys))
            assert all(torch.equal(product, products[0]) for product in products)
    finally:
        torch.set_num_threads(threads)
