"""Checks before a command starts, and loading the model."""

import gc
import sys
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from ffscope.cli.output import print_line
from ffscope.cli.progress_output import working
from ffscope.errors import SourceError
from ffscope.options.corpus import CorpusOptions
from ffscope.options.model import LoadOptions, ReloadOptions
from ffscope.options.serve import LiveOptions

if TYPE_CHECKING:
    from ffscope.live.model import Live
    from ffscope.models.memory_model import MemoryModel
    from ffscope.web.model_queue import ModelQueue


def load_for_search(model: str, corpus: CorpusOptions, out: Path, load: LoadOptions) -> "MemoryModel":
    """The model of a new study. Errors in the folder or the corpora are raised before it is loaded."""
    from ffscope.corpus.documents import Corpus
    from ffscope.study.folder import check_folder_is_free

    check_folder_is_free(out)
    for source in (corpus.corpus, corpus.held_out):
        if source is not None:
            Corpus(source)
    return load_model(model, load)


def load_model(model: str, load: LoadOptions) -> "MemoryModel":
    """A model by its source."""
    with working(f"Loading {model} …"):
        from ffscope.models import loading

        memory_model = loading.load(
            model,
            load.device,
            load.dtype,
            trust_remote_code=load.trust_remote_code,
            model_type=load.model_type,
            device_map=load.device_map,
        )
        _exclude_imports_from_collection()
        return memory_model


def _exclude_imports_from_collection() -> None:
    """Save the second that searching torch and transformers for garbage takes at the end of a command."""
    if "duckdb" not in sys.modules:  # which would report its own objects as leaked
        gc.freeze()


def load_again(folder: Path, reload: ReloadOptions) -> "MemoryModel":
    """The model of a study, from the source and in the precision that the study records."""
    from ffscope.study.folder import Study

    study = Study.open(folder)
    study.need("triggers")
    recorded = study.manifest["model"]
    source = reload.model or recorded["source"]
    try:
        options = LoadOptions(
            trust_remote_code=reload.trust_remote_code,
            model_type=reload.model_type or recorded.get("model_type"),
            device=reload.device,
            device_map=reload.device_map,
            dtype=recorded["dtype"],
        )
        return load_model(source, options)
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


def _load_live(folder: Path, live: LiveOptions, reload: ReloadOptions) -> "Live":
    from ffscope.study.folder import Study

    loaded = load_again(folder, reload)
    from ffscope.live.model import Live
    from ffscope.models.fingerprint import manifest_entry

    study = Study.open(folder)
    study.refuse_other_model(manifest_entry(loaded))
    lens = {"lens": study.settings["lens"]} if "lens" in study.settings else {}
    return Live(loaded, bos=study.settings["bos"], **lens, tokens=live.max_tokens, new_tokens=live.max_new_tokens)
