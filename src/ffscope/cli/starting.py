"""What a command does before its work: see that it can be done, load the model, turn options into what the library takes."""

from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ffscope.cli.output import print_line, working
from ffscope.errors import InputError, SourceError
from ffscope.memory_name import parse_layers, parse_numbers

if TYPE_CHECKING:
    from ffscope.labelling.cost import Price
    from ffscope.labelling.endpoint import Endpoint
    from ffscope.live.model import Live
    from ffscope.models.memory_model import MemoryModel
    from ffscope.web.model_queue import ModelQueue

_ANALYSING = ("lens", "examples", "mutation_memories", "mutation_triggers", "pattern_triggers", "encoder")
_LABELLING = {"model": "labeller_model", "timeout": "labeller_timeout", "max_tokens": "labeller_max_tokens"}


def begin_search(given: dict[str, Any]) -> tuple["MemoryModel", dict[str, Any]]:
    """The model, and the arguments of a search, from all options of `triggers` or `run` by their names."""
    check_early(given["out_"], given["corpus"], given["held_out"])
    with working(f"Loading {given['model']} …"):
        from ffscope.models.loading import load
        from ffscope.options.corpus import CorpusOptions
        from ffscope.options.search import SearchOptions

        loaded = load(given["model"], given["device"], given["dtype"], trust_remote_code=given["trust_remote_code"])
    layers, memories = given["layers"], given["memories"]
    searching = SearchOptions(
        layers=None if layers is None else parse_layers(layers, loaded.layers),
        memories=None if memories is None else parse_numbers(memories, max(loaded.memories), "memories"),
        **{name: given[name] for name in ("top", "prefixes", "bos", "negative", "seed", "batch_tokens", "minutes")},
    )
    names = ("corpus", "held_out", "sentences", "max_tokens", "language", "field", "dedupe")
    return loaded, {
        "reading": CorpusOptions(**{name: given[name] for name in names}),
        "out": given["out_"],
        "searching": searching,
        "checkpoint_every": given["checkpoint"],
        **{name: given[name] for name in _ANALYSING if name in given},
    }


def load_again(folder: Path, model: str | None, *, device: str, trust_remote_code: bool) -> "MemoryModel":
    """The model of a study, from where the study says it is, in the precision that it was studied in."""
    from ffscope.study.folder import Study

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


def model_queue(given: dict[str, Any]) -> "ModelQueue":
    """The model of a served study, by all options of `serve`: it is loaded when the server starts, or there is a reason why not."""
    from importlib.util import find_spec

    from ffscope.web.model_queue import ModelQueue

    if given["no_model"]:
        return ModelQueue(None, why="Run ffscope serve without --no-model.")
    if find_spec("torch") is None or find_spec("transformers") is None:
        why = "This machine has no torch or no transformers. Install both, and run ffscope serve again."
        return ModelQueue(None, why=why)
    from ffscope.web.model_threads import Threads, sleep_while_waiting

    sleep_while_waiting()
    return ModelQueue(partial(_load_live, given), before=Threads().choose, report=print_line)


def _load_live(given: dict[str, Any]) -> "Live":
    from ffscope.study.folder import Study

    loaded = load_again(
        given["study"], given["model"], device=given["device"], trust_remote_code=given["trust_remote_code"]
    )
    from ffscope.live.model import Live
    from ffscope.models.fingerprint import account

    study = Study.open(given["study"])
    study.refuse_other_model(account(loaded))
    lens = {"lens": study.settings["lens"]} if "lens" in study.settings else {}
    limits = {"tokens": given["max_tokens"], "new_tokens": given["max_new_tokens"]}
    return Live(loaded, bos=study.settings["bos"], **lens, **limits)


def parse_where(terms: list[str]) -> dict[str, str]:
    """`["precision=0.2..", "agrees=yes"]` by name."""
    from ffscope.queries.search import ANSWERS, RANGES

    found: dict[str, str] = {}
    for term in terms:
        name, sign, said = (part.strip() for part in term.partition("="))
        if not sign or name not in (*RANGES, *ANSWERS):
            raise InputError(
                f"--where names a measure and its range, such as precision=0.2.. or agrees=yes; found {term!r}. "
                f"Measures: {', '.join((*RANGES, *ANSWERS))}."
            )
        found[name] = said
    return found


def load_reader(given: dict[str, Any]) -> "MemoryModel | None":
    """The model that reads what prefixes mean, by all options of `patterns`; None where an encoder does, or all is done."""
    from ffscope.study.folder import Study

    study = Study.open(given["study"])
    study.need("triggers")
    with working("Looking for an encoder …"):
        from ffscope.analysis.patterns import is_done, reads_by
        from ffscope.models.encoder import INSTALL, is_there

    if is_done(study, given["encoder"], given["pattern_triggers"]) or is_there(reads_by(study, given["encoder"])):
        return None
    more = {name: given[name] for name in ("device", "trust_remote_code")}
    try:
        return load_again(given["study"], given["model"], **more)
    except SourceError as error:
        raise SourceError(f"{error} Or install an encoder, which needs no model: {INSTALL}") from error


def find_labeller(given: dict[str, Any]) -> "tuple[Endpoint, Price | None] | None":
    """The language model that names patterns, where one is asked for, and what it costs: known before the work begins."""
    if given["labeller"] is None:
        return None
    from ffscope.labelling.cost import Price
    from ffscope.labelling.endpoint import Endpoint

    price = None if given["labeller_price"] is None else Price.parse(given["labeller_price"])
    return Endpoint(given["labeller"], **{name: given[option] for name, option in _LABELLING.items()}), price


def check_early(folder: Path, *sources: str | None) -> None:
    """Say what is wrong with a study's folder or its corpora before a model is loaded."""
    from ffscope.corpus.documents import Corpus
    from ffscope.study.folder import refuse_foreign

    refuse_foreign(folder)
    for source in sources:
        if source is not None:
            Corpus(source)
