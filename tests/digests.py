"""Digests of everything the program makes for small studies, so that a change of architecture can be seen to change no result.

    python tests/digests.py record FILE     before the change
    python tests/digests.py compare FILE    after it: prints what differs and exits 1 if anything does

Studies of tiny models of every kind are made by the command line; every table, the manifest, the summary, the figures, the report,
and the JSON of every page go into one file of digests, a JSON page key by key. Seconds, versions, dates, ports and what is drawn at
random for each request are left out. The numbers of a model depend on the machine's arithmetic: record and compare on one machine.
"""

import hashlib
import json
import os
import re
import shlex
import sys
import tempfile
from contextlib import chdir
from pathlib import Path

import pyarrow.parquet as pq
import typer
from typer.testing import CliRunner

import endpoints
import tiny
from explorer import PAGE, client_of
from ffscope.cli import app
from studies import write_corpus

SMALL = (
    "--top 6 --examples 40 --mutation-memories 4 --mutation-triggers 5 "
    "--effect-memories 3 --exact-examples 4 --group-examples 4"
)
# Of each study: the family, and the commands that make it; M is the model, T the text, S the study.
STUDIES = {
    "plain": ("opt", [f"run M --corpus T --out S {SMALL} --negative --encoder model", "LABEL", "ANNOTATE", "report S"]),
    "gated": ("llama", [f"run M --corpus T --out S {SMALL} --prefixes all --lens raw --encoder model --seed 3"]),
    "experts": ("mixtral", [f"run M --corpus T --out S {SMALL} --sentences 80 --no-bos --pattern-triggers 5"]),
    "parallel": (
        "gpt_neox",
        [
            "triggers M --corpus T --out S --top 6 --layers 0,2 --no-dedupe",
            "values S --lens raw",
            "agreement S",
            "mutation S --mutation-memories 3 --mutation-triggers 4",
            "composition S --examples 30",
            "refinement S",
            "patterns S --encoder model",
            "report S --bare",
        ],
    ),
    "encoder": ("bert", [f"run M --corpus T --out S {SMALL} --encoder model"]),
    "pair": ("t5", [f"run M --corpus T --out S {SMALL} --encoder model --max-tokens 20"]),
    "adaptive": ("adaptive_lm untied", [f"run M --corpus T --out S {SMALL} --encoder model --held-out T"]),
}
_VOLATILE = {
    "seconds", "tokens_per_second", "versions", "id", "random", "milliseconds", "made", "endpoint", "corpus_files",
}  # fmt: skip
_LINKS = {"text": "the cat sat", "position": "-1"}


def digest(content):
    """A short digest of bytes, or of anything that JSON can hold."""
    if not isinstance(content, bytes):
        content = json.dumps(content, sort_keys=True, ensure_ascii=False, default=str).encode()
    return hashlib.sha256(content).hexdigest()[:16]


def settled(content):
    """The content without what differs from run to run; a command's options are sorted, since their order means nothing."""
    if isinstance(content, dict):
        return {
            name: sorted(shlex.split(value)) if name == "command" and "--" in str(value) else settled(value)
            for name, value in content.items()
            if name not in _VOLATILE
        }
    return [settled(item) for item in content] if isinstance(content, list) else content


def by_key(content):
    """One digest for every key of a page's JSON, so that an added key differs from a changed one."""
    content = settled(content)
    return {name: digest(value) for name, value in content.items()} if isinstance(content, dict) else digest(content)


def ffscope(command):
    """Run one command and return what it printed."""
    result = CliRunner().invoke(app, shlex.split(command), catch_exceptions=False)
    assert result.exit_code == 0, f"{command}: {result.output}"
    return result.stdout


def write_model(family, folder, tokenizer):
    tiny.make(family).save_pretrained(folder)
    if tokenizer is not None:
        tokenizer.save_pretrained(folder)


def label(study):
    """Labels by the scripted server."""
    with endpoints.serving() as server:
        ffscope(f"patterns {study} --labeller {server.url} --labeller-model oracle --labeller-memories 3")


