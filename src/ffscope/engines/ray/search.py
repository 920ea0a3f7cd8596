"""The search on a cluster: shards of the text and the states of finished ones lie on storage, and workers merge the states."""

import json
import logging
import platform
import shutil
import threading
import time
import uuid
from collections.abc import Callable
from queue import Empty, SimpleQueue
from typing import Any

import numpy as np
from safetensors.numpy import load as load_arrays
from safetensors.numpy import save as save_arrays
from safetensors.torch import load_file, save_file

from ffscope.corpus.batches import Batch
from ffscope.corpus.reading import Reading
from ffscope.engines.base import SearchResult
from ffscope.engines.ray.pool import Pool, SentJob, Task
from ffscope.engines.ray.storage import Storage
from ffscope.engines.ray.tree import Node, Tree
from ffscope.engines.ray.worker import Job
from ffscope.errors import EngineError, StudyError
from ffscope.models.memory_model import MemoryModel
from ffscope.progress import Progress, ProgressCallback
from ffscope.search.checkpoint import SHARDS
from ffscope.search.execute import execute
from ffscope.search.merge import State, merge
from ffscope.search.plan import Plan, Shard, check_prefixes, shards
from ffscope.search.state_copy import start_copy
from ffscope.study.folder import Study

logger = logging.getLogger(__name__)

StateCopy = Callable[[], State]
_FORMAT = 1  # increases when the files of an unfinished search change
_POLL = 0.2  # seconds
_ROOT = "root.safetensors"  # the state of all shards
_BEGUN = "begun"  # a file that shows a worker that it sees the storage


class SearchShard(Job):
    """Searches a shard: its batches are read from the storage, its state is written there.

    What a worker has found in its earlier shards bounds what can matter in the next one, whose lists then need not fill anew.
    """

    def __init__(self, storage: Storage, plan: Plan) -> None:
        self.storage, self.plan = storage, plan
        self._searched: set[int] = set()  # the shards of the state of all that this worker has searched
        self._state: State | None = None

    def load(self, value: int) -> tuple[int, list[Batch] | None]:
        """The batches of a shard; None if a worker that was thought lost has finished it."""
        try:
            return value, _batches(self.storage.read(_shard_file(value)))
        except FileNotFoundError:
            if self.storage.has(_state_file(Node(0, value).name)):
                return value, None
            if self.storage.has(_BEGUN):
                raise
            raise EngineError(
                f"The worker on {platform.node()} does not see the files that the driver wrote to {self.storage.url}. Name storage "
                "that all machines share with --storage: a folder of a network file system, or a URL such as s3://bucket/folder."
            ) from None

    def compute(self, model: MemoryModel, value: tuple[int, list[Batch] | None]) -> tuple[int, StateCopy | None]:
        """The state of a shard, which is being copied to main memory."""
        number, batches = value
        if batches is None:
            return number, None
        search = self.plan.search(model)
        if self._state is not None:
            search.accumulators.skip_below(self._state)
        state = execute(search, batches)
        copy = start_copy(state)
        if number not in self._searched:  # with a shard that runs again, its keys would count twice
            self._searched.add(number)
            self._state = dict(state) if self._state is None else merge([self._state, state])
        return number, copy

    def save(self, result: tuple[int, StateCopy | None]) -> None:
        """Write the state; then the text is no longer needed. A GPU computes the next shard meanwhile."""
        number, copy = result
        if copy is not None:
            _write_state(self.storage, Node(0, number).name, copy())
            self.storage.delete(_shard_file(number))


class MergeStates(Job):
    """Merges states into one, reading one at a time, so that a worker never holds more than three."""

    model = exclusive = False

    def __init__(self, storage: Storage) -> None:
        self.storage = storage

    def compute(self, model: None, value: tuple[list[str], str]) -> None:
        """Merge some files into another, which replaces them."""
        sources, target = value
        if not self.storage.has(_state_file(target)):  # else a worker that is lost had merged them
            _write_state(self.storage, target, merge(_read_state(self.storage, name) for name in sources))
        self.storage.delete(*map(_state_file, sources))


def _write_state(storage: Storage, name: str, state: State) -> None:
    with storage.writing(_state_file(name)) as path:
        save_file({name: tensor.contiguous() for name, tensor in state.items()}, path)


