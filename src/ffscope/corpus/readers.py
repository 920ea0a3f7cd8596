"""Splits paragraphs into sentences in several processes, in order."""

import logging
import os
import pickle
import subprocess
import sys
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import AbstractContextManager, contextmanager, suppress
from queue import SimpleQueue
from typing import Any, Protocol, TypeVar

from ffscope.corpus.reader_process import Answer
from ffscope.corpus.sentences import Sentences, SentenceSplitter
from ffscope.errors import CorpusError

logger = logging.getLogger(__name__)

Label = TypeVar("Label")
_MOST = 16  # readers by default
_FEWEST_CORES = 4  # on fewer, the threads of the tokenizer in one process are faster
_AHEAD = 3  # groups per reader that are read ahead
_ONE_THREAD = {"RAYON_NUM_THREADS": "1", "OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"}  # in each process


class Splitter(Protocol):
    """Splits groups of paragraphs into sentences."""

    def split(self, groups: Iterable[tuple[Label, list[str]]]) -> Iterator[tuple[Label, Sentences]]:
        """The sentences of each group, with its label, in the order of the groups."""


Splitting = Callable[[SentenceSplitter, int], AbstractContextManager[Splitter]]
"""Gives what splits the text, for a number of readers."""


def default_readers() -> int:
    """One reader for each core that this process may use, up to 16; a single one, in this process, on fewer than four cores."""
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    return min(_MOST, cores) if cores >= _FEWEST_CORES else 1


@contextmanager
def splitting(splitter: SentenceSplitter, readers: int) -> Iterator[Splitter]:
    """Splits groups of paragraphs: with one reader in this process, else in that many others."""
    processes = _start(splitter, readers) if readers > 1 else []
    if not processes:
        yield _Here(splitter)
        return
    threads = ThreadPoolExecutor(len(processes), "reader")
    try:
        yield _Elsewhere(processes, threads)
    finally:
        threads.shutdown(wait=False, cancel_futures=True)
        for process in processes:
            process.stop()  # which also ends the thread that waits for its answer
        threads.shutdown()


class _Here:
    """Splits in this process."""

    def __init__(self, splitter: SentenceSplitter) -> None:
        self._splitter = splitter

    def split(self, groups: Iterable[tuple[Label, list[str]]]) -> Iterator[tuple[Label, Sentences]]:
        """The sentences of each group of paragraphs, with its label."""
        for label, texts in groups:
            yield label, self._splitter.split(texts)


class _Elsewhere:
    """Splits in other processes. A thread per process sends it a group and waits for the answer."""

    def __init__(self, processes: list["_Process"], threads: ThreadPoolExecutor) -> None:
        self._threads, self._ahead = threads, _AHEAD * len(processes)
        self._idle: SimpleQueue[_Process] = SimpleQueue()
        for process in processes:
            self._idle.put(process)

    def split(self, groups: Iterable[tuple[Label, list[str]]]) -> Iterator[tuple[Label, Sentences]]:
        """The sentences of each group of paragraphs, with its label, in the order of the groups."""
        waiting: deque[tuple[Label, Future[Sentences]]] = deque()
        for label, texts in groups:
            waiting.append((label, self._threads.submit(self._split, texts)))
            while waiting and (len(waiting) >= self._ahead or waiting[0][1].done()):
                label, future = waiting.popleft()
                yield label, future.result()
        for label, future in waiting:
            yield label, future.result()

    def _split(self, texts: list[str]) -> Sentences:
        process = self._idle.get()
        try:
            return process.ask(texts)
        finally:
            self._idle.put(process)


class _Process:
    """One reader process."""

    def __init__(self) -> None:
        # Neither multiprocessing nor a fork: the first imports the caller's script again, which may not be prepared for that; a
        # fork of a process with threads and a GPU can hang.
        path = os.pathsep.join(folder for folder in sys.path if folder)
        environment = {**os.environ, "PYTHONPATH": path, "TOKENIZERS_PARALLELISM": "false", **_ONE_THREAD}
        self._process = subprocess.Popen(
            [sys.executable, "-P", "-c", "from ffscope.corpus.reader_process import main; main()"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            env=environment,
            start_new_session=True,  # Ctrl-C is for this process alone
        )

    def exchange(self, request: bytes) -> Any:
        """Send a pickled request and wait for its result."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(request)
        self._process.stdin.flush()
        answer: Answer = pickle.load(self._process.stdout)
        if answer.error is not None:
            raise CorpusError(f"A reader process failed: {answer.error}. To read in the main process, use --readers 1.")
        return answer.result

    def ask(self, request: Any) -> Any:
        """Send a request and wait for its result; explain if the process ended."""
        try:
            return self.exchange(pickle.dumps(request, pickle.HIGHEST_PROTOCOL))
        except (EOFError, BrokenPipeError, pickle.UnpicklingError) as error:
            raise CorpusError(
                f"A reader process ended unexpectedly, with exit status {self._process.wait()}. It may have run out of memory: use "
                "fewer with --readers. Run the same command to resume."
            ) from error

    def stop(self) -> None:
        """End the process."""
        self._process.kill()
        self._process.wait()
        for pipe in (self._process.stdin, self._process.stdout):
            with suppress(OSError, ValueError):
                pipe and pipe.close()


def _start(splitter: SentenceSplitter, readers: int) -> list[_Process]:
    """Processes that have the splitter; none if it cannot be sent to them, such as a tokenizer defined in a notebook."""
    try:
        request = pickle.dumps(splitter, pickle.HIGHEST_PROTOCOL)
    except Exception as error:
        logger.info("Reading in one process, since the tokenizer cannot be sent to others: %s.", error)
        return []
    processes = [_Process() for _ in range(readers)]
    try:
        with ThreadPoolExecutor(readers) as threads:  # at once: each waits until its process is ready
            list(threads.map(lambda process: process.exchange(request), processes))
    except (OSError, EOFError, CorpusError, pickle.UnpicklingError) as error:
        logger.info("Reading in one process, since others cannot load the tokenizer: %s", error)
        for process in processes:
            process.stop()
        return []
    return processes
