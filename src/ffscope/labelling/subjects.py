"""The memories that are labelled, each with what the labeller is shown and what is held back to test its labels."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow.compute as pc
import pyarrow.parquet as pq

from ffscope.axes import Array
from ffscope.errors import InputError
from ffscope.labelling.prompts import marked
from ffscope.memory_name import Memory
from ffscope.patterns.pattern import LEAST, TRIGGERS
from ffscope.queries.prefixes import Place, Trigger, first_triggers, prefixes_at
from ffscope.queries.tables import checked
from ffscope.study.folder import Study

_SEEN = 50  # triggers of a memory that are read
_HELD = 10  # of those behind the ones shown that test a label
_LEAST_HELD = 3
_PARTED = 12  # triggers that are enough to hold a quarter of them back


@dataclass(frozen=True)
class Subject:
    """A memory's prefixes: those shown, by rank; triggers held back, by rank; random ones. The latter two may be none."""

    memory: Memory
    shown: dict[int, str]
    held: dict[int, str]
    others: list[str]


def read_subjects(study: Study, memories: Sequence[Memory], *, seed: int) -> list[Subject]:
    """What the labeller is shown of each memory, and what is held back."""
    wanted = [checked(study, memory) for memory in dict.fromkeys(memories)]
    triggers = first_triggers(study, wanted, count=_SEEN)
    for memory, listed in triggers.items():
        if len(listed) < LEAST:
            raise InputError(
                f"{memory} has {len(listed)} triggers, and a pattern needs at least {LEAST} prefixes. Name another memory."
            )
    generators = {memory: np.random.default_rng([seed, *b"labels", *memory]) for memory in wanted}
    held = {memory: _held_back(triggers[memory], generators[memory]) for memory in wanted}
    others = _random_prefixes(study, triggers, held, generators)
    return [
        Subject(
            memory=memory,
            shown={
                one.rank: marked(one.before, one.token)
                for one in triggers[memory]
                if one.rank <= TRIGGERS and one.rank not in held[memory]
            },
            held={one.rank: marked(one.before, one.token) for one in triggers[memory] if one.rank in held[memory]},
            others=others[memory],
        )
        for memory in wanted
    ]


def _held_back(triggers: list[Trigger], generator: np.random.Generator) -> set[int]:
    """The ranks of triggers that test a label: those behind the ones shown, else some of these, else none."""
    first, later = ([one.rank for one in triggers if (one.rank > TRIGGERS) is behind] for behind in (False, True))
    if len(later) >= _LEAST_HELD:
        return set(generator.permutation(later)[:_HELD].tolist())
    return set(generator.permutation(first)[: len(first) // 4].tolist()) if len(first) >= _PARTED else set()


def _random_prefixes(
    study: Study,
    triggers: dict[Memory, list[Trigger]],
    held: dict[Memory, set[int]],
    generators: dict[Memory, np.random.Generator],
) -> dict[Memory, list[str]]:
    """As many prefixes of searched sentences as are held back, none from a sentence that holds a trigger."""
    numbers, lengths = _searched(study)
    places: list[Place] = []
    counts = {}
    for memory, listed in triggers.items():
        own = {one.sentence for one in listed}
        want = len(held[memory])
        # More than wanted, since some may be the memory's own.
        some = generators[memory].choice(len(numbers), min(len(numbers), want + len(own)), replace=False)
        free = [row for row in some.tolist() if int(numbers[row]) not in own][:want]
        counts[memory] = len(free)
        places += [(int(numbers[row]), int(generators[memory].integers(lengths[row]))) for row in free]
    texts = iter([marked(one.before, one.token) for one in prefixes_at(study, places)])
    return {memory: [next(texts) for _ in range(count)] for memory, count in counts.items()}


def _searched(study: Study) -> tuple[Array, Array]:
    """The numbers of the searched sentences that have tokens, and how many; read in pieces, since a corpus may be large."""
    pieces = []
    with pq.ParquetFile(study.path("sentences.parquet")) as table:
        for batch in table.iter_batches(columns=["sentence", "tokens", "held_out"]):
            lengths = pc.list_value_length(batch["tokens"]).to_numpy()
            wanted = (lengths > 0) & ~batch["held_out"].to_numpy(zero_copy_only=False)
            pieces.append(np.stack([batch["sentence"].to_numpy()[wanted], lengths[wanted]]))
    numbers, counts = np.concatenate(pieces, axis=1)
    return numbers, counts