def _read_state(storage: Storage, name: str) -> State:
    with storage.reading(_state_file(name)) as path:
        return load_file(path)  # maps the file, which may then be deleted


def _state_file(name: str) -> str:
    return f"states/{name}"


def _shard_file(number: int) -> str:
    return f"shards/{number:08}.safetensors"


def _content(shard: Shard) -> bytes:
    arrays = {
        f"{place}.{name}": np.ascontiguousarray(array)
        for place, batch in enumerate(shard.batches)
        for name, array in batch._asdict().items()
    }
    return save_arrays(arrays)


def _batches(content: bytes) -> list[Batch]:
    arrays = load_arrays(content)
    count = len(arrays) // len(Batch._fields)
    return [Batch(*(arrays[f"{place}.{name}"] for name in Batch._fields)) for place in range(count)]


class Note:
    """What a study knows about its search on a cluster: the plan, where its files lie, and how long it has taken."""

    def __init__(self, study: Study, content: dict[str, Any]) -> None:
        self.study, self.content = study, content

    @classmethod
    def of(cls, study: Study) -> "Note | None":
        """The note of an unfinished search, if there is one. What was searched under an uncertain plan is discarded."""
        path = study.path(SHARDS)
        if not path.is_file():
            return None
        content = json.loads(path.read_text(encoding="utf-8"))
        if content.get("format") != _FORMAT:
            raise StudyError(
                f"{path} was written by another version of ffscope, so this one cannot resume the search. Resume it with that "
                f"version, or delete {SHARDS} to restart the search."
            )
        note = cls(study, content)
        if not content["certain"]:
            note.discard()
            return None
        return note

    @classmethod
    def new(cls, study: Study, plan: Plan, storage: str | None) -> "Note":
        """The note of a search that begins. Its folder has a new name, since a task of an earlier one may still write to that."""
        base = str(study.path(".triggers").resolve()) if storage is None else storage.rstrip("/")
        content = {
            "format": _FORMAT,
            "settings": plan.settings,
            "total": plan.total,
            "corpus": plan.corpus,
            "certain": plan.total is not None,
            "storage": f"{base}/{study.folder.resolve().name}-{uuid.uuid4().hex[:12]}",
            "seconds": 0.0,
        }
        note = cls(study, content)
        note.save()
        return note

    @property
    def storage(self) -> Storage:
        """Where its files lie."""
        return Storage(self.content["storage"])

    def save(self) -> None:
        """Write the note into the study."""
        with self.study.replacing(SHARDS) as path:
            path.write_text(json.dumps(self.content), encoding="utf-8")

    def discard(self) -> None:
        """Delete everything that belongs to the search. The note goes last, since it says where the rest is."""
        self.storage.drop()
        self.study.path(SHARDS).unlink(missing_ok=True)
        shutil.rmtree(self.study.path(".triggers"), ignore_errors=True)


