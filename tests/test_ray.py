"""The engine on Ray itself: several workers, lost ones, and what is said when something is wrong."""

import os
import shutil
import sys
import threading
from contextlib import contextmanager
from pathlib import Path

import psutil
import pytest

import studies
from command_line import ffscope
from ffscope import start_engine
from ffscope.engines.ray import cluster, pool
from ffscope.errors import EngineError, InputError
from ffscope.options.corpus import CorpusOptions
from ffscope.options.engine import EngineOptions
from ffscope.options.model import LoadOptions
from ffscope.options.search import SearchOptions
from ffscope.pipeline import analyse, run, triggers
from ray_commands import save_models
from ray_jobs import DieOnce, describe, double, fail
from studies import undrawn, write_corpus

ray = pytest.importorskip("ray")
pytestmark = pytest.mark.ray

KINDS = ("llama", "qwen3_moe", "bert", "t5")
QUICK = SearchOptions(top=6, batch_tokens=64)
SMALL = {**studies.SMALL, "encoder": "model"}


@pytest.fixture(scope="module")
def models(tokenizer, tmp_path_factory):
    """Folders with a tiny model of each kind, which workers load."""
    return save_models(tokenizer, tmp_path_factory.mktemp("models"), KINDS)


@pytest.fixture(scope="module")
def corpus(tmp_path_factory):
    return CorpusOptions(str(write_corpus(tmp_path_factory.mktemp("corpus") / "text.jsonl", documents=200)))


@pytest.fixture(scope="module")
def on_ray(tmp_path_factory):
    """A Ray of four cores and four GPUs that are not there, for all tests of this module."""
    tests = str(Path(__file__).parent)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PYTHONPATH", os.pathsep.join([tests, *filter(None, [os.environ.get("PYTHONPATH")])]))
        arguments = {**cluster._own(EngineOptions(workers=4)), **cluster._quiet(), "num_gpus": 4}
        ray.init(**arguments)
        yield
        ray.shutdown()


@contextmanager
def engine(source, **options):
    device = options.pop("device", "cpu")
    with start_engine(str(source), EngineOptions(engine="ray", **options), device=device) as running:
        while source and running._pool.started < running._pool.cluster.workers:  # so that all of them take part
            running._pool.step(0.1)
        yield running


def same_tables(study, other):
    for path in other.folder.glob("*.parquet"):
        assert study.path(path.name).read_bytes() == path.read_bytes(), path.name


@pytest.fixture(scope="module")
def local(models, corpus, tmp_path_factory):
    """The local engine's search of each kind."""
    from ffscope import load

    folder = tmp_path_factory.mktemp("local")
    return {name: triggers(load(str(models / name)), corpus, folder / name, search=QUICK) for name in KINDS}


@pytest.mark.parametrize("workers", [1, 2, 3])
@pytest.mark.parametrize("name", KINDS)
def test_the_search_is_the_local_one(name, workers, on_ray, models, corpus, local, tmp_path):
    updates = []
    with engine(models / name, workers=workers) as running:
        study = triggers(running, corpus, tmp_path / "study", search=QUICK, progress=updates.append)
    same_tables(study, local[name])
    last = [update for update in updates if update.stage == "searching"][-1]
    assert last.done == last.total
    assert last.rate > 0
    assert last.left == 0
    assert last.detail.endswith(f"{workers} workers" if workers > 1 else "1 worker")


def test_a_whole_run_is_the_local_one_though_workers_are_killed(on_ray, models, corpus, tmp_path):
    from ffscope import load

    killed = []

    def kill_now_and_then(update):
        if update.stage in ("searching", "values", "mutation") and update.stage not in killed and update.done:
            killed.append(update.stage)
            worker_processes()[0].kill()

    with undrawn():
        local = run(load(str(models / "llama")), corpus, tmp_path / "local", search=QUICK, **SMALL)
        with engine(models / "llama", workers=2) as running:
            study = run(running, corpus, tmp_path / "study", search=QUICK, progress=kill_now_and_then, **SMALL)
    same_tables(study, local)
    assert killed == ["searching", "values", "mutation"]
    assert study.path("summary.json").read_bytes() == local.path("summary.json").read_bytes()


