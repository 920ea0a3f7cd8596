"""A Ray cluster: a running one, or one that is started on this machine; and how many workers it has room for."""

import logging
import os
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

from ffscope.errors import EngineError, InputError, first_line
from ffscope.options.engine import EngineOptions
from ffscope.options.model import LoadOptions

INSTALL = "python -m pip install 'ffscope[ray]'"
_SECONDS = 5.0  # until an address that does not answer is given up
_OBJECTS = 2**28  # bytes for what travels between processes of one machine


@dataclass(frozen=True)
class Cluster:
    """The cluster that this process is connected to. `own`: it was started here, and ends with the command."""

    options: EngineOptions
    load_options: LoadOptions
    own: bool

    @cached_property
    def gpus(self) -> int:
        """The GPUs of each worker."""
        if self.options.gpus_per_worker is not None:
            return self.options.gpus_per_worker
        return int(self.load_options.device != "cpu" and self._resources.get("GPU", 0) >= 1)

    @property
    def cores(self) -> int:
        """The cores of each worker."""
        return self.options.cores_per_worker

    @cached_property
    def threads(self) -> int:
        """The threads of each worker: its cores; with GPUs, its share of its node's cores, which then change no result."""
        if not self.gpus:
            return self.cores
        nodes = [node["Resources"] for node in _ray().nodes() if node["Alive"]]
        shares = [node["CPU"] * self.gpus // node["GPU"] for node in nodes if node.get("GPU") and node.get("CPU")]
        return max(self.cores, int(min(shares, default=1)))

    @cached_property
    def workers(self) -> int:
        """The number of workers: as wished, or as many as there is room for."""
        if self.options.workers is not None:
            return self.options.workers
        wanted = {"CPU": self.cores, "GPU": self.gpus}
        return max(1, min(int(self._resources.get(name, 0) // count) for name, count in wanted.items() if count))

    @property
    def load(self) -> LoadOptions:
        """How a worker loads the model: on the GPUs that it is given, if any."""
        device = "cpu" if not self.gpus else "auto"
        return replace(self.load_options, device="auto" if self.load_options.device_map else device)

    @property
    def free_cores(self) -> int:
        """The cores that no worker has."""
        return int(self._resources.get("CPU", 0)) - self.workers * self.cores

    @cached_property
    def _resources(self) -> dict[str, float]:
        return _ray().cluster_resources()

    def check_room(self) -> None:
        """Raise if no worker fits into a cluster that has all its nodes. A running one may still grow."""
        fits = any(
            node["Alive"]
            and node["Resources"].get("GPU", 0) >= self.gpus
            and node["Resources"].get("CPU", 0) >= self.cores
            for node in _ray().nodes()
        )
        if not fits:
            sentence = f"A worker needs {self.cores} cores and {self.gpus} GPUs; no node of the cluster has as many."
            if self.own:
                raise EngineError(f"{sentence} Choose others with --cores-per-worker and --gpus-per-worker.")
            logging.getLogger(__name__).warning("%s Waiting for one.", sentence)


@contextmanager
def connected(load: LoadOptions, options: EngineOptions) -> Iterator[Cluster]:
    """A cluster, for as long as the block lasts. One that this process is connected to already is used, and left as it is."""
    ray = _ray()
    _check(load, options)
    if ray.is_initialized():
        yield Cluster(options, load, own=False)
        return
    own = options.ray_address in (None, "local")
    try:
        ray.init(**(_own(options) if own else _running(str(options.ray_address))), **_quiet())
    except (ConnectionError, RuntimeError, ValueError, OSError) as error:
        raise EngineError(_why(options.ray_address, error)) from error
    try:
        cluster = Cluster(options, load, own=own)
        cluster.check_room()
        yield cluster
    finally:
        ray.shutdown()


def _ray() -> Any:
    # Ray prints these on standard output, whatever the log level; read when it is imported. Pool reports lost workers itself.
    os.environ.setdefault("RAY_DEDUP_LOGS_SKIP_REGEX", "A worker died or was killed|workers? .* killed due to memory")
    try:
        import ray
    except ModuleNotFoundError as error:
        raise EngineError(
            f"--engine ray and --devices need the package ray, which is not installed. Install it: {INSTALL}"
        ) from error
    return ray


def _check(load: LoadOptions, options: EngineOptions) -> None:
    if load.device not in ("auto", "cpu", "cuda"):
        raise InputError(
            f"With --engine ray each worker has GPUs of its own, so --device {load.device} cannot be used. Expected auto, cpu or "
            "cuda. To choose GPUs of this machine, use --devices 0,2."
        )
    if load.device_map is not None and not options.gpus_per_worker:
        raise InputError(
            "--device-map spreads a model over the GPUs of a worker. Say how many these are: --gpus-per-worker 4."
        )
    if load.device == "cpu" and options.gpus_per_worker:
        raise InputError("--device cpu and --gpus-per-worker exclude each other. Leave out one of them.")


def _own(options: EngineOptions) -> dict[str, Any]:
    """The arguments for a cluster on this machine, with a core for every worker that is wished."""
    if options.devices is not None:
        _choose_gpus(options.devices)
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    return {
        "address": "local",
        "num_cpus": max(cores, (options.workers or 1) * options.cores_per_worker),
        "include_dashboard": False,
        "object_store_memory": _OBJECTS,
    }


def _running(address: str) -> dict[str, Any]:
    """The arguments for a running cluster, after a check that something answers there."""
    if address != "auto":
        host, sign, port = address.rpartition(":")
        if not sign or not port.isdigit() or "/" in host:
            raise ValueError("expected HOST:PORT, such as 10.0.0.1:6379, or auto, on a machine of the cluster")
        socket.create_connection((host, int(port)), timeout=_SECONDS).close()
    return {"address": address}


def _quiet() -> dict[str, Any]:
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
    os.environ.setdefault("RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO", "0")
    logging.getLogger("ray").setLevel(logging.ERROR)
    return {"log_to_driver": False, "configure_logging": False, "logging_level": logging.ERROR}


def _choose_gpus(devices: str) -> None:
    """Let Ray see the chosen GPUs of this machine only."""
    import torch

    count = torch.cuda.device_count()
    if not count:
        raise InputError("--devices chooses GPUs, but torch sees none on this machine. Leave it out to use the CPU.")
    if devices == "all":
        return
    numbers = devices.split(",")
    if not all(number.strip().isdigit() and int(number) < count for number in numbers):
        raise InputError(f"--devices is {devices!r}. Expected all, or numbers from 0 to {count - 1}, such as 0,2.")
    visible = os.environ.get("CUDA_VISIBLE_DEVICES")
    names = visible.split(",") if visible else [str(number) for number in range(count)]
    os.environ["CUDA_VISIBLE_DEVICES"] = ",".join(names[int(number)] for number in numbers)


def _why(address: str | None, error: Exception) -> str:
    reason = first_line(error)
    if "ersion mismatch" in str(error):
        lines = " ".join(line.strip() for line in str(error).splitlines())
        return f"The cluster at {address} runs other versions: {lines} Install the same versions of Python and ray everywhere."
    if address in (None, "local"):
        return f"Ray cannot start on this machine: {reason}."
    return (
        f"There is no Ray cluster at {address}: {reason}. Start one with `ray start --head`, or leave out --ray-address to use "
        "this machine alone."
    )
