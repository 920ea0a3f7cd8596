"""A language model as labeller: it names the patterns of some memories, and its labels are tested on held-back prefixes."""

import logging
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass, replace

import numpy as np

from ffscope.errors import InputError, LabellerError
from ffscope.labelling.batch import BatchEndpoint, PendingError
from ffscope.labelling.cache import CachedEndpoint
from ffscope.labelling.cost import Cost, Price
from ffscope.labelling.detection import balanced_accuracy, p_value
from ffscope.labelling.endpoint import Endpoint, RefusedError, StoppedError
from ffscope.labelling.prompts import (
    MalformedError,
    ask_parsed,
    detection_messages,
    labelling_messages,
    read_fits,
    read_patterns,
)
from ffscope.labelling.tasks import LabelTask, read_tasks
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
    """A labeller's patterns by memory, which may be empty lists, and why it has no valid answer for some memories."""

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
    """Let a language model label some memories of every layer, or `memories`, and write its rows in patterns.parquet.

    Answers are stored in the study folder at once; an interrupted call resumes and pays only for the missing answers. With
    `batch`, questions go to the server's batch interface.
    """
    study.need("patterns")
    start = time.perf_counter()
    seed = study.settings["seed"] if seed is None else seed
    chosen = _draw(study, memories_per_layer, seed) if memories is None else memories
    if not chosen:
        raise InputError(
            f"{study.folder} has no memory to label: none has the {LEAST} triggers that a pattern needs. Search a larger corpus."
        )
    tasks = read_tasks(study, chosen, seed=seed)
    with closing(Answers(study.path(FILE))) as answers:
        cached_endpoint: CachedEndpoint
        if batch:
            cached_endpoint = BatchEndpoint(endpoint, answers, seed=seed, price=price)
            patterns, failed = _ask_in_batches(cached_endpoint, tasks, progress)
        else:
            cached_endpoint = CachedEndpoint(endpoint, answers, seed=seed, price=price)
            patterns, failed = _ask_all(cached_endpoint, tasks, workers, progress)
    labels = Labels(_annotator(endpoint.model), patterns, failed, cached_endpoint.cost)
    _report_failures(labels)
    write_patterns(study, labels.annotator, labels.patterns, replacing=labels.patterns)
    _record(study, endpoint, labels, seed=seed, seconds=time.perf_counter() - start)
    return labels


def run(work: Work) -> str:
    """The stage: labels by the language model given in the options."""
    options = work.options(LabellerOptions)
    with _endpoint(options) as endpoint:
        labels = label(
            work.study,
            endpoint,
            memories_per_layer=options.labeller_memories,
            workers=options.labeller_workers,
            batch=options.labeller_batch,
            price=_price(options),
            progress=work.progress,
        )
    count = sum(map(len, labels.patterns.values()))
    return f"{labels.annotator}: {count:,} patterns of {len(labels.patterns):,} memories; {labels.cost}."


def check_options(options: Options) -> None:
    """Raise if the server cannot be used, before any work is done."""
    labeller_options = options(LabellerOptions)
    if labeller_options.labeller is not None:
        _price(labeller_options)
        with _endpoint(labeller_options):
            pass


def _endpoint(options: LabellerOptions) -> Endpoint:
    if options.labeller is None:
        raise InputError("No language model is given. Give its address with --labeller.")
    return Endpoint(
        options.labeller,
        model=options.labeller_model,
        timeout=options.labeller_timeout,
        max_tokens=options.labeller_max_tokens,
    )


def _price(options: LabellerOptions) -> Price | None:
    return None if options.labeller_price is None else Price.parse(options.labeller_price)


def _draw(study: Study, count: int, seed: int) -> list[Memory]:
    """The memories that people annotate too, without those that have too few triggers for a pattern."""
    return [memory for in_layer in draw_memories(study, count, seed=seed, least=LEAST) for memory in sorted(in_layer)]


def _ask_all(
    endpoint: CachedEndpoint, tasks: list[LabelTask], workers: int, progress: ProgressCallback
) -> tuple[dict[Memory, list[Pattern]], dict[Memory, str]]:
    """The patterns of every task, and why some failed, both in the order of the memories."""
    patterns: dict[Memory, list[Pattern]] = {}
    failed: dict[Memory, str] = {}
    with _thread_pool(endpoint, workers) as pool:
        futures = {pool.submit(_label, endpoint, task): task.memory for task in tasks}
        progress(_progress(0, len(tasks), endpoint.cost))
        for done, future in enumerate(as_completed(futures), 1):
            try:
                patterns[futures[future]] = future.result()
            except (MalformedError, RefusedError) as error:
                failed[futures[future]] = str(error)
            except StoppedError:
                continue  # another thread raises the cause
            progress(_progress(done, len(tasks), endpoint.cost))
    return dict(sorted(patterns.items())), dict(sorted(failed.items()))


