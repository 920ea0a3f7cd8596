"""Runs the model on the workers of a Ray cluster: on all cores or GPUs of one machine, or on many machines.

A worker is an actor that holds the model. A shard is a call of a worker; the shards of a search and their states lie on storage
that all workers share, so that nothing that is finished is lost with a worker, a node or the driver. The driver, this process,
plans the shards, hands them out and writes the tables.
"""

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ffscope.engines.base import Engine
    from ffscope.options.engine import EngineOptions
    from ffscope.options.model import LoadOptions


@contextmanager
def start(source: str | None, load: "LoadOptions", options: "EngineOptions") -> "Iterator[Engine]":
    """Start or find a cluster, and its workers. On leaving the block they are stopped, as is a cluster that was started."""
    from ffscope.engines.ray.cluster import connected
    from ffscope.engines.ray.storage import check_storage

    if options.storage is not None:
        check_storage(options.storage)
    # Imports torch and transformers, which takes seconds, while Ray and its workers start.
    threading.Thread(target=import_module, args=("ffscope.models.loading",), daemon=True).start()
    with connected(load, options) as cluster:
        from ffscope.engines.ray.pool import Pool

        with Pool.of(cluster, source) as pool:
            from ffscope.engines.ray.engine import RayEngine

            yield RayEngine(pool, source)
