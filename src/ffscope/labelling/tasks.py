"""The memories to label, each with the prefixes shown to the labeller and those held back to test its labels."""

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

_TRIGGERS_READ = 50  # per memory
_HELD_BACK = 10  # triggers ranked below the ones shown that test a label
_LEAST_HELD_BACK = 3
_ENOUGH_TO_SPLIT = 12  # triggers, of which a quarter is then held back


@dataclass(frozen=True)
class LabelTask:
    """The prefixes of a memory: those shown and those held back, by rank, and random others. The latter two may be empty."""

    memory: Memory
    shown: dict[int, str]
    held_back: dict[int, str]
    others: list[str]


def read_tasks(study: Study, memories: Sequence[Memory], *, seed: int) -> list[LabelTask]:
    """The prefixes of each memory that are shown to the labeller, and those that are held back."""
    wanted = [checked(study, memory) for memory in dict.fromkeys(memories)]
    triggers = first_triggers(study, wanted, count=_TRIGGERS_READ)
    for memory, memory_triggers in triggers.items():
        if len(memory_triggers) < LEAST:
            raise InputError(
                f"{memory} has {len(memory_triggers)} triggers, but a pattern needs at least {LEAST} prefixes. Choose another."
            )
    generators = {memory: np.random.default_rng([seed, *b"labels", *memory]) for memory in wanted}
    held_back = {memory: _held_back(triggers[memory], generators[memory]) for memory in wanted}
    others = _random_prefixes(study, triggers, held_back, generators)
    return [
        LabelTask(
            memory=memory,
            shown={
                trigger.rank: marked(trigger.before, trigger.token)
                for trigger in triggers[memory]
                if trigger.rank <= TRIGGERS and trigger.rank not in held_back[memory]
            },
            held_back={
                trigger.rank: marked(trigger.before, trigger.token)
                for trigger in triggers[memory]
                if trigger.rank in held_back[memory]
            },
            others=others[memory],
        )
        for memory in wanted
    ]


def _held_back(triggers: list[Trigger], generator: np.random.Generator) -> set[int]:
    """The ranks of triggers that test a label: some below those shown, else some of the top triggers, else none."""
    first, later = (
        [trigger.rank for trigger in triggers if (trigger.rank > TRIGGERS) is behind] for behind in (False, True)
    )
    if len(later) >= _LEAST_HELD_BACK:
        return set(generator.permutation(later)[:_HELD_BACK].tolist())
    return set(generator.permutation(first)[: len(first) // 4].tolist()) if len(first) >= _ENOUGH_TO_SPLIT else set()


def _random_prefixes(
    study: Study,
    triggers: dict[Memory, list[Trigger]],
    held_back: dict[Memory, set[int]],
    generators: dict[Memory, np.random.Generator],
) -> dict[Memory, list[str]]:
    """As many random prefixes as are held back, from searched sentences without a trigger of the memory."""
    numbers, lengths = _searched(study)
    places: list[Place] = []
    counts = {}
    for memory, memory_triggers in triggers.items():
        trigger_sentences = {trigger.sentence for trigger in memory_triggers}
        wanted = len(held_back[memory])
        # More than wanted, since some may contain a trigger.
        rows = generators[memory].choice(
            len(numbers), min(len(numbers), wanted + len(trigger_sentences)), replace=False
        )
        chosen = [row for row in rows.tolist() if int(numbers[row]) not in trigger_sentences][:wanted]
        counts[memory] = len(chosen)
        places += [(int(numbers[row]), int(generators[memory].integers(lengths[row]))) for row in chosen]
    texts = iter([marked(prefix.before, prefix.token) for prefix in prefixes_at(study, places)])
    return {memory: [next(texts) for _ in range(count)] for memory, count in counts.items()}


def _searched(study: Study) -> tuple[Array, Array]:
    """The numbers of the searched sentences and their lengths in tokens; read in batches, since a corpus may be large."""
    pieces = []
    with pq.ParquetFile(study.path("sentences.parquet")) as table:
        for batch in table.iter_batches(columns=["sentence", "tokens", "held_out"]):
            lengths = pc.list_value_length(batch["tokens"]).to_numpy()
            wanted = (lengths > 0) & ~batch["held_out"].to_numpy(zero_copy_only=False)
            pieces.append(np.stack([batch["sentence"].to_numpy()[wanted], lengths[wanted]]))
    numbers, counts = np.concatenate(pieces, axis=1)
    return numbers, counts
