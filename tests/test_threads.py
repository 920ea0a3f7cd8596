"""How many threads the explorer's model uses while other programs run."""

import os
import subprocess
import sys
import time

import pytest
import torch

import tiny
from ffscope.live.model import Live
from ffscope.memory_name import Memory
from ffscope.models.loading import make_memory_model
from ffscope.web.model_threads import Load, Threads, Usage, cores, free_threads, sleep_while_waiting, used_by_others


@pytest.fixture(autouse=True)
def usual_threads():
    usual = torch.get_num_threads()
    torch.set_num_threads(4)
    yield
    torch.set_num_threads(usual)


@pytest.mark.parametrize(
    ("cores", "busy", "threads"),
    [(2, 0, 2), (2, 0.3, 2), (2, 1, 1), (2, 2, 1), (2, 9, 1), (16, 4, 4), (16, 14, 2), (1.5, 0, 2), (0.5, 0, 1)],
)
def test_threads_are_the_cores_that_others_leave_free(cores, busy, threads):
    assert free_threads(float(cores), float(busy), maximum=4) == threads


def test_they_are_chosen_anew_for_every_question(monkeypatch):
    monkeypatch.setattr("ffscope.web.model_threads.cores", lambda: 8.0)
    load = [0.0]
    threads = Threads(lambda: load[0])
    assert (threads.choose(), torch.get_num_threads()) == (4, 4)  # never more than torch itself would take
    load[0] = 7.9
    assert (threads.choose(), torch.get_num_threads()) == (1, 1)
    load[0] = 5.0
    assert (threads.choose(), torch.get_num_threads()) == (3, 3)


def test_this_program_s_own_work_is_not_that_of_others():
    assert used_by_others(Usage(10.0, 100.0, 50.0), Usage(12.0, 104.0, 51.0)) == 1.5
    assert used_by_others(Usage(10.0, 100.0, 50.0), Usage(12.0, 101.0, 52.0)) == 0
    assert used_by_others(Usage(10.0, 100.0, 50.0), Usage(10.0, 104.0, 50.0)) == 0  # too short to tell


def test_a_busy_program_is_seen():
    load = Load()
    busy = subprocess.Popen([sys.executable, "-c", "while True: pass"])
    try:
        deadline = time.monotonic() + 20
        while load() < 0.25 and time.monotonic() < deadline:
            time.sleep(0.2)
        assert load() >= 0.2
    finally:
        busy.kill()
        busy.wait()


def test_a_container_s_share_of_the_cores(tmp_path):
    here = float(len(os.sched_getaffinity(0)))
    assert cores(tmp_path) == here
    (tmp_path / "cpu.max").write_text("max 100000\n")
    assert cores(tmp_path) == here
    (tmp_path / "cpu.max").write_text("50000 100000\n")
    assert cores(tmp_path) == 0.5
    (tmp_path / "cpu.max").unlink()
    (tmp_path / "cpu").mkdir()
    (tmp_path / "cpu/cpu.cfs_quota_us").write_text("-1\n")
    (tmp_path / "cpu/cpu.cfs_period_us").write_text("100000\n")
    assert cores(tmp_path) == here
    (tmp_path / "cpu/cpu.cfs_quota_us").write_text("25000\n")
    assert cores(tmp_path) == 0.25


def test_waiting_is_set_before_torch_is_there_and_only_where_nobody_chose(monkeypatch):
    monkeypatch.setenv("OMP_WAIT_POLICY", "ACTIVE")
    sleep_while_waiting()
    assert os.environ["OMP_WAIT_POLICY"] == "ACTIVE"
    code = """
import os, sys
from pathlib import Path
from ffscope.cli.loading import model_queue
from ffscope.options.model import ReloadOptions
from ffscope.options.serve import LiveOptions
model_queue(Path("study"), LiveOptions(), ReloadOptions())
assert os.environ["OMP_WAIT_POLICY"] == "PASSIVE" and "torch" not in sys.modules
"""
    monkeypatch.delenv("OMP_WAIT_POLICY")
    assert subprocess.run([sys.executable, "-c", code], timeout=60).returncode == 0


def test_answers_do_not_depend_on_threads(tokenizer):
    live = Live(make_memory_model(tiny.make("llama"), tokenizer), bos=True)
    readings = []
    for count in (1, 3):
        torch.set_num_threads(count)
        coefficients = live.text_coefficients(Memory(0, 5), "The cat").coefficients
        readings.append([*coefficients, *(choice.before for choice in live.prompt("The cat sat").distribution)])
    assert readings[0] == pytest.approx(readings[1], rel=1e-5, abs=1e-6)
