"""The commands that look at a finished study: parse, call, print."""

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
    memory: Annotated[str, typer.Argument(metavar="MEMORY", help="Such as L3.17.")],
    count: Annotated[int, typer.Option(min=1, help="Triggers shown.")] = 25,
    json_: Json = False,
) -> None:
    """Print a memory's triggers: the prefix, its last token shaded by the coefficient, and the token that follows."""
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
    """Let people say what the prefixes of memories share: write a sheet to fill in, read it back, see who agrees with whom.

    With --annotator it writes a sheet, with --read too it reads one back, and alone it shows who did how much and how far they
    agree with each other and with the machine, whose patterns no sheet shows. Needs no model.
    """
    from ffscope.annotating.step import annotate
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
    """Find memories by the text of their triggers, by a token that they promote, by pattern, by any measure. Needs no model."""
    from ffscope.queries.search import Wanted, search

    said = {"trigger": trigger, "promotes": promotes, "pattern": pattern, "kind": kind, "layers": layers, "sort": sort}
    said["loose"] = "yes" if loose else ""
    found = search(study, Wanted.parse({**said, **parse_where(where or [])}, limit=count))
    if json_:
        out.print_json(json.dumps(asdict(found)))
    else:
        print_matches(found)


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
    """Open a study in the browser: look, search, type a prompt, switch memories off, annotate.

    The model is loaded while the pages are open already; with --no-model, or without torch, everything that only reads works.
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
    """Write the explorer's read-only pages as files that open from the disk or any web host. Needs no model."""
    from ffscope.web.export import export

    with showing_progress() as progress:
        made = export(study, out_, names=memories, sample=sample, progress=progress)
    print_exported(made)


def parse_where(terms: list[str]) -> dict[str, str]:
    """`["precision=0.2..", "agrees=yes"]` by name."""
    from ffscope.queries.search import answers, choices, ranges

    known = (*ranges(), *answers(), *choices())
    parsed: dict[str, str] = {}
    for term in terms:
        name, sign, text = (part.strip() for part in term.partition("="))
        if not sign or name not in known:
            raise InputError(
                f"--where names a measure and its range, such as precision=0.2.. or agrees=yes; found {term!r}. "
                f"Measures: {', '.join(known)}."
            )
        parsed[name] = text
    return parsed
