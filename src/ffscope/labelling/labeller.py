"""A language model as labeller: it names the patterns of some memories and is tested on prefixes that it had not seen."""

import logging
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass, replace

import numpy as np

from ffscope.errors import InputError, LabellerError
from ffscope.labelling.batch import Batches, PendingError
from ffscope.labelling.cache import Correspondence
from ffscope.labelling.cost import Cost, Price
from ffscope.labelling.detection import balanced_accuracy, chance
from ffscope.labelling.endpoint import Endpoint, RefusedError, StoppedError
from ffscope.labelling.prompts import MalformedError, detecting, labelling, parsed_answer, read_fits, read_patterns
from ffscope.labelling.subjects import Subject, read_subjects
from ffscope.memory_name import Memory
from ffscope.options.labeller import LabellerOptions
from ffscope.options.option_set import Options
from ffscope.patterns.pattern import LEAST, TRIGGERS, Pattern
from ffscope.patterns.sampling import draw_memories
from ffscope.patterns.table import write_patterns
from ffscope.progress import Progress, ProgressCallback, no_progress
from ffscope.queries.labeller_answers import FILE, Answers
from ffscope.stages.stage import Work
from ffscope.study.folder import Study
from ffscope.study.public import public_name
from ffscope.tokens import visible

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Labels:
    """What a labeller said of memories: their patterns, maybe none, and those on which it gave no answer that can be read."""

    annotator: str
    patterns: dict[Memory, list[Pattern]]
    failed: dict[Memory, str]
    cost: Cost


def label(
    study: Study,
    endpoint: Endpoint,
    *,
    memories_per_layer: int = 10,
    memories: Sequence[Memory] | None = None,
    seed: int | None = None,
    workers: int = 4,
    batch: bool = False,
    price: Price | None = None,
    progress: ProgressCallback = no_progress,
) -> Labels:
    """Have a language model label some memories of every layer, or those named: its rows in patterns.parquet.

    Answers are kept in the study folder as they come; interrupted, the same call resumes and pays for what is missing alone.
    With `batch`, questions go to the server's batch interface.
    """
    study.need("patterns")
    start = time.perf_counter()
    seed = study.settings["seed"] if seed is None else seed
    chosen = _drawn(study, memories_per_layer, seed) if memories is None else memories
    if not chosen:
        raise InputError(f"{study.folder} has no memory to label: none has triggers enough for a pattern.")
    subjects = read_subjects(study, chosen, seed=seed)
    with closing(Answers(study.path(FILE))) as answers:
        correspondence: Correspondence
        if batch:
            correspondence = Batches(endpoint, answers, seed=seed, price=price)
            patterns, failed = _ask_in_batches(correspondence, subjects, progress)
        else:
            correspondence = Correspondence(endpoint, answers, seed=seed, price=price)
            patterns, failed = _ask_all(correspondence, subjects, workers, progress)
    labels = Labels(_annotator(endpoint.model), patterns, failed, correspondence.cost)
    _report_failures(labels)
    write_patterns(study, labels.annotator, labels.patterns, replacing=labels.patterns)
    _note(study, endpoint, labels, seed=seed, seconds=time.perf_counter() - start)
    return labels


def run(work: Work) -> str:
    """The stage: labels by the language model that the options name."""
    how = work.options(LabellerOptions)
    with _endpoint(how) as endpoint:
        labels = label(
            work.study,
            endpoint,
            memories_per_layer=how.labeller_memories,
            workers=how.labeller_workers,
            batch=how.labeller_batch,
            price=_price(how),
            progress=work.progress,
        )
    count = sum(map(len, labels.patterns.values()))
    return f"{labels.annotator}: {count:,} patterns of {len(labels.patterns):,} memories; {labels.cost}."


def check_options(options: Options) -> None:
    """Raise where there can be no such server, before any work is done."""
    how = options(LabellerOptions)
    if how.labeller is not None:
        _price(how)
        with _endpoint(how):
            pass


def _endpoint(how: LabellerOptions) -> Endpoint:
    if how.labeller is None:
        raise InputError("There is no language model to ask. Name its address with --labeller.")
    return Endpoint(
        how.labeller, model=how.labeller_model, timeout=how.labeller_timeout, max_tokens=how.labeller_max_tokens
    )


def _price(how: LabellerOptions) -> Price | None:
    return None if how.labeller_price is None else Price.parse(how.labeller_price)


def _drawn(study: Study, count: int, seed: int) -> list[Memory]:
    """Those with triggers enough for a pattern, of the memories that people are given too."""
    return [memory for drawn in draw_memories(study, count, seed=seed, least=LEAST) for memory in sorted(drawn)]


def _ask_all(
    correspondence: Correspondence, subjects: list[Subject], workers: int, progress: ProgressCallback
) -> tuple[dict[Memory, list[Pattern]], dict[Memory, str]]:
    """The patterns of every subject, and why there are none of some; in their order, whatever order they came in."""
    patterns: dict[Memory, list[Pattern]] = {}
    failed: dict[Memory, str] = {}
    with _asking(correspondence, workers) as pool:
        waiting = {pool.submit(_label, correspondence, subject): subject.memory for subject in subjects}
        progress(_so_far(0, len(subjects), correspondence.cost))
        for done, future in enumerate(as_completed(waiting), 1):
            try:
                patterns[waiting[future]] = future.result()
            except (MalformedError, RefusedError) as error:
                failed[waiting[future]] = str(error)
            except StoppedError:
                continue  # another says why
            progress(_so_far(done, len(subjects), correspondence.cost))
    return dict(sorted(patterns.items())), dict(sorted(failed.items()))


