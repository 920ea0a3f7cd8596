"""The number of torch threads on a machine that other programs use too. Affects only speed, not results."""

import os
import threading
import time
from collections import deque
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import psutil

_INTERVAL = 1.0  # seconds between two measurements of the load
_MIN_SECONDS = 0.1  # shortest time over which load can be measured: the kernel counts in hundredths of a second
_CGROUP = Path("/sys/fs/cgroup")


def sleep_while_waiting() -> None:
    """Make OpenMP's threads sleep, not spin, while they wait for each other, unless the environment sets otherwise.

    On cores that other programs use too, a spinning thread holds up the thread it waits for, and answers take many times as
    long. OpenMP reads the setting when torch is imported, so call this before.
    """
    os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")


class Usage(NamedTuple):
    """Processor seconds so far: of all programs on this process's cores, and its own."""

    when: float
    all: float
    own: float


class Load:
    """The number of cores that other programs kept busy over the last one or two seconds."""

    def __init__(self) -> None:
        self._measurements = deque([usage()], maxlen=2)
        threading.Thread(target=self._measure, name="load", daemon=True).start()

    def __call__(self) -> float:
        return used_by_others(self._measurements[0], usage())

    def _measure(self) -> None:
        while True:
            time.sleep(_INTERVAL)
            self._measurements.append(usage())


class Threads:
    """Gives torch one thread per free core: at least one, and at most its own default."""

    def __init__(self, load: Callable[[], float] | None = None) -> None:
        self._load = load or Load()
        self._max: int | None = None

    def choose(self) -> int:
        """Set the number of threads for the calling thread's next question."""
        import torch

        if self._max is None:
            self._max = torch.get_num_threads()
        count = free_threads(cores(), self._load(), maximum=self._max)
        if count != torch.get_num_threads():
            torch.set_num_threads(count)
        return count


def free_threads(cores: float, busy: float, *, maximum: int) -> int:
    """The number of threads for the cores that other programs leave free."""
    return max(1, min(maximum, round(cores - busy)))


def used_by_others(then: Usage, now: Usage) -> float:
    """The mean number of cores that other programs kept busy between two measurements."""
    seconds = now.when - then.when
    if seconds < _MIN_SECONDS:
        return 0.0
    return max(0.0, (now.all - then.all) - (now.own - then.own)) / seconds


def usage() -> Usage:
    """The processor time used until now."""
    per_core = psutil.cpu_times(percpu=True)
    times = [per_core[core] for core in _affinity() if core < len(per_core)] or per_core
    own = psutil.Process().cpu_times()
    busy = sum(sum(core) - core.idle - getattr(core, "iowait", 0.0) - getattr(core, "guest", 0.0) for core in times)
    return Usage(time.monotonic(), busy, own.user + own.system)


def cores(cgroup: Path = _CGROUP) -> float:
    """The number of cores this process may use: its affinity, or its container's quota if lower."""
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
