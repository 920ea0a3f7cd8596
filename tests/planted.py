"""Studies with known patterns: artificial coefficients over natural text."""

import json
import re
from dataclasses import dataclass, field

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers
from transformers import PreTrainedTokenizerFast

from ffscope.corpus.documents import Corpus
from ffscope.corpus.ingest import write_sentences
from ffscope.options.corpus import CorpusOptions
from ffscope.study.folder import Study
from ffscope.study.schemas import SCHEMAS

TOP = 50
SETTINGS = {
    "seed": 0,
    "top": TOP,
    "prefixes": "best",
    "bos": True,
    "layers": None,
    "memories": None,
    "negative": False,
}  # of the search whose tables are written
PURITY = 0.75, 1.0  # the share of a memory's triggers that have what it was made to fire on
CLASSES = {
    "a number": r"(?:^|\s)\d+$",
    "a year": r"(?:^|[\s(])(?:1\d\d\d|20\d\d)$",
    "a closing bracket": r"\)$",
    "an opening bracket": r"\($",
    "a closing quote": r"[^\s(]\"$",
    "a capitalised word": r"(?:^|[\s(])[A-Z][a-z]+$",
}


@dataclass
class Planted:
    """What a memory was made to fire on: the words that must be in a description, and the ranks that have it."""

    memory: int
    what: str
    shallow: list[str] = field(default_factory=list)  # what the description of a surface form must hold
    semantic: bool = False
    ranks: dict[str, set[int]] = field(default_factory=dict)  # by kind


def make_tokenizer(texts, size=4000):
    """A byte-level tokenizer trained on the texts."""
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=size,
        special_tokens=["</s>"],
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    tokenizer.train_from_iterator(texts, trainer)
    return PreTrainedTokenizerFast(tokenizer_object=tokenizer, bos_token="</s>", eos_token="</s>")


def account(memories, vocab):
    return {
        "source": "planted",
        "family": "planted",
        "layers": 1,
        "memories": [memories],
        "hidden": 1,
        "vocab": vocab,
        "dtype": "float32",
        "gated": False,
        "causal": True,
        "fingerprint": "planted",
    }


class Streams:
    """The prefixes of a text, each with its own text, and coefficients over them that are drawn at random."""

    def __init__(self, study, generator, shortest=3):
        self.generator = generator
        table = pq.read_table(study.path("sentences.parquet"), filters=[("held_out", "==", False)]).to_pylist()
        topics = dict(
            zip(
                *pq.read_table(study.path("documents.parquet")).select(["document", "topic"]).to_pydict().values(),
                strict=True,
            )
        )
        rows = [
            (row["sentence"], position, row["text"][:end], row["text"][end : end + 1], topics[row["document"]])
            for row in table
            for position, end in enumerate(row["ends"])
        ]
        self.sentence, self.position, self.text, self.after, self.topic = (
            np.array(column) for column in zip(*rows, strict=True)
        )
        # A prefix that ends inside a word has no last word yet.
        self.whole = np.array(
            [not (text[-1:].isalnum() and after.isalnum()) for text, after in zip(self.text, self.after, strict=True)]
        )
        self.last = np.array([(re.findall(r"\w+$", text) or [""])[0].lower() for text in self.text])
        self.lasts = np.unique(self.last[self.whole], return_counts=True)
        self.words = [re.findall(r"\w+", text.lower()) for text in self.text]
        self.pair = np.array([(re.findall(r"\w+ \w+$", text) or [""])[0].lower() for text in self.text])
        self.pairs = np.unique(self.pair[self.whole], return_counts=True)
        self.long = np.array([len(words) >= 5 for words in self.words])  # these have said something

    def triggers(self, fires, purity):
        """The triggers of a memory that fires on some prefixes and occasionally on others, and their coefficients."""
        coefficient = self.generator.random(len(self.sentence))
        chosen = np.flatnonzero(fires)
        if len(chosen):
            firing = self.generator.permutation(chosen)[: max(30, int(purity * 60))]
            coefficient[firing] += 1.0 * (self.generator.random(len(firing)) < purity)
            coefficient[self.generator.integers(len(coefficient), size=int((1 - purity) * 60))] += 1.0
        order = np.lexsort((self.position, self.sentence, -coefficient))
        _, first = np.unique(self.sentence[order], return_index=True)
        best = order[np.sort(first)][:TOP]
        return best, coefficient[best]

    def frequent(self, least, most):
        """Words that end `least` to `most` prefixes, in random order."""
        good = [
            word
            for word, count in zip(*self.lasts, strict=True)
            if least <= count <= most and len(word) > 2 and word.isalpha()
        ]
        return list(self.generator.permutation(good))


