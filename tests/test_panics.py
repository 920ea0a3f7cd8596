"""Compiled code that panics on its input: the rest is read, what is lost is counted, and an error is one sentence."""

import gzip
import json
import lzma
import shutil
import struct
import types
from itertools import islice

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import sentencex

import tiny
from conftest import SHARED
from ffscope import SourceError, load, read
from ffscope.corpus.documents import Corpus
from ffscope.corpus.ingest import write_sentences
from ffscope.errors import CorpusError, InputError
from ffscope.models.encoder import Encoder
from ffscope.options.corpus import CorpusOptions
from ffscope.panics import Unreadable, guarded
from ffscope.study.folder import Study
from splitting import split

PANICS = "W\N{NO-BREAK SPACE}."
"""What sentencex panics at: a capital letter, white space outside ASCII, a full stop."""


class PanicException(BaseException):
    """Like pyo3's: not an Exception."""


def panic(*_, **__):
    raise PanicException("called `Option::unwrap()` on a `None` value\nnote: more")


def test_a_real_panic_becomes_an_error():
    with pytest.raises(Unreadable, match="not a char boundary"), guarded():
        sentencex.segment("en", PANICS)


@pytest.mark.parametrize("error", [KeyboardInterrupt, SystemExit, GeneratorExit, MemoryError, InputError])
def test_errors_not_caused_by_the_text_are_passed_on(error):
    with pytest.raises(error), guarded():
        raise error


def test_text_that_makes_sentencex_panic_is_still_split(tokenizer):
    text = f"See here. By John {PANICS} Then more."
    ((*sentences,),), failures = split(tokenizer, text)
    assert sentences[0].text == "See here."
    assert PANICS in sentences[1].text
    assert [token for sentence in sentences for token in sentence.tokens] == tokenizer.encode(text)
    assert not failures


@pytest.mark.shared
def test_the_article_that_ended_a_run_is_read(tokenizer, tmp_path):
    train = SHARED / "corpora" / "wiki-train.jsonl.xz"
    if not train.is_file():
        pytest.skip(f"needs {train}")
    with lzma.open(train) as articles:
        (tmp_path / "a.jsonl").write_bytes(next(islice(articles, 1885, None)))
    (document,) = Corpus(str(tmp_path / "a.jsonl"))
    texts = list(document.paragraphs)
    paragraphs, failures = split(tokenizer, *texts, max_tokens=10**6)
    for text, sentences in zip(texts, paragraphs, strict=True):
        assert [token for sentence in sentences for token in sentence.tokens] == tokenizer.encode(text)
    assert not failures


@pytest.mark.parametrize("segment", [panic, lambda _, text: [text[1:]], lambda *_: 1 / 0])
def test_a_paragraph_that_cannot_be_split_is_split_by_punctuation_and_counted(tokenizer, monkeypatch, segment):
    def sometimes(language, text):
        return segment(language, text) if "BAD" in text else [text]

    monkeypatch.setattr(sentencex, "segment", sometimes)
    paragraphs, failures = split(tokenizer, "Good. One.", 'BAD is "here." Two is!  Three', "BAD", "Good.")
    texts = [[sentence.text for sentence in sentences] for sentences in paragraphs]
    assert texts == [["Good. One."], ['BAD is "here."', "Two is!", "Three"], ["BAD"], ["Good."]]
    assert failures == {"paragraphs that the sentence splitter could not read, split by punctuation alone": 2}


@pytest.mark.parametrize("error", [KeyboardInterrupt, SystemExit, MemoryError])
def test_a_splitter_that_is_interrupted_stops_the_reading(tokenizer, monkeypatch, error):
    def interrupted(*_):
        raise error

    monkeypatch.setattr(sentencex, "segment", interrupted)
    with pytest.raises(error):
        split(tokenizer, "One.")


class Panicking:
    """A tokenizer that panics wherever a text says BAD."""

    def __init__(self, tokenizer, *, is_fast=True):
        self.tokenizer, self.is_fast, self.eos_token_id = tokenizer, is_fast, None

    def __call__(self, texts, **options):
        return panic() if any("BAD" in text for text in texts) else self.tokenizer(texts, **options)

    def encode(self, text, **options):
        return panic() if "BAD" in text else self.tokenizer.encode(text, **options)


@pytest.mark.parametrize("is_fast", [True, False])
def test_a_paragraph_that_cannot_be_tokenized_is_the_only_one_skipped(tokenizer, is_fast):
    paragraphs, failures = split(Panicking(tokenizer, is_fast=is_fast), "One.", "BAD.", "Two.")
    assert [[sentence.text for sentence in sentences] for sentences in paragraphs] == [["One."], [], ["Two."]]
    assert failures == {"paragraphs that the tokenizer could not read": 1}


def test_a_tokenizer_that_cannot_read_a_part_leaves_the_paragraph_whole(tokenizer):
    whole = "One is here. Two is there."
    slow = types.SimpleNamespace(
        is_fast=False,
        eos_token_id=None,
        encode=lambda text, **_: tokenizer.encode(text) if text == whole else panic(),
    )
    ((sentence,),), failures = split(slow, whole)
    assert (sentence.text, sentence.tokens) == (whole, tokenizer.encode(whole))
    assert failures == {"paragraphs that the tokenizer could not read in parts, left whole": 1}


