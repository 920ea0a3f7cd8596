"""A stage's table in shards, each computed on its own: one after the other in this process, or at once on many machines."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

Columns = Mapping[str, Any]


@dataclass(frozen=True)
class Shards:
    """The shards of a table, numbered from 0. They depend on the study alone, never on where they are computed.

    The study's folder is here, and a shard may be computed elsewhere: what it needs of the study is in its input. `rows` and the
    inputs are pickled; a model in them is replaced by the one that is loaded there.
    """

    count: int
    input: Callable[[int], Any]  # what a shard needs, by its number
    rows: Callable[
        [Any, Any], Columns
    ]  # f(model, input) returns the columns; the model is None for a stage without one
    sort_by: tuple[str, ...] = ()  # columns; by default the table has its shards in order
    sizes: Sequence[int] | None = None  # of the shards, for the progress; by default 1 each
    unit: str = "shards"  # of these sizes
    entries: Mapping[str, Any] = field(default_factory=dict)  # further entries for study.json
    depends: Mapping[str, Any] = field(default_factory=dict)  # what the rows depend on besides the stage's options
