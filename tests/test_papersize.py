"""The explorer at the paper's size: 65,536 memories with 50 triggers each, a million sentences."""

import re
import subprocess
import sys
import time

import httpx2
import pytest

import papersize

pytestmark = pytest.mark.slow
PAGE, SEARCH, START = 0.1, 0.3, 3.0  # seconds
_READY = 60


@pytest.fixture(scope="module")
def study(tmp_path_factory):
    return papersize.make(tmp_path_factory.mktemp("papersize") / "study")


@pytest.fixture(scope="module")
def served(study):
    """The explorer as `ffscope serve` starts it: the seconds until its first page, and a client."""
    start = time.perf_counter()
    command = [sys.executable, "-m", "ffscope", "serve", str(study.folder), "--no-model", "--port", "0"]
    server = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    try:
        address = re.search(r"http\S+", server.stdout.readline())[0]
        with httpx2.Client(base_url=address, timeout=60) as client:
            assert client.get("/").status_code == 200
            took = time.perf_counter() - start
            _wait_until_held(client)
            yield took, client
    finally:
        server.terminate()
        server.wait(20)
        server.stdout.close()


def _wait_until_held(client):
    """Wait until two responses in a row are quick: the tables are in memory then."""
    end, quick = time.monotonic() + _READY, 0
    while quick < 2 and time.monotonic() < end:
        quick = quick + 1 if _best(client, "/search.json?trigger=zz", 1) < SEARCH else 0
        time.sleep(0.2)


def _best(client, path, times=5):
    """The fastest of several responses, since the machine may be busy."""
    took = []
    for _ in range(times):
        start = time.perf_counter()
        answer = client.get(path)
        took.append(time.perf_counter() - start)
        assert answer.status_code == 200, answer.text
    return min(took)


def test_it_starts_within_three_seconds(served):
    assert served[0] < START


PAGES = (
    "/ /index.json /L7 /L7.json /L15.json /L7/100 /L7/100.json /L0/0.json /L15/4095.json /context.json?sentence=999999"
)
TASKS = "/annotate.json?annotator=ada /annotate/L3/17.json?annotator=ada"
WORDS = "trigger=qu trigger=e trigger=zzzz trigger=a+b promotes=da pattern=with+*a trigger=qu&promotes=da&layers=0-7"
MEASURES = "kind=both precision=0.99.. fires=0.5..0.6&agrees=yes&sort=-max_prob sort=memory"


@pytest.mark.parametrize("path", f"{PAGES} {TASKS}".split())
def test_pages_answer_within_a_tenth_of_a_second(served, path):
    assert _best(served[1], path) < PAGE


@pytest.mark.parametrize("query", f"{WORDS} {MEASURES}".split())
def test_search_answers_within_three_tenths(served, query):
    assert _best(served[1], f"/search.json?{query}") < SEARCH


def test_frequent_words_too(served, study):
    """Words that are in nearly every sentence."""
    import pyarrow.parquet as pq

    words = pq.read_table(study.path("vocabulary.parquet")).slice(0, 3)["text"].to_pylist()
    for word in words:
        assert _best(served[1], f"/search.json?trigger={word.strip('␣')}") < SEARCH
