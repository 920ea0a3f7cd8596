"""Where the model runs: in this process, or on the workers of a cluster. No result depends on it, so no study records it."""

from dataclasses import dataclass, replace
from typing import Annotated

from ffscope.engines import engine_names
from ffscope.errors import InputError
from ffscope.options.fields import Checked, Help


@dataclass(frozen=True)
class EngineOptions(Checked):
    """The engine that runs the model, and its workers."""

    engine: Annotated[
        str,
        Help(
            "Where the model runs: local, in this process; ray, on workers of a Ray cluster (pip install 'ffscope[ray]').",
            choices=engine_names,
        ),
    ] = "local"
    devices: Annotated[
        str | None,
        Help(
            "GPUs of this machine to use at once: all, or their numbers, such as 0,2. One worker each, by --engine ray."
        ),
    ] = None
    workers: Annotated[
        int | None, Help("Number of workers, each with the model; by default as many as there is room for.", min=1)
    ] = None
    cores_per_worker: Annotated[
        int, Help("Cores of each worker. On a CPU the last digits of coefficients may depend on it.", min=1)
    ] = 1
    gpus_per_worker: Annotated[
        int | None,
        Help(
            "GPUs of each worker; several for a model spread with --device-map. By default 1 if the cluster has any.",
            min=0,
        ),
    ] = None
    ray_address: Annotated[
        str | None,
        Help(
            "Address of a running Ray cluster, such as 10.0.0.1:6379, or auto; by default one is started on this machine.",
            envvar="RAY_ADDRESS",
        ),
    ] = None
    storage: Annotated[
        str | None,
        Help(
            "Folder or URL (s3://, gs:// …) that all workers can read and write, for the text and the states of a search; by "
            "default the study's folder.",
            metavar="URL",
        ),
    ] = None

    def resolved(self) -> "EngineOptions":
        """The same, with the engine that the devices need. Raises for options that exclude each other."""
        if self.devices is None:
            self._refuse_workers_of_nothing()
            return self
        if self.engine == "ray" and self.ray_address is not None:
            raise InputError("--devices are those of this machine. Leave it out with --ray-address, or use --workers.")
        return replace(self, engine="ray", ray_address=None, gpus_per_worker=self.gpus_per_worker or 1)

    def _refuse_workers_of_nothing(self) -> None:
        """Raise for options of workers without an engine that has any. The address may come from the environment."""
        names = ("workers", "cores_per_worker", "gpus_per_worker", "storage")
        chosen = [name for name in names if getattr(self, name) != getattr(EngineOptions, name)]
        if self.engine == "local" and chosen:
            raise InputError(
                f"--{chosen[0].replace('_', '-')} needs workers: add --engine ray, or --devices all for GPUs."
            )