class ClusterSearch:
    """One search of a study, new or resumed."""

    def __init__(
        self,
        pool: Pool,
        reading: Reading,
        plan: Plan,
        note: Note,
        search_job: SentJob,
        merge_job: SentJob,
        progress: ProgressCallback,
    ) -> None:
        self.pool, self.reading, self.plan, self.note, self._progress = pool, reading, plan, note, progress
        self._search, self._merge = search_job, merge_job
        self.storage = note.storage
        files = self.storage.names("states")
        self.finished = _ROOT in files
        self.tree, self._earlier = (Tree(map(Node.parse, files - {_ROOT})) for _ in range(2))
        self.storage.delete(*(_state_file(node.name) for node in self.tree.superseded))
        self.storage.write(_BEGUN, b"")
        self._sizes: dict[int, tuple[int, int]] = {}  # of the shards that are written: sentences and prefixes
        self._written: SimpleQueue[int | BaseException | None] = SimpleQueue()
        self._stopped = threading.Event()
        self._all_written = False
        self._done = self._sentences = self._prefixes = self._prefixes_before = 0

    def run(self, checkpoint_every: float) -> SearchResult | None:
        """Search the shards that are not finished, and merge all states. None if the plan assumed too much text."""
        start = saved = time.perf_counter()
        earlier = self.note.content["seconds"]
        threading.Thread(target=self._write_shards, name="shards", daemon=True).start()
        try:
            for merge_next in self.tree.complete():
                self._submit_merge(merge_next)
            while not self._all_written or self.pool.outstanding:
                if self.plan.assumes_too_much(self.reading):
                    return None
                self._submit_written()
                for task, _ in self.pool.step(_POLL):
                    self._take(task)
                now = time.perf_counter()
                self.note.content["seconds"] = earlier + now - start
                self._report(now - start)
                if self._becomes_certain() or now - saved > checkpoint_every:
                    self.note.save()
                    saved = now
            return SearchResult(self._root(), earlier + time.perf_counter() - start)
        finally:
            self._stopped.set()
            self.note.save()

    def _becomes_certain(self) -> bool:
        """Whether the plan is certain from now on, so that what is done can be kept, also by a run that has read less again."""
        if self.note.content["certain"] or not self.plan.is_certain(self.reading):
            return False
        self.note.content["certain"] = True
        return True

    def _write_shards(self) -> None:
        """Write the text to the storage, in a thread of its own: shard by shard, as it is read."""
        try:
            there = self.storage.names("shards")
            for shard in shards(self.plan, self.reading):
                if self._stopped.is_set():
                    return
                sentences = sum(len(batch.sentences) for batch in shard.batches)
                self._sizes[shard.number] = sentences, sum(batch.tokens.size for batch in shard.batches)
                name = _shard_file(shard.number)
                if not self._is_done(shard.number) and name.rpartition("/")[2] not in there:
                    self.storage.write(name, _content(shard))
                self._written.put(shard.number)
            self._written.put(None)
        except BaseException as error:  # raised again in the thread that searches
            self._written.put(error)

    def _is_done(self, shard: int) -> bool:
        """Whether a shard was finished before this run."""
        return self.finished or self._earlier.has(shard)

    def _submit_written(self) -> None:
        """Hand out the shards that have been written, as long as workers have room."""
        while not self._all_written and self.pool.has_room:
            try:
                number = self._written.get_nowait()
            except Empty:
                return
            if isinstance(number, BaseException):
                self.reading.report()  # which raises the error of the reading, if that is the reason
                raise number
            if number is None:
                self._all_written = True
            elif self._is_done(number):
                self._count(number, before=True)
            else:
                self.pool.submit(Task("the search", number, self._search, number))

    def _take(self, task: Task) -> None:
        """Note a finished shard or merge, and merge what is now complete."""
        if task.job is self._search:
            self._count(task.number)
        node = Node(0, task.number) if task.job is self._search else Node.parse(task.value[1])
        merge_next = self.tree.add(node)
        if merge_next is not None:
            self._submit_merge(merge_next)

    def _submit_merge(self, node: Node) -> None:
        names = [child.name for child in node.children]
        task = Task(f"the merge of level {node.level}", node.number, self._merge, (names, node.name), extra=True)
        self.pool.submit(task, first=True)

    def _root(self) -> State:
        """The state of all shards. The last merge is of what is left on each level."""
        names = [node.name for node in sorted(self.tree.nodes)]
        if not self.finished and len(names) != 1:
            self.pool.submit(Task("the last merge", 0, self._merge, (names, _ROOT), extra=True))
            while self.pool.outstanding:
                self.pool.step(_POLL)
            names = [_ROOT]
        return _read_state(self.storage, _ROOT if self.finished else names[0])

    def _count(self, number: int, *, before: bool = False) -> None:
        sentences, prefixes = self._sizes[number]
        self._done += 1
        self._sentences += sentences
        self._prefixes += prefixes
        if before:
            self._prefixes_before += prefixes
        check_prefixes(self._prefixes)

    def _report(self, seconds: float) -> None:
        """Report the progress of the search, and that of the reading beside it."""
        self.reading.report()
        total = self.plan.total or self.reading.searched
        rate = (self._prefixes - self._prefixes_before) / seconds
        left = None if total is None or not rate else (total["prefixes"] - self._prefixes) / rate
        shards_done = (
            f"{self._done:,} of {len(self._sizes):,} shards" if self._all_written else f"{self._done:,} shards"
        )
        self._progress(
            Progress(
                "searching",
                self._sentences,
                None if total is None else total["sentences"],
                rate=rate,
                left=left,
                detail=f"{shards_done}, {self.pool.detail}",
            )
        )