def plant(folder, *, seed=0, sentences=6000, each=12, nothing=12, topics=True):
    """A study with `each` memories of every kind, and some that fire on nothing in particular; returns it and what was planted."""
    generator = np.random.default_rng(seed)
    corpus, texts = _shuffled(folder.with_suffix(".jsonl"), generator)
    tokenizer = make_tokenizer(texts[:2000])
    with Study.writing(folder, account(0, len(tokenizer))) as study:
        write_sentences(study, tokenizer, CorpusOptions(str(corpus), sentences=sentences))
        streams = Streams(study, generator)
        planted, rows = [], []
        makers = (_last_word, _ngram, _class, _before, _within, _topic, _either, _both)
        for maker in [*(maker for maker in makers for _ in range(each)), *[_nothing] * nothing]:
            _add(planted, rows, streams, *maker(streams, generator))
        study.manifest["model"]["memories"] = [len(planted)]
        _write(study, rows, len(planted))
        if not topics:
            table = pq.read_table(study.path("documents.parquet"))
            index = table.schema.get_field_index("topic")
            table = table.set_column(index, "topic", pa.nulls(len(table), pa.string()))
            pq.write_table(table, study.path("documents.parquet"))
    return study, planted


def _shuffled(file, generator):
    """The bundled articles in another order, since they come topic by topic."""
    documents = [
        {"text": "\n".join(document.paragraphs), "title": document.title, "topic": document.topic}
        for document in Corpus("vital-articles")
        if document.topic != "Uncategorized"
    ]
    documents = [documents[i] for i in generator.permutation(len(documents))]
    file.write_text("\n".join(json.dumps(document) for document in documents))
    return file, [document["text"] for document in documents]


def _add(planted, rows, streams, what, shallow, fires):
    purity = 1.0 if len(fires) != 1 and what != "two at once" else float(streams.generator.uniform(*PURITY))
    any_fires = np.logical_or.reduce(list(fires.values())) if fires else np.zeros(len(streams.sentence), dtype=bool)
    best, coefficients = streams.triggers(any_fires, purity)
    entry = Planted(len(planted), what, shallow, "semantic" in fires)
    for kind, here in fires.items():
        entry.ranks[kind] = {rank + 1 for rank, prefix in enumerate(best[:25]) if here[prefix]}
    rows += [
        {
            "layer": 0,
            "memory": entry.memory,
            "rank": rank + 1,
            "coefficient": float(coefficient),
            "sentence": int(streams.sentence[prefix]),
            "position": int(streams.position[prefix]),
            "next_token": 0,
        }
        for rank, (prefix, coefficient) in enumerate(zip(best, coefficients, strict=True))
    ]
    planted.append(entry)


def _write(study, rows, count):
    with study.table("triggers.parquet") as writer:
        writer.write_table(pa.Table.from_pylist(rows, SCHEMAS["triggers.parquet"]))
    names = SCHEMAS["memories.parquet"].names
    empty = {"histogram": [0] * 45, "sample_coefficients": [], "sample_sentences": [], "sample_positions": []}
    held = [
        dict.fromkeys(names, 0) | {"layer": 0, "memory": memory, "maximum": 1.0, "seen": 1} | empty
        for memory in range(count)
    ]
    with study.table("memories.parquet") as writer:
        writer.write_table(pa.Table.from_pylist(held, SCHEMAS["memories.parquet"]))
    study.finish("triggers", SETTINGS, seconds=0.0, tokens=0, **study.manifest["corpus"]["searched"])


def _last_word(streams, generator):
    word = streams.frequent(40, 2000)[0]
    return "last word", [word], {"shallow": streams.whole & (streams.last == word)}


def _ngram(streams, generator):
    pair = generator.choice([pair for pair, count in zip(*streams.pairs, strict=True) if count >= 40 and pair])
    return "n-gram", pair.split()[1:], {"shallow": streams.whole & (streams.pair == pair)}


def _class(streams, generator):
    name = generator.choice(list(CLASSES))
    shape = re.compile(CLASSES[name])
    description = {"a closing bracket": ")", "an opening bracket": "(", "a closing quote": "”"}.get(name, name)
    return (
        "class",
        [description],
        {"shallow": streams.whole & np.array([bool(shape.search(text)) for text in streams.text])},
    )


def _before(streams, generator):
    word = streams.frequent(60, 2000)[0]
    return "word before the last", [word], {"shallow": np.char.startswith(streams.pair, f"{word} ")}


