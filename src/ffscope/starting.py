"""What a command does before its work: see that it can be done, load the model, turn options into what the library takes."""

from pathlib import Path
from typing import TYPE_CHECKING, Any

from ffscope.errors import SourceError
from ffscope.memory import parse_layers, parse_numbers
from ffscope.terminal import working

if TYPE_CHECKING:
    from ffscope.models.memory_model import MemoryModel

_ANALYSING = ("lens", "examples", "mutation_memories", "mutation_triggers")


def begin_search(given: dict[str, Any]) -> tuple["MemoryModel", dict[str, Any]]:
    """The model, and the arguments of a search, from all options of `triggers` or `run` by their names."""
    check_early(given["out_"], given["corpus"], given["held_out"])
    with working(f"Loading {given['model']} …"):
        from ffscope.analysis.sentences import Reading
        from ffscope.analysis.triggers import Searching
        from ffscope.models.loading import load

        loaded = load(given["model"], given["device"], given["dtype"], trust_remote_code=given["trust_remote_code"])
    layers, memories = given["layers"], given["memories"]
    searching = Searching(
        layers=None if layers is None else parse_layers(layers, loaded.layers),
        memories=None if memories is None else parse_numbers(memories, max(loaded.memories), "memories"),
        **{name: given[name] for name in ("top", "prefixes", "bos", "negative", "seed", "batch_tokens", "minutes")},
    )
    names = ("corpus", "held_out", "sentences", "max_tokens", "language", "field", "dedupe")
    return loaded, {
        "reading": Reading(**{name: given[name] for name in names}),
        "out": given["out_"],
        "searching": searching,
        "checkpoint_every": given["checkpoint"],
        **{name: given[name] for name in _ANALYSING if name in given},
    }


def load_again(folder: Path, model: str | None, *, device: str, trust_remote_code: bool) -> "MemoryModel":
    """The model of a study, from where the study says it is, in the precision that it was studied in."""
    from ffscope.study import Study

    study = Study.open(folder)
    study.need("triggers")
    held = study.manifest["model"]
    source = model or held["source"]
    with working(f"Loading {source} …"):
        from ffscope.models.loading import load

        try:
            return load(source, device, held["dtype"], trust_remote_code=trust_remote_code)
        except SourceError as error:
            if model is not None:
                raise
            raise SourceError(
                f"{error} This is where {folder} says its model is; name another place with --model."
            ) from error


def check_early(folder: Path, *sources: str | None) -> None:
    """Say what is wrong with a study's folder or its corpora before a model is loaded."""
    from ffscope.corpus.documents import Corpus
    from ffscope.study import refuse_foreign

    refuse_foreign(folder)
    for source in sources:
        if source is not None:
            Corpus(source)
