"""How many threads answer a question on a machine that has other work to do. Changes no result, only how long it takes."""

import os
import threading
import time
from collections import deque
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import psutil

_EVERY = 1.0  # seconds between two looks at the machine's load
_SHORTEST = 0.1  # seconds over which a load can be measured: the kernel counts in hundredths
_CGROUP = Path("/sys/fs/cgroup")


def sleep_while_waiting() -> None:
    """Have OpenMP's threads sleep, not spin, while they wait for each other; settings of the environment come first.

    On cores that other programs use too, a thread that spins holds up the thread it waits for, and answers take many times as
    long. OpenMP reads this when torch is imported, so it must be called before.
    """
    os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")


class Usage(NamedTuple):
    """Seconds of processor time so far: of everyone on this process's cores, and its own."""

    when: float
    all: float
    own: float


class Load:
    """How many cores other programs have kept busy over the last second or two."""

    def __init__(self) -> None:
        self._looks = deque([usage()], maxlen=2)
        threading.Thread(target=self._look, name="load", daemon=True).start()

    def __call__(self) -> float:
        return used_by_others(self._looks[0], usage())

    def _look(self) -> None:
        while True:
            time.sleep(_EVERY)
            self._looks.append(usage())


class Threads:
    """Gives torch as many threads as there are free cores, one at least and never more than it would take by itself."""

    def __init__(self, load: Callable[[], float] | None = None) -> None:
        self._load = load or Load()
        self._most: int | None = None

    def choose(self) -> int:
        """Set the number of threads for the calling thread's next question."""
        import torch

        if self._most is None:
            self._most = torch.get_num_threads()
        count = free_threads(cores(), self._load(), most=self._most)
        if count != torch.get_num_threads():
            torch.set_num_threads(count)
        return count


def free_threads(cores: float, busy: float, *, most: int) -> int:
    """Threads for the cores that others leave free."""
    return max(1, min(most, round(cores - busy)))


def used_by_others(then: Usage, now: Usage) -> float:
    """Cores that others kept busy between two looks, on average."""
    seconds = now.when - then.when
    if seconds < _SHORTEST:
        return 0.0
    return max(0.0, (now.all - then.all) - (now.own - then.own)) / seconds


def usage() -> Usage:
    """What has been used until now."""
    mine = _affinity()
    every = psutil.cpu_times(percpu=True)
    times = [every[core] for core in mine if core < len(every)] or every
    own = psutil.Process().cpu_times()
    busy = sum(sum(core) - core.idle - getattr(core, "iowait", 0.0) - getattr(core, "guest", 0.0) for core in times)
    return Usage(time.monotonic(), busy, own.user + own.system)


def cores(cgroup: Path = _CGROUP) -> float:
    """Cores that this process may use: those it is bound to, or the share that a container is given."""
    return min(float(len(_affinity())), _quota(cgroup))


def _affinity() -> list[int]:
    if hasattr(os, "sched_getaffinity"):  # Linux
        return sorted(os.sched_getaffinity(0))
    return list(range(os.cpu_count() or 1))


def _quota(cgroup: Path) -> float:
    """A container's limit in cores, by either version of control groups; infinite without one."""
    for names in (("cpu.max",), ("cpu/cpu.cfs_quota_us", "cpu/cpu.cfs_period_us")):
        try:
            quota, period = map(float, " ".join((cgroup / name).read_text() for name in names).split())
        except (OSError, ValueError):  # no such file, or "max"
            continue
        if quota > 0 and period > 0:  # -1: no limit
            return quota / period
    return float("inf")