def _within(streams, generator):
    word = streams.frequent(40, 400)[0]
    return "word within", [word], {"shallow": np.array([word in words[:-1] for words in streams.words])}


def _topic(streams, generator):
    names = sorted({topic for topic in streams.topic if topic})
    return "topic", [], {"semantic": streams.long & (streams.topic == generator.choice(names))}


def _either(streams, generator):
    """About half of the triggers have one pattern, the others another."""
    _, shallow, first = _last_word(streams, generator)
    _, _, second = _topic(streams, generator)
    some = np.flatnonzero(first["shallow"])
    kept = np.zeros(len(streams.sentence), dtype=bool)
    kept[generator.permutation(some)[:30]] = True
    others = np.zeros_like(kept)
    others[generator.permutation(np.flatnonzero(second["semantic"]))[:30]] = True
    return "two, one or the other", shallow, {"shallow": kept, "semantic": others}


def _both(streams, generator):
    """Every trigger has both: a last word, and a topic that only some prefixes with this word have."""
    for word in streams.frequent(200, 20000):
        ends = streams.whole & (streams.last == word) & streams.long
        names, counts = np.unique(streams.topic[ends], return_counts=True)
        good = [
            name for name, count in zip(names, counts, strict=True) if count >= 30 and name and count < 0.5 * ends.sum()
        ]
        if good:
            here = ends & (streams.topic == generator.choice(good))
            return "two at once", [word], {"shallow": here, "semantic": here}
    raise AssertionError("the text is too small")


def _nothing(streams, generator):
    return "nothing", [], {}


def score(planted, rows):
    """Recall and precision by kind, recall by planted pattern, and the share of memories without one that were given one."""
    by_memory = {}
    for row in rows:
        by_memory.setdefault(row["memory"], []).append(row)
    recall, right, missed = {}, {"shallow": [], "semantic": []}, []
    for entry in planted:
        reported = by_memory.get(entry.memory, [])
        for kind, ranks in entry.ranks.items():
            hit = any(_is(row, kind, ranks, entry.shallow) for row in reported)
            recall.setdefault((kind, entry.what), []).append(hit)
            if not hit:
                missed.append((entry, kind, reported))
        for row in reported:
            ranks = entry.ranks.get(row["kind"], set())
            right[row["kind"]].append(len(set(row["covers"]) & ranks) >= 0.6 * len(row["covers"]))
    nothing = [bool(by_memory.get(entry.memory)) for entry in planted if entry.what == "nothing"]
    by_kind = {kind: [hit for (other, _), hits in recall.items() if other == kind for hit in hits] for kind in right}
    return {
        "recall": {kind: float(np.mean(hits)) for kind, hits in by_kind.items()},
        "precision": {kind: float(np.mean(hits)) if hits else None for kind, hits in right.items()},
        "recall_by": {key: float(np.mean(hits)) for key, hits in recall.items()},
        "nothing": float(np.mean(nothing)),
        "missed": missed,
    }


def _is(row, kind, ranks, words):
    """Whether a row is the planted pattern: its kind, enough of its prefixes, and the words that it must name."""
    share = 0.5 if kind == "shallow" else 0.3
    marks = {")": "a closing bracket", "(": "an opening bracket", "”": "a closing quote"}
    named = kind == "semantic" or all(
        word in row["description"] or marks.get(word, word) in row["description"] for word in words
    )
    return row["kind"] == kind and named and len(set(row["covers"]) & ranks) >= max(3, share * len(ranks))


def by_hand(folder, texts, fires, *, language="en", tokenizer=None, **reading):
    """A study of some texts, one document each, whose memories have given triggers: (sentence, position), best first."""
    tokenizer = tokenizer or make_tokenizer(texts, size=400)
    corpus = folder.with_suffix(".jsonl")
    corpus.write_text("\n".join(json.dumps({"text": text}) for text in texts))
    with Study.writing(folder, account(len(fires), len(tokenizer))) as study:
        write_sentences(study, tokenizer, CorpusOptions(str(corpus), language=language, **reading))
        rows = [
            dict(zip(SCHEMAS["triggers.parquet"].names, (0, memory, rank, 100.0 - rank, *place, 0), strict=True))
            for memory, places in enumerate(fires)
            for rank, place in enumerate(places, 1)
        ]
        _write(study, rows, len(fires))
    return study


def prefixes_of(study):
    """Every searched prefix of a study: (sentence, position) and its text."""
    rows = pq.read_table(study.path("sentences.parquet"), filters=[("held_out", "==", False)]).to_pylist()
    return [
        ((row["sentence"], position), row["text"][:end]) for row in rows for position, end in enumerate(row["ends"])
    ]