def _ask_in_batches(
    batches: BatchEndpoint, tasks: list[LabelTask], progress: ProgressCallback
) -> tuple[dict[Memory, list[Pattern]], dict[Memory, str]]:
    """Like `_ask_all`, in rounds: questions without an answer go into a batch, and their tasks are repeated once it is answered."""
    patterns: dict[Memory, list[Pattern]] = {}
    failed: dict[Memory, str] = {}
    while True:
        for task in tasks:
            if task.memory not in patterns and task.memory not in failed:
                with suppress(PendingError):
                    try:
                        patterns[task.memory] = _label(batches, task)
                    except (MalformedError, RefusedError) as error:
                        failed[task.memory] = str(error)
        progress(_progress(len(patterns) + len(failed), len(tasks), batches.cost))
        if not batches.pending:
            return dict(sorted(patterns.items())), dict(sorted(failed.items()))
        batches.send(progress)


@contextmanager
def _thread_pool(endpoint: CachedEndpoint, workers: int) -> Iterator[ThreadPoolExecutor]:
    """Threads for asking. However the block ends, it waits for the answers to requests in progress and stores them."""
    pool = ThreadPoolExecutor(workers, thread_name_prefix="labeller")
    try:
        yield pool
    except KeyboardInterrupt:
        log.warning("Stopping: waiting for requests in progress, since they are paid for.")
        raise
    finally:
        endpoint.stopped.set()
        pool.shutdown(wait=True, cancel_futures=True)


def _progress(done: int, total: int, cost: Cost) -> Progress:
    return Progress("labels", done, total, unit=f"memories ({cost})")


def _label(endpoint: CachedEndpoint, task: LabelTask) -> list[Pattern]:
    """The patterns of one memory, by descending support, each with its detection score on held-back triggers."""
    question = labelling_messages(task.shown)
    patterns = ask_parsed(endpoint.ask, question, lambda text: read_patterns(text, task.shown.keys()))
    patterns = sorted(patterns, key=lambda pattern: -pattern.support)
    if not patterns or not task.held_back or not task.others:
        return patterns
    try:
        return _tested(endpoint, task, patterns)
    except (MalformedError, RefusedError) as error:
        log.warning("%s: its labels could not be tested. %s", task.memory, error)
        return patterns


def _tested(endpoint: CachedEndpoint, task: LabelTask, patterns: list[Pattern]) -> list[Pattern]:
    """Patterns with their scores. The same model judges which held-back and random prefixes have them."""
    ranks = [*task.held_back, *(None for _ in task.others)]
    texts = [*task.held_back.values(), *task.others]
    order = np.random.default_rng([endpoint.seed, *b"detection", *task.memory]).permutation(len(texts)).tolist()
    fits = ask_parsed(
        endpoint.ask,
        detection_messages(patterns, [texts[place] for place in order]),
        lambda text: read_fits(text, patterns=len(patterns), prefixes=len(texts)),
    )
    tested = []
    for pattern, numbers in zip(patterns, fits, strict=True):
        fitting = [ranks[order[number - 1]] for number in numbers]
        hits = [rank for rank in fitting if rank is not None]
        counts = {"alarms": len(fitting) - len(hits), "others": len(task.others)}
        # From a short list, some of the first triggers were held back; their patterns are known now.
        covers = tuple(sorted({*pattern.covers, *(rank for rank in hits if rank <= TRIGGERS)}))
        detection = balanced_accuracy(len(hits), len(task.held_back), **counts)
        probability = p_value(len(hits), len(task.held_back), **counts)
        tested.append(replace(pattern, covers=covers, detection=detection, p_value=probability))
    return tested


def _annotator(model: str) -> str:
    # A server that loads a file may name its model by the whole path.
    return f"llm:{visible(public_name(model.strip(), hub=True), 80)}"


def _report_failures(labels: Labels) -> None:
    if not labels.failed:
        return
    memory, reason = next(iter(labels.failed.items()))
    count = f"{len(labels.failed)} of {len(labels.failed) + len(labels.patterns)} memories"
    message = f"{labels.annotator} gave no readable labels for {count}, such as {memory}: {reason}"
    if not labels.patterns:
        raise LabellerError(f"{message} Try another model, or allow longer answers with --labeller-max-tokens.")
    log.warning("%s", message)


def _record(study: Study, endpoint: Endpoint, labels: Labels, *, seed: int, seconds: float) -> None:
    """Record in study.json what was done and what it cost in total, including cached answers."""
    total = labels.cost.paid + labels.cost.cached
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
