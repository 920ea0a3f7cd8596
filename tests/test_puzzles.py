"""Published neuron puzzles: sentences with the activations of made-up neurons, each with a true explanation and false ones.

`pytest -s tests/test_puzzles.py -m slow` prints what `patterns` says about each.
"""

import json
import re

import numpy as np
import pyarrow.parquet as pq
import pytest

from conftest import SHARED
from ffscope.analysis.patterns import find_patterns
from ffscope.corpus.ingest import write_sentences
from ffscope.engines.local import LocalEngine
from ffscope.options.corpus import CorpusOptions
from ffscope.study.folder import Study
from planted import _shuffled, account, make_tokenizer
from planted_hard import Memories
from planted_text import Text

BACKGROUND = 500  # documents, of about four sentences each
EXPECTED = {  # puzzle → what at least one of its descriptions must match
    "colors": r"colou?r|“(?:yellow|green|red|black|blue)”",
    "char2": r"capital|name",
    "similes": r"“like”|“as”",
    "math": r"“answer”|number",
    "stop": r"“stop”",
    "of": r"“of” stands before the last word",
    "million": r"number|digit",
    "people": r"number|digit",
    "python": r"“<”",
    "html": r"“<”",
}


@pytest.fixture(scope="module")
def puzzles():
    file = SHARED / "benchmarks" / "neuron_puzzles.json"
    if not file.is_file():
        pytest.skip(f"needs {file}")
    return json.loads(file.read_text(encoding="utf-8"))


@pytest.fixture(scope="module")
def study(tmp_path_factory, puzzles):
    """A study with one memory per puzzle, whose coefficients are the puzzle's activations."""
    folder, generator = tmp_path_factory.mktemp("puzzles"), np.random.default_rng(0)
    _, background = _shuffled(folder / "articles.jsonl", generator)
    passages = list(dict.fromkeys(_passage(tokens)[0] for puzzle in puzzles.values() for tokens in puzzle["sentences"]))
    documents = _apart_from_held_out(passages, background[:BACKGROUND])
    corpus = folder / "corpus.jsonl"
    corpus.write_text("\n".join(json.dumps({"text": text}) for text in documents))
    tokenizer = make_tokenizer(documents)
    with Study.writing(folder / "study", account(len(puzzles), len(tokenizer))) as study:
        write_sentences(study, tokenizer, CorpusOptions(str(corpus), dedupe=False))
        text = Text(study)
        sentences = _sentences_by_document(study)
        memories = Memories(text, generator)
        for puzzle in puzzles.values():
            coefficients = np.zeros(len(text.of), dtype=np.float32)
            for tokens in puzzle["sentences"]:
                passage, active = _passage(tokens)
                for place, activation in _places(passage, active, sentences[documents.index(passage)]):
                    index = text.start[np.searchsorted(text.sentence, place[0])] + place[1]
                    coefficients[index] = max(coefficients[index], activation)
            memories.add_coefficients(coefficients)
        memories.write(study)
    return study


def _passage(tokens):
    """The text of a passage, and where its active tokens end: (offset, activation)."""
    text, active = "", []
    for token in tokens:
        word, activation = (token, 0) if isinstance(token, str) else token
        text += word
        if activation:
            active.append((len(text), activation))
    return text, active


def _apart_from_held_out(passages, background):
    """All texts, with an article in every twentieth place: these documents are held out of the search."""
    documents, rest = [], iter(background)
    for passage in passages:
        if len(documents) % 20 == 19:
            documents.append(next(rest))
        documents.append(passage)
    return [*documents, *rest]


def _sentences_by_document(study):
    table = pq.read_table(study.path("sentences.parquet"), filters=[("held_out", "==", False)]).to_pylist()
    sentences = {}
    for row in table:
        sentences.setdefault(row["document"], []).append(row)
    return sentences


def _places(passage, active, sentences):
    """The prefixes that end where active tokens end, or at the next boundary: ((sentence, position), activation)."""
    begin, places = 0, []
    for row in sentences:
        begin = passage.index(row["text"], begin)
        end = begin + len(row["text"])
        for offset, activation in active:
            # A token may have white space around it, which is in no sentence.
            inside = len(passage[:offset].rstrip()) - begin
            if 0 < inside <= end - begin and inside <= row["ends"][-1]:
                places.append(((row["sentence"], int(np.searchsorted(row["ends"], inside))), activation))
        begin = end
    return places


@pytest.mark.shared
@pytest.mark.slow
def test_puzzles(study, puzzles):
    find_patterns(study, LocalEngine())
    rows = pq.read_table(study.path("patterns.parquet")).to_pylist()
    triggers = pq.read_table(study.path("triggers.parquet")).to_pylist()
    descriptions = {name: [] for name in puzzles}
    for row in rows:
        descriptions[list(puzzles)[row["memory"]]].append(row["description"])
    for number, (name, puzzle) in enumerate(puzzles.items()):
        own = [row for row in triggers if row["memory"] == number]
        assert len(own) >= 4
        assert {row["coefficient"] for row in own} <= {float(activation) for activation in range(1, 11)}
        print(f"\n{name} ({len(own)} triggers): {puzzle['explanation']}")
        print(f"  false: {'; '.join(puzzle['false_explanations'])}")
        for row in rows:
            if row["memory"] == number:
                print(f"  found: {row['description']} ({row['support']} triggers, p {row['p_value']:.1g})")
    missed = {
        name for name, wanted in EXPECTED.items() if not any(re.search(wanted, text) for text in descriptions[name])
    }
    assert not missed
