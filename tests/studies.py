"""Small studies of tiny models, for the tests that read them."""

import json
import shutil
import sqlite3
from contextlib import closing, contextmanager, nullcontext

import numpy as np
import pytest

from ffscope.options.corpus import CorpusOptions
from ffscope.options.search import SearchOptions
from ffscope.pipeline import run
from ffscope.report.drawn_figure import DrawnFigure
from ffscope.study.folder import Study

SMALL = {
    "examples": 40,
    "mutation_memories": 4,
    "mutation_triggers": 5,
    "effect_memories": 3,
    "exact_examples": 4,
    "group_examples": 4,
}
WORDS = " the cat sat on a mat and it saw of dog why bird flew <b>by</b> [sang] song old was late"
HOSTILE = "Hi <script>alert(1)</script> \x1b[31mred \u202eevil <img src=x onerror=alert(2)> end."


def write_corpus(file, documents=60, hostile=False):
    """Documents made of few words, so that prefixes recur; every twentieth is held out."""
    generator = np.random.default_rng(5)
    with file.open("w") as out:
        for _ in range(documents):
            words = generator.choice(WORDS.split(), 18)
            text = f"{' '.join(words[:9]).capitalize()}. {' '.join(words[9:]).capitalize()}."
            print(json.dumps({"text": f"{HOSTILE}\n{text}" if hostile else text}), file=out)
    return file


@contextmanager
def undrawn():
    """Replaces figures by their names: drawing takes longer than the rest of a small study."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("ffscope.report.drawn_figure.draw", lambda name, _: DrawnFigure(name, None, name, {}))
        patch.setattr(DrawnFigure, "svg", lambda self: self.name)
        patch.setattr(DrawnFigure, "save", lambda self, path, form: path.write_text(f"{self.name} as {form}"))
        yield


def make_study(model, folder, *, hostile=False, documents=60, drawn=False, **options):
    """A whole study of a model, with its report."""
    corpus = write_corpus(folder / "corpus.jsonl", documents, hostile)
    options = {**SMALL, "encoder": "model", **options}
    with nullcontext() if drawn else undrawn():
        return run(model, CorpusOptions(str(corpus)), folder / "study", search=SearchOptions(top=6), **options)


def copy_of(study, folder):
    """A copy of a study, which a test may change."""
    return Study.open(shutil.copytree(study.folder, folder / "study"))


def end_early(folder):
    """Make a study say that --minutes ended its search after 999 prefixes of 50 sentences."""
    manifest = json.loads((folder / "study.json").read_text())
    manifest["settings"]["minutes"] = 0.5
    manifest["stages"]["triggers"] |= {"prefixes": 999, "sentences": 50}
    (folder / "study.json").write_text(json.dumps(manifest))


def sign_otherwise(folder, name, other):
    """Change a name in a study's annotations.sqlite directly, as no command would: older files hold any name."""
    with closing(sqlite3.connect(folder / "annotations.sqlite")) as database, database:
        guards = database.execute("SELECT name, sql FROM sqlite_master WHERE type = 'trigger'").fetchall()
        tables = [table for (table,) in database.execute("SELECT name FROM sqlite_master WHERE type = 'table'")]
        for guard, _ in guards:
            database.execute(f'DROP TRIGGER "{guard}"')
        for table in {"annotation", "draft"} & set(tables):
            database.execute(f"UPDATE {table} SET annotator = ? WHERE annotator = ?", (other, name))
        for _, guard in guards:
            database.execute(guard)
