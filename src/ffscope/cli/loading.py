"""Checks before a command starts, and loading the model."""

import gc
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from ffscope.cli.output import print_line
from ffscope.cli.progress_output import working
from ffscope.errors import SourceError
from ffscope.options.corpus import CorpusOptions
from ffscope.options.engine import EngineOptions
from ffscope.options.model import LoadOptions, ReloadOptions
from ffscope.options.serve import LiveOptions

if TYPE_CHECKING:
    from ffscope.engines.base import Engine
    from ffscope.live.model import Live
    from ffscope.models.memory_model import MemoryModel
    from ffscope.web.model_queue import ModelQueue


def check_inputs(corpus: CorpusOptions, out: Path) -> None:
    """Raise for errors in the folder or the corpora of a new study, before its model is loaded."""
    from ffscope.corpus.documents import Corpus
    from ffscope.study.folder import check_folder_is_free

    check_folder_is_free(out)
    for source in (corpus.corpus, corpus.held_out):
        if source is not None:
            Corpus(source)


@contextmanager
def starting(source: str | None, load: LoadOptions, options: EngineOptions) -> "Iterator[Engine]":
    """The engine of a command, with its model: loaded here, or by workers that start and end with the block."""
    options = options.resolved()
    if options.engine == "local":
        from ffscope.engines.local import LocalEngine

        yield LocalEngine(None if source is None else load_model(source, load))
        return
    from ffscope.engines import start_engine

    with ExitStack() as stack:
        with working("Starting Ray …" if options.ray_address is None else "Connecting to Ray …"):
            engine = stack.enter_context(start_engine(source, options, **load.arguments))
        with working(f"Loading {source} …" if source else "Starting workers …"):
            _ = engine.info if source else None  # waits for the first worker
            _exclude_imports_from_collection()
        yield engine


def load_model(model: str, load: LoadOptions) -> "MemoryModel":
    """A model by its source."""
    with working(f"Loading {model} …"):
        from ffscope.models import loading

        memory_model = loading.load(model, **load.arguments)
        _exclude_imports_from_collection()
        return memory_model


def _exclude_imports_from_collection() -> None:
    """Save the second that searching torch and transformers for garbage takes at the end of a command."""
    if "duckdb" not in sys.modules:  # which would report its own objects as leaked
        gc.freeze()


def load_again(folder: Path, reload: ReloadOptions) -> "MemoryModel":
    """The model of a study, from the source and in the precision that the study records."""
    with _naming_the_source(folder, reload):
        return load_model(*_recorded(folder, reload))


@contextmanager
def starting_again(folder: Path, reload: ReloadOptions, options: EngineOptions) -> "Iterator[Engine]":
    """The engine of a stage, with the study's model."""
    with ExitStack() as stack:
        with _naming_the_source(folder, reload):
            engine = stack.enter_context(starting(*_recorded(folder, reload), options))
        yield engine


def _recorded(folder: Path, reload: ReloadOptions) -> tuple[str, LoadOptions]:
    """Where the model of a study is, and how it is loaded."""
    from ffscope.study.folder import Study

    recorded = Study.open(folder).manifest["model"]
    options = LoadOptions(
        trust_remote_code=reload.trust_remote_code,
        model_type=reload.model_type or recorded.get("model_type"),
        device=reload.device,
        device_map=reload.device_map,
        dtype=recorded["dtype"],
    )
    return reload.model or recorded["source"], options


@contextmanager
def _naming_the_source(folder: Path, reload: ReloadOptions) -> Iterator[None]:
    try:
        yield
    except SourceError as error:
        if reload.model is not None:
            raise
        raise SourceError(
            f"{error} This is the source that {folder} records; name another one with --model."
        ) from error


def model_queue(folder: Path, live: LiveOptions, reload: ReloadOptions) -> "ModelQueue":
    """The queue of a served study's model, which loads when the server starts; without a model, it has the reason."""
    from importlib.util import find_spec

    from ffscope.web.model_queue import ModelQueue

    if live.no_model:
        return ModelQueue(None, why="Run ffscope serve without --no-model.")
    if find_spec("torch") is None or find_spec("transformers") is None:
        why = "torch or transformers is not installed. Install both and run ffscope serve again."
        return ModelQueue(None, why=why)
    from ffscope.web.model_threads import Threads, sleep_while_waiting

    sleep_while_waiting()
    return ModelQueue(partial(_load_live, folder, live, reload), before=Threads().choose, report=print_line)


def refuse_other_model(folder: Path, model: "MemoryModel") -> None:
    """Raise if a model is not that of a study."""
    from ffscope.models.fingerprint import manifest_entry
    from ffscope.study.folder import Study

    Study.open(folder).refuse_other_model(manifest_entry(model))


def _load_live(folder: Path, live: LiveOptions, reload: ReloadOptions) -> "Live":
    from ffscope.study.folder import Study

    loaded = load_again(folder, reload)
    from ffscope.live.model import Live

    study = Study.open(folder)
    refuse_other_model(folder, loaded)
    lens = {"lens": study.settings["lens"]} if "lens" in study.settings else {}
    return Live(
        loaded, bos=study.settings["bos"], **lens, study=folder, tokens=live.max_tokens, new_tokens=live.max_new_tokens
    )
