"""The commands that read a finished study."""

import json
from dataclasses import asdict
from typing import Annotated

import typer

from ffscope.cli.loading import model_queue
from ffscope.cli.output import print_exported, print_matches, print_memory, print_served
from ffscope.cli.parameters import (
    Annotator,
    Browse,
    ExportMemories,
    ExportSample,
    Host,
    HostNames,
    Json,
    NamedMemories,
    Port,
    ReadSheet,
    Sample,
    SampleSeed,
    SearchKind,
    SearchLayers,
    SearchLimit,
    SearchLoose,
    SearchPattern,
    SearchPromotes,
    SearchSort,
    SearchTrigger,
    SearchWhere,
    Site,
    StudyFolder,
    Token,
)
from ffscope.cli.progress_output import out, showing_progress
from ffscope.cli.signature import command
from ffscope.errors import InputError
from ffscope.options.model import ReloadOptions
from ffscope.options.serve import LiveOptions


@command()
def show(
    study: StudyFolder,
    memory: Annotated[str, typer.Argument(metavar="MEMORY", help="A memory, such as L3.17.")],
    count: Annotated[int, typer.Option(min=1, help="How many triggers to print.")] = 25,
    json_: Json = False,
) -> None:
    """Print a memory: its promoted tokens, its patterns, and its triggers with the last token shaded by the coefficient."""
    from ffscope.queries.memory import memory_page

    page = memory_page(study, memory)
    if json_:
        out.print_json(json.dumps(asdict(page)))
    else:
        print_memory(page, count)


@command()
def annotate(
    study: StudyFolder,
    annotator: Annotator = None,
    sample: Sample = None,
    memories: NamedMemories = None,
    seed: SampleSeed = None,
    read: ReadSheet = None,
    json_: Json = False,
) -> None:
    """Annotate patterns by hand: write a sheet to fill in, read it back, measure agreement between annotators.

    With --annotator it writes a sheet; with --annotator and --read it reads one back; without either it prints how much each
    person has annotated, and how well they agree with each other and with the machine. Sheets do not show the machine's
    patterns. Needs no model.
    """
    from ffscope.annotating.annotate import annotate
    from ffscope.cli.annotation_output import print_step

    step = annotate(study, annotator, sample=sample, names=memories, seed=seed, read=read)
    if json_:
        out.print_json(json.dumps(asdict(step), default=str))
    else:
        print_step(step)


@command()
def search(
    study: StudyFolder,
    trigger: SearchTrigger = "",
    promotes: SearchPromotes = "",
    loose: SearchLoose = False,
    pattern: SearchPattern = "",
    kind: SearchKind = "",
    layers: SearchLayers = "",
    where: SearchWhere = None,
    sort: SearchSort = "",
    count: SearchLimit = 20,
    json_: Json = False,
) -> None:
    """Find memories by trigger text, promoted token, pattern or any measure. Needs no model."""
    from ffscope.queries.search import SearchQuery, search

    terms = {"trigger": trigger, "promotes": promotes, "pattern": pattern, "kind": kind, "layers": layers, "sort": sort}
    terms["loose"] = "yes" if loose else ""
    query = SearchQuery.parse({**terms, **parse_where(where or [])}, limit=count)
    matches = search(study, query)
    if json_:
        out.print_json(json.dumps(asdict(matches)))
    else:
        print_matches(matches, query.measures)


@command()
def serve(
    study: StudyFolder,
    live: LiveOptions,
    reload: ReloadOptions,
    host: Host = "127.0.0.1",
    port: Port = None,
    token: Token = None,
    name: HostNames = None,
    open_: Browse = False,
) -> None:
    """Explore a study in the browser: figures, memories, search, prompts, interventions, annotation.

    The pages are available at once, while the model loads. With --no-model, or without torch, only what needs the model is missing.
    """
    from ffscope.web.serving import Address, exit_now, serve

    queue = model_queue(study, live, reload)
    address = Address(host, port, token, tuple(name or ()))
    serve(study, address, queue, started=lambda link: print_served(link, queue.status().why, browse=open_))
    exit_now()


@command()
def export(
    study: StudyFolder,
    out_: Site,
    memories: ExportMemories = None,
    sample: ExportSample = 10,
) -> None:
    """Write the explorer's read-only pages as files, for any web host or the local disk. Needs no model."""
    from ffscope.web.export import export

    with showing_progress() as progress:
        exported = export(study, out_, names=memories, sample=sample, progress=progress)
    print_exported(exported)


def parse_where(terms: list[str]) -> dict[str, str]:
    """The terms of --where by measure: `["precision=0.2..", "agrees=yes"]` becomes a dictionary."""
    from ffscope.queries.search import answers, choices, ranges

    measures = (*ranges(), *answers(), *choices())
    parsed: dict[str, str] = {}
    for term in terms:
        name, sign, text = (part.strip() for part in term.partition("="))
        if not sign or name not in measures:
            raise InputError(
                f"--where expects a measure and its range, such as precision=0.2.. or agrees=yes; found {term!r}. "
                f"Measures: {', '.join(measures)}."
            )
        parsed[name] = text
    return parsed
