"""Studies on Ray that are interrupted, killed, and lose workers and nodes: all end as the local engine's."""

import os
import random
import signal
import socket
import subprocess
import sys
import time
from contextlib import contextmanager

import pytest

from command_line import ffscope
from ffscope.cli.status import print_status
from ffscope.study.status import read_status
from ray_commands import MARK, command, kill, marked, save_models, states, wait_for, workers
from studies import write_corpus

pytest.importorskip("ray")
pytestmark = pytest.mark.ray


@pytest.fixture(scope="module")
def model(tokenizer, tmp_path_factory):
    return save_models(tokenizer, tmp_path_factory.mktemp("models"), ["llama"]) / "llama"


@pytest.fixture(scope="module")
def corpus(tmp_path_factory):
    return write_corpus(tmp_path_factory.mktemp("corpus") / "text.jsonl", documents=1500)


@pytest.fixture(scope="module")
def words(model, corpus):
    """The command of a search, without the folder and the engine."""
    return f"triggers {model} --corpus {corpus} --top 6 --batch-tokens 64 --out".split()


@pytest.fixture(scope="module")
def local(words, tmp_path_factory):
    folder = tmp_path_factory.mktemp("local") / "study"
    assert ffscope(*words, folder).returncode == 0
    return folder


def same_search(study, local):
    for name in ("triggers.parquet", "memories.parquet"):
        assert (study / name).read_bytes() == (local / name).read_bytes()


def interrupt(words, folder, number, mark, shards=2):
    """Run a command until it has finished some more shards; then send a signal, to all of its group if it is Ctrl-C."""
    before = states(folder)
    with command(*words, mark=mark) as process:
        wait_for(lambda: len(states(folder) - before) >= shards or process.poll() is not None)
        assert process.poll() is None, process.stdout.read()
        assert read_status(folder).running
        os.killpg(process.pid, number) if number == signal.SIGINT else process.send_signal(number)
        process.wait(60)
        if number == signal.SIGINT:
            wait_for(lambda: not marked(mark), 30)  # no process is left behind
        kill(marked(mark))  # after SIGKILL, Ray's processes end by themselves, but not at once
        return process.stdout.read()


def test_ctrl_c_leaves_no_process_and_a_killed_driver_resumes(words, local, tmp_path, capsys):
    study = tmp_path / "study"
    on_ray = [*words, study, "--engine", "ray", "--workers", "2"]
    output = interrupt(on_ray, study, signal.SIGINT, "interrupted")
    assert "Traceback" not in output
    assert "run the same command to resume" in output
    ended = read_status(study)
    assert (ended.running, ended.ended) == (False, "interrupted")
    print_status(ended)
    assert "Not running. Stopped" in (shown := capsys.readouterr().out)
    assert "searching: " in shown
    interrupt(on_ray, study, signal.SIGKILL, "killed")
    assert "the process ended" in ffscope("status", study).stdout
    with command(*on_ray, mark="resumed") as process:
        assert process.wait(200) == 0, process.stdout.read()
    same_search(study, local)
    assert "Not running." in ffscope("status", study).stdout


@pytest.mark.slow
@pytest.mark.timeout(1800)
def test_twenty_workers_and_five_drivers_are_killed_at_random(model, tmp_path):
    """Five runs of a longer search, in each of which four workers are killed, then the driver; the sixth run ends."""
    corpus = write_corpus(tmp_path / "text.jsonl", documents=40000)
    words = f"triggers {model} --corpus {corpus} --top 6 --batch-tokens 64 --out".split()
    chance, study, killed = random.Random(0), tmp_path / "study", 0
    on_ray = [*words, study, "--engine", "ray", "--workers", "2"]
    for run in range(5):
        killed += kill_four_and_the_driver(on_ray, study, f"run {run}", chance)
    with command(*on_ray, mark="last") as process:
        output, _ = process.communicate(timeout=900)
        assert process.returncode == 0, output
    assert ffscope(*words, tmp_path / "local").returncode == 0
    same_search(study, tmp_path / "local")
    assert killed == 20


def kill_four_and_the_driver(words, study, mark, chance):
    """Returns how many workers were killed."""
    with command(*words, mark=mark) as process:
        for _ in range(4):
            before = states(study)
            wait_for(lambda before=before: len(states(study) - before) >= 1 or process.poll() is not None)
            time.sleep(chance.uniform(0, 1.5))
            wait_for(lambda: workers(marked(mark)))
            kill([chance.choice(workers(marked(mark)))])
        time.sleep(chance.uniform(0, 5))
        assert process.poll() is None, process.stdout.read()
        process.kill()
        process.wait(30)
    return 4


@contextmanager
def node(mark, *words):
    """A node of a cluster, started as on another machine; when it is killed, everything on it is lost."""
    environment = {**os.environ, MARK: mark, "RAY_AUTH_MODE": "disabled"}
    ray = [sys.executable, "-m", "ray.scripts.scripts", "start", "--disable-usage-stats", *words]
    subprocess.run(ray, env=environment, check=True, capture_output=True, timeout=120)
    try:
        yield
    finally:
        kill(marked(mark))


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_a_node_is_lost(model, tmp_path, monkeypatch):
    corpus = write_corpus(tmp_path / "text.jsonl", documents=20000)
    words = f"triggers {model} --corpus {corpus} --top 6 --batch-tokens 64 --out".split()
    study, port = tmp_path / "study", free_port()
    monkeypatch.setenv("RAY_AUTH_MODE", "disabled")
    on_ray = [*words, study, "--engine", "ray", "--ray-address", f"127.0.0.1:{port}", "--workers", "2"]
    storage = ["--storage", tmp_path / "storage"]
    head = ["--head", "--port", str(port), "--num-cpus", "1", "--include-dashboard", "false"]
    with node("head", *head), node("second", "--address", f"127.0.0.1:{port}", "--num-cpus", "1"):
        with command(*on_ray, *storage, mark="driver") as process:
            done = tmp_path / "storage"
            wait_for(lambda: len(list(done.glob("*/states/*"))) >= 8 or process.poll() is not None)
            assert process.poll() is None, process.stdout.read()
            wait_for(lambda: workers(marked("second")))
            kill(marked("second"))
            output, _ = process.communicate(timeout=600)
            assert process.returncode == 0, output
        assert "was lost" in output
        assert not list(done.iterdir())
        assert workers(marked("head")) == []
    assert ffscope(*words, tmp_path / "local").returncode == 0
    same_search(study, tmp_path / "local")


def free_port():
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return listener.getsockname()[1]
