"""`ffscope serve` as users run it: what it prints, and when."""

import subprocess
import sys
from contextlib import contextmanager
from re import search

import httpx2
import pytest

import tiny
from ffscope.models.loading import load
from ffscope.options.corpus import CorpusOptions
from ffscope.options.search import SearchOptions
from ffscope.pipeline import triggers
from studies import write_corpus


@pytest.fixture(scope="module")
def study(tmp_path_factory, tokenizer):
    """A study of a model on disk, as the command needs it."""
    folder = tmp_path_factory.mktemp("serving")
    tiny.make("llama").save_pretrained(folder / "tiny-llama")
    tokenizer.save_pretrained(folder / "tiny-llama")
    corpus = write_corpus(folder / "corpus.jsonl", documents=10)
    model = load(str(folder / "tiny-llama"), "cpu", "float32")
    return triggers(model, CorpusOptions(str(corpus)), folder / "study", search=SearchOptions(top=4)).folder


@contextmanager
def serving(study, *options):
    """The command, and the address in its first line."""
    command = [sys.executable, "-m", "ffscope", "serve", str(study), "--port", "0", "--device", "cpu", *options]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True) as server:
        try:
            first = server.stdout.readline()
            assert first.startswith("The explorer is ready at http://")
            yield server, search(r"http\S+", first)[0]
        finally:
            server.terminate()


def test_it_says_when_pages_and_when_prompts_are_ready(study):
    with serving(study) as (server, address), httpx2.Client(base_url=address, timeout=60) as client:
        assert client.get("/index.json").status_code == 200  # at once, without a retry
        assert server.stdout.readline() == "The model is loaded (tiny-llama, cpu); prompts can be run now.\n"
        assert client.get("/live.json").json()["state"] == "ready"
        assert client.get("/prompt.json", params={"text": "The cat"}).status_code == 200


def test_it_says_why_prompts_cannot_be_asked(study):
    with serving(study, "--no-model") as (server, _):
        expected = "Prompts are unavailable: no model is loaded. Run ffscope serve without --no-model.\n"
        assert server.stdout.readline() == expected
    with serving(study, "--model", str(study / "nowhere")) as (server, address):
        assert server.stdout.readline().startswith("The model could not be loaded: ")
        assert httpx2.get(f"{address}live.json", timeout=60).json()["state"] == "failed"