def test_pruning_is_the_local_one(on_ray, models, local, tmp_path):
    from ffscope import load

    options = {"shares": "0.2,0.5", "random_seeds": 2, "prune_prefixes": 100, "prune_sentences": 30}
    studies = [shutil.copytree(local["llama"].folder, tmp_path / name) for name in ("local", "ray")]
    alone = analyse("prune", load(str(models / "llama")), studies[0], **options)
    with engine(models / "llama", workers=2) as running:
        same_tables(analyse("prune", running, studies[1], **options), alone)


def test_leaks_are_the_local_ones(on_ray, models, local, tmp_path):
    from ffscope import load

    options = {"leak_tokens": 2, "leaks_measured": 3, "leak_memories": 4, "leak_prefixes": 100}
    studies = [shutil.copytree(local["llama"].folder, tmp_path / name) for name in ("local", "ray")]
    alone = analyse("leaks", load(str(models / "llama")), studies[0], **options)
    with engine(models / "llama", workers=2) as running:
        same_tables(analyse("leaks", running, studies[1], **options), alone)


def worker_processes():
    """The processes of the workers of this process's cluster."""
    children = psutil.Process().children(recursive=True)
    return [child for child in children if "ray::Worker" in " ".join(child.cmdline())]


def test_a_shard_whose_worker_dies_runs_again(on_ray, models, tmp_path, caplog):
    with engine(models / "llama", workers=2) as running:
        results = dict(running.map("doubling", DieOnce(tmp_path, {2, 5}), ((number, number) for number in range(8))))
        assert results == {number: 2 * number for number in range(8)}
        assert running.detail().endswith("2 workers, 2 retried")
    assert caplog.text.count("A worker on") == 2


def test_a_shard_that_fails_three_times_is_named_and_the_engine_goes_on(on_ray, models, tmp_path):
    with engine(models / "llama", workers=2) as running:
        numbers = [(number, number) for number in range(6)]
        expected = r"Shard 3 of failing failed 3 times, the last time because MemoryError: CUDA out of memory: tried to allocate"
        with pytest.raises(EngineError, match=expected):
            list(running.map("failing", fail, numbers))
        always = DieOnce(tmp_path, {1}, times=9)
        with pytest.raises(
            EngineError, match=r"Shard 1 of dying failed 3 times, .* its worker on .* was lost: .*to resume"
        ):
            list(running.map("dying", always, numbers))
        # What these left behind is not taken for results of the next one.
        assert dict(running.map("doubling", double, numbers)) == {number: 2 * number for number in range(6)}


def test_what_cannot_be_sent_is_named(on_ray, models):
    with engine(models / "llama", workers=1) as running:
        lock = threading.Lock()
        job = running.map("odd", lambda model, value: lock, [(0, 0)])
        with pytest.raises(EngineError, match="A stage cannot be sent to the workers: .*must be picklable"):
            next(job)


def test_workers_have_their_own_gpus(on_ray, models):
    """Of four GPUs, which are declared and not there: two workers with two each."""
    with engine(models / "llama", device="auto", gpus_per_worker=2) as running:
        assert running._pool.cluster.workers == 2
        places = {place for _, place in running.map("describing", describe, [(n, n) for n in range(8)])}
    assert {gpus for _, gpus in places} == {"0,1", "2,3"}
    assert running._pool.cluster.threads == 2  # of four cores


def test_a_model_is_spread_over_the_gpus_of_its_worker(on_ray, models):
    """The map is that of transformers; without GPUs everything lies in main memory."""
    with start_engine(
        str(models / "llama"), EngineOptions(engine="ray", gpus_per_worker=4), device_map="auto"
    ) as running:
        assert running._pool.cluster.workers == 1
        ((_, (_, gpus)),) = running.map("describing", describe, [(0, 0)])
        assert gpus == "0,1,2,3"
        assert running.info.device.type == "cpu"
    with pytest.raises(InputError, match="Say how many these are: --gpus-per-worker 4"):
        engine_with(EngineOptions(engine="ray"), device_map="auto")
    with pytest.raises(InputError, match="each worker has GPUs of its own, so --device cuda:1 cannot be used"):
        engine_with(EngineOptions(engine="ray"), device="cuda:1")
    with pytest.raises(InputError, match="--device cpu and --gpus-per-worker exclude each other"):
        engine_with(EngineOptions(engine="ray", gpus_per_worker=1), device="cpu")