def _ask_in_batches(
    batches: Batches, subjects: list[Subject], progress: ProgressCallback
) -> tuple[dict[Memory, list[Pattern]], dict[Memory, str]]:
    """As `_ask_all`, in rounds: what has no answer yet goes into a batch, and is gone through again when that is answered."""
    patterns: dict[Memory, list[Pattern]] = {}
    failed: dict[Memory, str] = {}
    while True:
        for subject in subjects:
            if subject.memory not in patterns and subject.memory not in failed:
                with suppress(PendingError):
                    try:
                        patterns[subject.memory] = _label(batches, subject)
                    except (MalformedError, RefusedError) as error:
                        failed[subject.memory] = str(error)
        progress(_so_far(len(patterns) + len(failed), len(subjects), batches.cost))
        if not batches.pending:
            return dict(sorted(patterns.items())), dict(sorted(failed.items()))
        batches.send(progress)


@contextmanager
def _asking(correspondence: Correspondence, workers: int) -> Iterator[ThreadPoolExecutor]:
    """Threads to ask with. Whatever ends them, what they have asked for already is waited for and kept."""
    pool = ThreadPoolExecutor(workers, thread_name_prefix="labeller")
    try:
        yield pool
    except KeyboardInterrupt:
        log.warning("Stopping: answers that are under way are waited for, since they are paid for.")
        raise
    finally:
        correspondence.stopped.set()
        pool.shutdown(wait=True, cancel_futures=True)


def _so_far(done: int, total: int, cost: Cost) -> Progress:
    return Progress("labels", done, total, unit=f"memories ({cost})")


def _label(correspondence: Correspondence, subject: Subject) -> list[Pattern]:
    """One memory's patterns, most prefixes first, each with how well it detects the held-back triggers."""
    question = labelling(subject.shown)
    found = parsed_answer(correspondence.ask, question, lambda text: read_patterns(text, subject.shown.keys()))
    found = sorted(found, key=lambda pattern: -pattern.support)
    if not found or not subject.held or not subject.others:
        return found
    try:
        return _tested(correspondence, subject, found)
    except (MalformedError, RefusedError) as error:
        log.warning("%s: its labels could not be tested. %s", subject.memory, error)
        return found


def _tested(correspondence: Correspondence, subject: Subject, patterns: list[Pattern]) -> list[Pattern]:
    """Patterns with their scores, by the same model's word on which of them held-back and random prefixes have."""
    ranks = [*subject.held, *(None for _ in subject.others)]
    texts = [*subject.held.values(), *subject.others]
    order = (
        np.random.default_rng([correspondence.seed, *b"detection", *subject.memory]).permutation(len(texts)).tolist()
    )
    fits = parsed_answer(
        correspondence.ask,
        detecting(patterns, [texts[place] for place in order]),
        lambda text: read_fits(text, patterns=len(patterns), prefixes=len(texts)),
    )
    tested = []
    for pattern, numbers in zip(patterns, fits, strict=True):
        fitting = [ranks[order[number - 1]] for number in numbers]
        hits = [rank for rank in fitting if rank is not None]
        counts = {"alarms": len(fitting) - len(hits), "others": len(subject.others)}
        # Of a short list some of the first triggers were held back: what they have is known by now.
        covers = tuple(sorted({*pattern.covers, *(rank for rank in hits if rank <= TRIGGERS)}))
        detection = balanced_accuracy(len(hits), len(subject.held), **counts)
        p_value = chance(len(hits), len(subject.held), **counts)
        tested.append(replace(pattern, covers=covers, detection=detection, p_value=p_value))
    return tested


def _annotator(model: str) -> str:
    # A server that was given a file calls its model by the whole path, which says more of the machine than of the model.
    return f"llm:{visible(public_name(model.strip(), hub=True), 80)}"


def _report_failures(labels: Labels) -> None:
    if not labels.failed:
        return
    memory, why = next(iter(labels.failed.items()))
    count = f"{len(labels.failed)} of {len(labels.failed) + len(labels.patterns)} memories"
    said = f"{labels.annotator} gave no labels that can be read for {count}, such as {memory}: {why}"
    if not labels.patterns:
        raise LabellerError(f"{said} Try another model, or allow it longer answers with --labeller-max-tokens.")
    log.warning("%s", said)


def _note(study: Study, endpoint: Endpoint, labels: Labels, *, seed: int, seconds: float) -> None:
    """Say in study.json what was done, and what it cost in all, whenever that was paid."""
    total = labels.cost.paid + labels.cost.kept
    study.finish(
        "labels",
        {},
        seconds=seconds,
        endpoint=endpoint.address.shown,
        model=visible(endpoint.model, 200),
        annotator=labels.annotator,
        seed=seed,
        memories=len(labels.patterns),
        without_pattern=[str(memory) for memory, patterns in labels.patterns.items() if not patterns],
        failed=[str(memory) for memory in labels.failed],
        requests=total.requests,
        prompt_tokens=total.prompt,
        completion_tokens=total.completion,
    )