def test_a_study_counts_and_reports_what_could_not_be_read(tokenizer, tmp_path, monkeypatch, caplog):
    segment = sentencex.segment
    monkeypatch.setattr(sentencex, "segment", lambda language, text: panic() if "BAD" in text else segment("en", text))
    rows = [{"text": f"Number {letter} here. BAD {letter}. More {letter}."} for letter in "abc"]
    (tmp_path / "a.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    with Study.writing(tmp_path / "study", {"source": "none"}) as study:
        write_sentences(study, tokenizer, CorpusOptions(corpus=str(tmp_path / "a.jsonl")))
    what = "paragraphs that the sentence splitter could not read, split by punctuation alone"
    assert study.manifest["corpus"]["skipped"] == {what: 3}
    assert study.manifest["corpus"]["sentences"] == 9
    assert f"Read 9 sentences; 3 {what}." in caplog.text
    assert caplog.text.count("called `Option::unwrap()`") == 1  # the reason, once


def test_a_prompt_that_cannot_be_tokenized_is_a_sentence(tokenizer):
    model = read(tiny.make("llama"), tokenizer)
    model.tokenizer = Panicking(tokenizer)
    model.tokenizer.bos_token_id = 2
    with pytest.raises(InputError, match=r"^The tokenizer cannot read this text: called `Option::unwrap.* value\. "):
        model.trace("BAD")


@pytest.mark.parametrize("reader", ["AutoTokenizer", "AutoConfig"])
def test_a_model_whose_reader_panics_is_a_sentence(tmp_path, tokenizer, monkeypatch, reader):
    tiny.make("llama").save_pretrained(tmp_path)
    tokenizer.save_pretrained(tmp_path)
    monkeypatch.setattr(f"ffscope.models.sources.{reader}.from_pretrained", panic)
    with pytest.raises(SourceError, match="cannot be loaded: called `Option::unwrap"):
        load(tmp_path)


def test_damaged_model_files_are_a_sentence(tmp_path, tokenizer):
    tiny.make("llama").save_pretrained(tmp_path / "model")
    tokenizer.save_pretrained(tmp_path / "model")
    damages = {
        "model.safetensors": [b"", b"\xff" * 100, struct.pack("<Q", 2**60) + b"{}", struct.pack("<Q", 2) + b"{}"],
        "tokenizer.json": [b"", b"{}", b"\xff" * 100, b'{"model": {"type": "BPE", "vocab": {}, "merges": ["a"]}}'],
    }
    for name, contents in damages.items():
        for content in contents:
            shutil.copytree(tmp_path / "model", tmp_path / "damaged", dirs_exist_ok=True)
            (tmp_path / "damaged" / name).write_bytes(content)
            with pytest.raises(SourceError):
                load(tmp_path / "damaged")


@pytest.mark.parametrize(
    "content",
    [
        struct.pack("<IQQ", 3, 2**60, 0),
        struct.pack("<IQQ", 3, 0, 2**60),
        struct.pack("<IQQQ", 3, 0, 1, 2**62) + b"general",
        struct.pack("<IQQQ", 3, 0, 1, 4) + b"name" + struct.pack("<IIQ", 9, 4, 2**60),
        struct.pack("<IQQQ", 3, 0, 1, 4) + b"name" + struct.pack("<IQ", 8, 4) + b"\xff\xfe\xfd\xfc",
    ],
    ids=["many tensors", "many keys", "long key", "long array", "not UTF-8"],
)
def test_hostile_gguf_is_a_sentence(tmp_path, content):
    (tmp_path / "model.gguf").write_bytes(b"GGUF" + content)
    with pytest.raises(SourceError, match="damaged, truncated, or of an architecture"):
        load(tmp_path / "model.gguf")


def test_an_encoder_that_panics(tmp_path, tokenizer, monkeypatch):
    tiny.make("bert").save_pretrained(tmp_path)
    tokenizer.save_pretrained(tmp_path)
    encoder = Encoder(str(tmp_path), "cpu")
    good = encoder.word_vectors(["one", "three"])
    cut_whole = encoder._tokenizer

    def sometimes(words, **options):
        return panic() if "BAD" in words else cut_whole(words, **options)

    encoder._tokenizer = sometimes
    vectors = encoder.word_vectors(["one", "BAD", "three"])
    np.testing.assert_allclose(vectors[[0, 2]], good, atol=1e-5)
    assert not vectors[1].any()
    assert not encoder.word_vectors(["BAD"]).any()
    assert encoder.word_vectors([]).shape == (0, *good.shape[1:])
    monkeypatch.setattr("ffscope.models.encoder.AutoTokenizer.from_pretrained", panic)
    with pytest.raises(SourceError, match="cannot be loaded: called"):
        Encoder(str(tmp_path), "cpu")


def test_a_reader_of_files_that_panics_is_a_sentence(tmp_path, monkeypatch):
    pq.write_table(pa.table({"text": ["One."]}), tmp_path / "a.parquet")
    (tmp_path / "b.txt.gz").write_bytes(gzip.compress(b"One."))
    (tmp_path / "c.txt.zst").write_bytes(b"One.")
    monkeypatch.setattr("pyarrow.parquet.ParquetFile", panic)
    monkeypatch.setattr("gzip.open", panic)
    monkeypatch.setattr("pyarrow.input_stream", panic)
    for name in ("a.parquet", "b.txt.gz", "c.txt.zst"):
        with pytest.raises(CorpusError, match=rf"{name} cannot be read.*: called `Option::unwrap"):
            list(Corpus(str(tmp_path / name)))