def engine_with(options, **load):
    with start_engine(None, options, **load):
        pass


def test_other_versions_on_a_worker_are_named(on_ray, models, monkeypatch):
    monkeypatch.setattr(pool, "versions", lambda: {**cluster_versions(), "torch": "1.0"})
    expected = r"has torch .*; here it is 1\.0\. Install the same versions on all machines"
    with pytest.raises(EngineError, match=expected), engine(models / "llama", workers=1):
        pass


def cluster_versions():
    from ffscope.study.folder import versions

    return versions()


def test_builds_of_one_version_are_equal():
    pool.check_versions("there", {name: f"{version}+cu130" for name, version in cluster_versions().items()})


def test_a_model_that_a_worker_does_not_have_is_named(on_ray, tmp_path):
    from ffscope.errors import SourceError

    with pytest.raises(SourceError, match="A worker on .* cannot start: "), engine(tmp_path / "nothing", workers=1):
        pass


def test_storage_that_cannot_be_used_is_named_first(tmp_path):
    (tmp_path / "file").touch()
    words = ["triggers", "no-model", "--corpus", __file__, "--out", tmp_path / "study", "--engine", "ray"]
    result = ffscope(*words, "--storage", tmp_path / "file" / "folder")
    assert result.returncode == 2
    assert "cannot be used: " in plain(result)
    assert not (tmp_path / "study").exists()


def test_storage_that_workers_do_not_see_is_named(on_ray, models, corpus, tmp_path):
    with (
        engine(models / "llama", workers=1, storage="memory://here") as running,
        pytest.raises(EngineError, match="does not see the files that the driver wrote to memory://here/.* --storage"),
    ):
        triggers(running, corpus, tmp_path / "study", search=QUICK)


def test_ray_that_is_not_installed(monkeypatch):
    monkeypatch.setitem(sys.modules, "ray", None)
    result = ffscope("triggers", "model", "--corpus", __file__, "--out", "nothing", "--engine", "ray")
    assert result.returncode == 2
    assert "need the package ray, which is not installed. Install it: python -m pip install 'ffscope[ray]'" in plain(
        result
    )


def plain(result):
    return " ".join(result.stderr.split())


@pytest.mark.parametrize(
    ("address", "reason"),
    [
        ("127.0.0.1:9", "Connection refused"),
        ("nowhere", "expected HOST:PORT"),
        ("ray://127.0.0.1:10001", "expected HOST:PORT"),
    ],
)
def test_an_address_without_a_cluster(address, reason):
    with pytest.raises(
        EngineError, match=f"There is no Ray cluster at {address}: .*{reason}.*Start one with `ray start --head`"
    ):
        cluster_at(address)


def cluster_at(address):
    assert ray is not None
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(ray, "is_initialized", lambda: False)
        with cluster.connected(LoadOptions(), EngineOptions(engine="ray", ray_address=address)):
            pass


def test_devices_choose_the_engine_and_need_a_gpu(monkeypatch):
    with pytest.raises(
        InputError, match="--cores-per-worker needs workers: add --engine ray, or --devices all for GPUs"
    ):
        EngineOptions(cores_per_worker=2).resolved()
    assert EngineOptions(ray_address="10.0.0.1:6379").resolved().engine == "local"  # which the environment may name
    options = EngineOptions(devices="all").resolved()
    assert (options.engine, options.gpus_per_worker) == ("ray", 1)
    with pytest.raises(InputError, match="--devices are those of this machine"):
        EngineOptions(engine="ray", devices="all", ray_address="10.0.0.1:6379").resolved()
    with pytest.raises(InputError, match="torch sees none on this machine"):
        cluster._choose_gpus("all")
    monkeypatch.setattr("torch.cuda.device_count", lambda: 4)
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "4,5,6,7")
    cluster._choose_gpus("all")
    assert os.environ["CUDA_VISIBLE_DEVICES"] == "4,5,6,7"
    cluster._choose_gpus("0,2")
    assert os.environ["CUDA_VISIBLE_DEVICES"] == "4,6"
    for wrong in ("4", "one", "0,,1", "-1"):
        with pytest.raises(InputError, match="Expected all, or numbers from 0 to 3, such as 0,2"):
            cluster._choose_gpus(wrong)