def annotate(study):
    """Two people's patterns, sent as the page sends them."""
    with served(study) as client:
        for person, description in (("ada", "ends with a"), ("ben", "about cats")):
            for task in client.get("/annotate.json", params={"sample": 2}).json()["memories"]:
                layer, memory = task["memory"].removeprefix("L").split(".")
                shown = client.get(f"/annotate/L{layer}/{memory}.json", params={"annotator": person}).json()["triggers"]
                covers = [row["rank"] for row in shown][: 3 if person == "ada" else 4]
                pattern = {
                    "kind": "shallow" if person == "ada" else "semantic",
                    "description": description,
                    "covers": covers,
                }
                body = {"annotator": person, "patterns": [pattern] if len(covers) >= 3 else [], "none": len(covers) < 3}
                answer = client.post(f"/annotate/L{layer}/{memory}.json", json=body)
                assert answer.status_code == 200, answer.text


def served(study, model=None):
    """A client of the study's server, which has its model where one is named."""
    from ffscope import load
    from ffscope.live.model import Live
    from ffscope.study.folder import Study
    from ffscope.web.app import make_app
    from ffscope.web.guard import Rules
    from ffscope.web.model_queue import ModelQueue

    settings = Study.open(study).settings
    lens = {"lens": settings["lens"]} if "lens" in settings else {}
    make = (
        None
        if model is None
        else lambda: Live(load(model, "cpu"), bos=settings["bos"], tokens=40, new_tokens=12, **lens)
    )
    rules = Rules.of("127.0.0.1", page_token=PAGE, token=None)
    return client_of(make_app(Path(study), rules=rules, queue=ModelQueue(make, why="no model")))


def files_of(study):
    """Digests of tables by rows and schemas, of JSON by content, and of the report without what depends on the machine."""
    digests = {}
    for path in sorted(Path(study).rglob("*")):
        name = path.relative_to(study).as_posix()
        if path.suffix == ".parquet":
            table = pq.read_table(path)
            digests[name] = digest([str(table.schema), table.to_pylist()])
        elif path.suffix == ".json":
            digests[name] = (
                by_key(json.loads(path.read_text()))
                if name == "study.json"
                else digest(settled(json.loads(path.read_text())))
            )
        elif name == "report.html":
            digests[name] = digest(report_text(path.read_text()))
        elif path.suffix in (".svg", ".html"):
            digests[name] = digest(path.read_bytes())
    return digests


def report_text(page):
    """A report without its last section and figures: the manifest and the figures' files have these."""
    page = re.sub(r"data:image/svg[^\"]*", "", page)
    return page[: page.index("How to reproduce it")]


def pages_of(study, model):
    """The JSON of every page, and the responses of the live model."""
    paths = [("/index.json", {}), ("/live.json", {}), ("/annotate.json", {"annotator": "ada"})]
    paths += [("/annotate/figure.json", {"annotator": "ada"}), ("/context.json", {"sentence": 1})]
    paths += [("/search.json", params) for params in SEARCHES]
    with served(study, model) as client:
        for layer in json.loads(client.get("/index.json").text)["layers"]:
            number = layer["layer"]
            paths.append((f"/L{number}.json", {}))
            memories = client.get(f"/L{number}.json").json()["columns"]["memory"]
            paths += [(f"/L{number}/{memory}.json", {}) for memory in memories]
            paths.append((f"/annotate/L{number}/{memories[0]}.json", {"annotator": "ada"}))
            for path in ("similar", "coefficients"):
                params = {"sentences": "0,1,2"} if path == "coefficients" else {}
                paths.append((f"/L{number}/{memories[-1]}/{path}.json", params))
        zero = {"zero": f"L{number}.1", "scale": f"L{number}.2:-1", "positions": "-1"}
        paths += [(f"/L{number}/0/coefficients.json", {"text": "a cat sat"}), ("/search/token.json", {"token": "a"})]
        for more in ({}, {"lens": "raw", "of": "residual"}, zero):
            paths.append(("/prompt.json", {**_LINKS, **more}))
        paths += [("/prompt/memories.json", {**_LINKS, "by": by, **zero}) for by in ("", "logit", "size")]
        paths += [
            ("/prompt/why.json", {**_LINKS, "a": "a", "b": "t"}),
            ("/prompt/text.json", {"text": "a cat", **zero}),
        ]
        return {f"{path}?{params}" if params else path: answer(client, path, params) for path, params in paths}


def answer(client, path, params):
    response = client.get(path, params=params)
    return by_key(response.json()) if response.status_code == 200 else digest([response.status_code, response.json()])


