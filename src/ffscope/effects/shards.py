"""Sums over examples that an engine computes in a fixed number of shards. Finished shards are kept, so that the stage resumes."""

from collections.abc import Callable, Sequence
from hashlib import sha256
from pathlib import Path
from typing import Any, Protocol, TypeVar, runtime_checkable

from safetensors.torch import load_file, save_file
from torch import Tensor

from ffscope.axes import Array
from ffscope.engines.sharded_table import ShardProgress
from ffscope.stages.stage import Work
from ffscope.study.resumable import ResumableFolder

SHARDS = 32
"""The largest number of shards, so that what they leave does not grow with the number of examples."""

State = dict[str, Tensor]


@runtime_checkable
class HasTokens(Protocol):
    """A batch of texts."""

    @property
    def tokens(self) -> Array: ...


B = TypeVar("B", bound=HasTokens)


def summed(
    work: Work,
    folder: ResumableFolder,
    name: str,
    function: Callable[[Any, list[B]], State],
    batches: Sequence[B],
    *,
    merge: Callable[[State, State], State],
    depends: bytes = b"",
) -> State:
    """The merged states that f(model, some batches) returns. They are merged in order, whatever the order they are computed in.

    `depends` is what the states depend on besides the stage's options: finished shards of another one are not used.
    """
    shards = [list(batches[number::SHARDS]) for number in range(min(SHARDS, len(batches)))]
    sizes = [sum(batch.tokens.size for batch in shard) for shard in shards]
    paths = computed(work, folder, name, function, shards, sizes=sizes, unit="tokens", depends=depends)
    return _merged(paths, merge)


def computed(
    work: Work,
    folder: ResumableFolder,
    name: str,
    function: Callable[[Any, Any], State],
    inputs: Sequence[Any],
    *,
    sizes: Sequence[int],
    unit: str,
    depends: bytes = b"",
) -> list[Path]:
    """The files of the states that f(model, input) returns, one for each input; `sizes` of these are for the progress."""
    stem = f"{name.replace(' ', '-')}-{sha256(depends).hexdigest()[:12]}"
    files = {f"{stem}-{number:02}.safetensors": number for number in range(len(inputs))}
    missing = [files[file] for file in folder.missing(files)]
    progress = ShardProgress(name, sizes, missing, unit, work.engine, work.progress)
    names = list(files)
    for number, state in work.engine.map(name, function, ((number, inputs[number]) for number in missing)):
        with folder.writing(names[number]) as path:
            save_file({key: tensor.contiguous() for key, tensor in state.items()}, path)
        progress.add(number)
    return [folder.path(name) for name in names]


def _merged(paths: list[Path], merge: Callable[[State, State], State]) -> State:
    merged = load_file(paths[0])
    for path in paths[1:]:
        merged = merge(merged, load_file(path))
    return merged


def added(state: State, other: State) -> State:
    """The sums of two states."""
    return {name: state[name] + other[name] for name in state}