SEARCHES = [
    {"trigger": "cat"},
    {"promotes": "a", "layers": "0-1"},
    {"promotes": "A", "loose": "yes"},
    {"pattern": "ends", "sort": "-patterns"},
    {"kind": "shallow", "sort": "precision"},
    {"kind": "none"},
    {"agrees": "no", "dead": "no", "sort": "next_rank"},
    {"fires": "0.2..0.9", "max_prob": "..0.5", "norm": "0..", "next_rank": "2..", "precision": "..0.9", "sort": "norm"},
    {"mean": "..3", "maximum": "0..", "patterns": "1..", "sort": "memory", "limit": "5", "offset": "3"},
]


def commands_of(study, model):
    """What commands print as JSON and as text."""
    first = "L0.3"
    commands = {
        "show": f"show {study} {first} --json",
        "show text": f"show {study} {first}",
        "search": f"search {study} --where fires=0.1.. --where agrees=no --sort max_prob --json",
        "search text": f"search {study} --promotes a",
        "trace": f"trace {model} 'the cat' --json",
        "trace raw": f"trace {model} 'the cat' --lens raw --layers 0",
        "check": f"check {model} --json",
        "annotate": f"annotate {study} --json",
    }
    outputs = {}
    for name, command in commands.items():
        result = CliRunner().invoke(app, shlex.split(command))
        text = re.sub(r"\(\d+ ms\)", "", result.stdout)
        outputs[name] = (
            by_key(json.loads(text))
            if "--json" in command and result.exit_code == 0
            else digest([result.exit_code, text])
        )
    return outputs


def exported_of(study):
    """The JSON of an export's pages."""
    out = Path(f"{study}-site")
    ffscope(f"export {study} --out {out} --sample 2")
    pages = sorted(out.rglob("*.json"))
    return {page.relative_to(out).as_posix(): by_key(json.loads(page.read_text())) for page in pages}


def options():
    """Every option of every command: its names, its default, whether it must be given, its help."""
    group = typer.main.get_command(app)
    return {
        name: {
            " ".join(option.opts + option.secondary_opts): digest(
                [
                    getattr(option, name, None)
                    for name in ("default", "required", "multiple", "help", "min", "max", "envvar")
                ]
                + [str(option.type_descriptor.annotation)]
            )
            for option in command.params
        }
        for name, command in sorted(group.commands.items())
    }


def make(tokenizer):
    """Make every study, in the working folder."""
    digests = {"options": options()}
    write_corpus(Path("text.jsonl"), 60, hostile=True)
    for name, (family, commands) in STUDIES.items():
        print(name, flush=True)
        model, study = f"models/{name}", f"study-{name}"
        write_model(family, model, tokenizer)
        names = {"M": model, "T": "text.jsonl", "S": study}
        for command in commands:
            if command in ("LABEL", "ANNOTATE"):
                {"LABEL": label, "ANNOTATE": annotate}[command](study)
            else:
                ffscope(" ".join(names.get(word, word) for word in command.split()))
        parts = {"files": files_of(study), "pages": pages_of(study, model)}
        digests[name] = {**parts, "commands": commands_of(study, model), "export": exported_of(study)}
    write_model("vit", "models/vision", None)
    result = CliRunner().invoke(app, ["run", "models/vision", "--corpus", "text.jsonl", "--out", "study-vision"])
    digests["vision"] = {
        "check": by_key(json.loads(ffscope("check models/vision --json"))),
        "run": [result.exit_code, str(result.exception)],
    }
    return digests


def flat(content, path=()):
    if not isinstance(content, dict):
        return {" · ".join(path): content}
    return {name: value for key, part in content.items() for name, value in flat(part, (*path, key)).items()}


def main(what, file):
    from conftest import tokenizer

    os.environ["COLUMNS"] = "100"
    file = Path(file).resolve()
    with tempfile.TemporaryDirectory() as folder, chdir(folder):
        digests = flat(make(tokenizer.__wrapped__() if hasattr(tokenizer, "__wrapped__") else tokenizer()))
    if what == "record":
        file.write_text(json.dumps(digests, indent=0, ensure_ascii=False) + "\n")
        print(f"{len(digests)} digests in {file}")
        return 0
    held = json.loads(file.read_text())
    for name in sorted(held.keys() | digests.keys()):
        if held.get(name) != digests.get(name):
            print("gone:   " if name not in digests else "new:    " if name not in held else "changed:", name)
    return int(held != digests)


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
