"""A language model as labeller, over a real connection."""

import _thread
import json
import logging
import math
import socket
import subprocess
import sys
import time

import pyarrow.parquet as pq
import pytest

from endpoints import KEY, MEMORIES, Cut, content, oracle, serving, slowly, write_study
from ffscope.annotating.sheets import draw
from ffscope.errors import InputError, LabellerError, MemoryNameError, StudyError
from ffscope.labelling import batch
from ffscope.labelling.address import Address
from ffscope.labelling.cost import Cost, Price, Tokens
from ffscope.labelling.detection import balanced_accuracy, p_value
from ffscope.labelling.endpoint import Endpoint
from ffscope.labelling.labeller import _draw, label
from ffscope.labelling.prompts import MalformedError, marked, read_fits, read_patterns
from ffscope.labelling.tasks import read_tasks
from ffscope.memory_name import Memory
from ffscope.study.folder import Study

PATTERN = {"kind": "shallow", "description": "ends with x", "covers": [1, 2, 3]}
GOOD = json.dumps({"patterns": [PATTERN]})


@pytest.fixture(autouse=True)
def key(monkeypatch):
    monkeypatch.setenv("FFSCOPE_LABELLER_KEY", KEY)
    monkeypatch.delenv("OPENAI_API_KEY", raising=False)


@pytest.fixture
def server():
    with serving() as server:
        yield server


@pytest.fixture
def folder(tmp_path):
    return write_study(tmp_path / "study")


def ask(folder, server, *, timeout=20.0, retries=3, url=None, model=None, **options):
    """Label a study's memories."""
    wishes = {"timeout": timeout, "retries": retries}
    with Study.adding(folder) as study, Endpoint(url or server.url, model=model, **wishes) as endpoint:
        return label(study, endpoint, **options)


def rows(folder):
    return pq.read_table(folder / "patterns.parquet").to_pylist()


def test_labels_stand_beside_the_other_rows(folder, server):
    before = rows(folder)
    labels = ask(folder, server)
    after = rows(folder)
    assert [row for row in after if row["annotator"] != "llm:tiny-model"] == before
    own = {(row["layer"], row["memory"]): row for row in after if row["annotator"] == "llm:tiny-model"}
    assert set(own) == {memory for memory, (_, count) in MEMORIES.items() if count >= 3}
    for memory, row in own.items():
        assert (row["pattern"], row["kind"], row["description"]) == (1, "shallow", f'ends with "{MEMORIES[memory][0]}"')
        assert row["support"] == len(row["covers"])
    assert after == sorted(after, key=lambda row: (row["layer"], row["memory"], row["annotator"], row["pattern"]))
    assert own[0, 2]["detection"] is None
    assert own[0, 2]["p_value"] is None
    assert own[0, 0]["covers"] == list(range(1, 26))
    assert own[0, 0]["detection"] > 0.8
    assert own[0, 0]["p_value"] < 0.05
    assert own[0, 1]["covers"] == list(range(1, 15))  # those held back too, since the label fits them
    assert (labels.cost.paid.requests, labels.cost.cached.requests) == (9, 0)
    assert labels.cost.paid.prompt == 5 * 100 + 4 * 200
    stage = Study.open(folder).manifest["stages"]["labels"]
    assert (stage["done"], stage["model"], stage["memories"], stage["requests"]) == (True, "tiny-model", 5, 9)
    assert (stage["prompt_tokens"], stage["completion_tokens"], stage["failed"]) == (1300, 130, [])


def test_a_memory_s_held_back_triggers_are_not_shown_and_random_prefixes_are_no_triggers(folder):
    study = Study.open(folder)
    subjects = {tuple(task.memory): task for task in read_tasks(study, _draw(study, 10, 0), seed=0)}
    long, short, few = subjects[1, 0], subjects[0, 1], subjects[0, 2]
    assert list(long.shown) == list(range(1, 26))
    assert len(long.held_back) == len(long.others) == 10
    assert min(long.held_back) > 25
    assert len(short.held_back) == len(short.others) == 3
    assert not set(short.held_back) & set(short.shown)
    assert (few.held_back, few.others, len(few.shown)) == ({}, [], 5)
    sentences = pq.read_table(folder / "sentences.parquet").to_pylist()
    triggers = pq.read_table(folder / "triggers.parquet").to_pylist()
    own = {row["sentence"] for row in triggers if (row["layer"], row["memory"]) == (1, 0)}
    free = [row["text"] for row in sentences if row["sentence"] not in own and not row["held_out"]]
    others = [other for seed in range(9) for other in read_tasks(study, [long.memory], seed=seed)[0].others]
    for other in others:
        assert any(text.startswith(other.replace("«", "").replace("»", "")) for text in free)


def test_the_memories_drawn_are_those_that_people_annotate(folder):
    study = Study.open(folder)
    people = [memory for memory in draw(study, 3) if MEMORIES[tuple(memory)][1] >= 3]
    assert set(people) <= set(_draw(study, 3, 0))


def test_any_number_of_workers_and_a_restart_give_the_same_file(tmp_path, server):
    written = []
    for workers in (1, 4):
        folder = write_study(tmp_path / f"study{workers}")
        ask(folder, server, workers=workers)
        written.append((folder / "patterns.parquet").read_bytes())
    assert written[0] == written[1]
    question_count = len(server.questions)
    labels = ask(folder, server)
    assert len(server.questions) == question_count
    assert (labels.cost.paid, labels.cost.cached.requests) == (Tokens(), 9)
    assert (folder / "patterns.parquet").read_bytes() == written[0]
    assert Study.open(folder).manifest["stages"]["labels"]["requests"] == 9


def test_another_seed_or_model_asks_anew_and_replaces_only_its_own(folder, server):
    ask(folder, server)
    ask(folder, server, seed=1, memories=[Memory(0, 0)])
    assert len(server.questions) == 11
    ask(folder, server, model="/home/me/other.gguf", memories=[Memory(0, 0)])
    names = [row["annotator"] for row in rows(folder) if (row["layer"], row["memory"]) == (0, 0)]
    assert names == ["llm:other.gguf", "llm:tiny-model", "machine"]


@pytest.mark.parametrize("workers", [1, 3])
def test_an_interrupted_run_resumes_and_pays_nothing_twice(folder, server, workers):
    def interrupt(number, question):
        if number == 4:
            _thread.interrupt_main()
            time.sleep(0.2)  # this answer is in flight meanwhile, and kept

    server.script = interrupt
    with pytest.raises(KeyboardInterrupt):
        ask(folder, server, workers=workers)
    assert not any(row["annotator"].startswith("llm") for row in rows(folder))
    first = len(server.questions)
    assert 4 <= first < 9
    server.script = lambda number, question: None
    labels = ask(folder, server, workers=workers)
    assert len(server.questions) == 9
    assert (labels.cost.paid.requests, labels.cost.cached.requests) == (9 - first, first)


def test_it_waits_for_retry_after_and_says_so(folder, server, caplog):
    server.script = lambda number, question: (
        (429, {"Retry-After": "1"}, {"error": {"message": "slow down"}}) if number == 1 else None
    )
    begun = time.monotonic()
    ask(folder, server, workers=1)
    assert 1 <= time.monotonic() - begun < 10
    assert len(server.questions) == 10
    assert "responded with 429: slow down (try 1 of 4)." in caplog.text


def test_it_does_not_wait_for_hours(folder, server):
    server.script = lambda number, question: (429, {"Retry-After": "7200"}, {}) if number == 3 else None
    with pytest.raises(
        LabellerError, match="responded with 429, and asks to wait 7200 s. The answers so far are stored"
    ):
        ask(folder, server, workers=1)
    server.script = lambda number, question: None
    assert ask(folder, server, workers=1).cost.cached.requests == 2


@pytest.mark.parametrize("header", ["soon", "-5", "0", "9" * 5000])
def test_a_retry_after_that_cannot_be_read_is_passed_over(folder, server, header):
    server.script = lambda number, question: (503, {"Retry-After": header}, {}) if number == 1 else None
    if header.startswith("9"):
        with pytest.raises(LabellerError, match=r"responded with 503, and asks to wait 9+"):
            ask(folder, server, retries=0, workers=1)
    else:
        ask(folder, server, workers=1)
        assert len(server.questions) == 10


def test_temporary_failures_are_retried(folder, server):
    def fail(number, question):
        if number == 1:
            return 500, {}, b"<html>oh no</html>"
        if number == 2:
            raise Cut
        if number == 3:
            return 502, {}, {"error": "bad gateway"}
        return slowly(0.8) if number == 5 else None

    server.script = fail
    labels = ask(folder, server, timeout=0.4, workers=1)
    assert len(labels.patterns) == 5
    assert len(server.questions) == 13


def test_persistent_failures_give_one_sentence(folder, server):
    server.script = lambda number, question: (500, {}, {"error": {"message": f"\x1b[31m broken, {KEY} was sent"}})
    with pytest.raises(
        LabellerError, match=r"/v1 responded with 500: .* broken, … was sent, also after retries"
    ) as raised:
        ask(folder, server, retries=1)
    assert KEY not in str(raised.value)
    assert "\x1b" not in str(raised.value)
    server.script = lambda number, question: slowly(0.5)
    with pytest.raises(LabellerError, match="gave no answer in 0.2 s"):
        ask(folder, server, timeout=0.2, workers=1)
    server.script = lambda number, question: (200, {}, b"<html>a page</html>")
    with pytest.raises(LabellerError, match="did not answer like an OpenAI-compatible endpoint"):
        ask(folder, server)


def test_permanent_refusals_end_it_at_once(folder, server, monkeypatch):
    server.script = lambda number, question: (401, {}, {"error": {"message": "bad key"}})
    with pytest.raises(
        LabellerError, match=r"does not accept the key \(401: bad key\). Set FFSCOPE_LABELLER_KEY to the right one"
    ):
        ask(folder, server, workers=1)
    assert len(server.questions) == 1
    monkeypatch.setenv("FFSCOPE_LABELLER_KEY", "")
    with pytest.raises(LabellerError, match="requires a key"):
        ask(folder, server, workers=1)
    assert "Authorization" not in server.headers[-1]
    with pytest.raises(LabellerError, match="has no such page or model"):
        ask(folder, server, url=f"{server.url}/elsewhere", model="x")
    server.script = lambda number, question: (307, {"Location": "http://evil.example/"}, {})
    with pytest.raises(LabellerError, match=r"redirects to another address \(307\)"):
        ask(folder, server)


def test_nothing_answers_there(folder):
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    with pytest.raises(LabellerError, match=rf"Nothing answers at http://127.0.0.1:{port}/v1 \(connection refused\)"):
        ask(folder, None, url=f"http://127.0.0.1:{port}")


def test_a_server_with_other_than_one_model_needs_a_name(folder, server):
    server.models = ["b", "a\x1b[0m"]
    with pytest.raises(LabellerError, match=r"has 2 models: a<001B>\[0m, b. Name one with --labeller-model"):
        ask(folder, server)
    ask(folder, server, model="b")
    assert {question["model"] for question in server.questions} == {"b"}
    server.models = []
    with pytest.raises(LabellerError, match="has 0 models: none"):
        ask(folder, server)


def test_options_that_a_server_rejects_are_left_out(folder, server):
    def picky(number, question):
        if "response_format" in question:
            return 400, {}, {"error": {"message": "no such thing here"}}
        if "max_tokens" in question:
            return 400, {}, {"error": {"message": "Unsupported parameter: 'max_tokens'. Use 'max_completion_tokens'."}}
        return None

    server.script = picky
    labels = ask(folder, server, workers=1)
    assert len(labels.patterns) == 5
    assert len(server.questions) == 11  # the server's options are learnt once
    assert server.questions[-1]["max_completion_tokens"] == server.questions[0]["max_tokens"]
    assert (server.questions[-1]["temperature"], server.questions[-1]["seed"]) == (0, 0)
    assert ask(folder, server).cost.paid.requests == 0  # the cache is keyed by the original options


def test_one_refused_question_does_not_stop_the_others(folder, server, caplog):
    def too_long(number, question):
        return (
            (400, {}, {"error": {"message": "context too long"}})
            if "«cat»" in question["messages"][1]["content"][-60:]
            else None
        )

    server.script = too_long
    labels = ask(folder, server, workers=1)
    assert list(labels.failed) == [Memory(0, 2)]
    assert "no readable labels for 1 of 5 memories, such as L0.2" in caplog.text
    assert all("response_format" in question for question in server.questions[-3:])  # which is not at fault


MALFORMED = {
    "no JSON": content("I see nothing."),
    "cut": content('{"patterns": [{"kind": "shal', finish="length"),
    "other fields": content('{"patterns": [{"type": "shallow"}]}'),
    "other kind": content(json.dumps({"patterns": [{**PATTERN, "kind": "vague"}]})),
    "ranks that are not there": content(json.dumps({"patterns": [{**PATTERN, "covers": [90, 91, 92]}]})),
    "too few": content(json.dumps({"patterns": [{**PATTERN, "covers": [1, 2]}]})),
    "reasoning alone": content("<think>" + GOOD),
    "nothing": content(None),
    "a number": content('{"patterns": 7}'),
    "deep": content("[" * 5000),
    "half a character": content("\ud800"),
}


@pytest.mark.parametrize("name", MALFORMED)
def test_an_answer_that_cannot_be_read_is_asked_for_once_more(folder, server, name):
    server.script = lambda number, question: MALFORMED[name] if number == 1 else content(GOOD) if number == 2 else None
    labels = ask(folder, server, memories=[Memory(0, 2)])
    assert [pattern.covers for pattern in labels.patterns[Memory(0, 2)]] == [(1, 2, 3)]
    roles = [message["role"] for message in server.questions[1]["messages"]]
    assert roles == ["system", "user", "assistant", "user"]
    wrong = server.questions[1]["messages"][-1]["content"]
    assert "Answer again" in wrong
    assert ("cut off" in wrong) == (name == "cut")


def test_a_memory_without_an_answer_is_given_up_and_counted(folder, server):
    def silly(number, question):
        return content("?") if len(json.loads(question["messages"][1]["content"])["prefixes"]) == 5 else None

    server.script = silly
    labels = ask(folder, server)
    assert list(labels.failed) == [Memory(0, 2)]
    assert Study.open(folder).manifest["stages"]["labels"]["failed"] == ["L0.2"]
    server.script = lambda number, question: content("?")
    with pytest.raises(LabellerError, match=r"gave no readable labels for 1 of 1 memories.*Try another model"):
        ask(folder, server, seed=5, memories=[Memory(0, 0)])


def test_no_pattern_is_an_answer_too(folder, server):
    ask(folder, server)
    server.script = lambda number, question: content('{"patterns": []}')
    labels = ask(folder, server, seed=1, memories=[Memory(0, 0)])
    assert labels.patterns == {Memory(0, 0): []}
    assert Study.open(folder).manifest["stages"]["labels"]["without_pattern"] == ["L0.0"]
    left = [(row["layer"], row["memory"]) for row in rows(folder) if row["annotator"].startswith("llm")]
    assert (0, 0) not in left
    assert (1, 0) in left


def test_labels_that_cannot_be_tested_have_no_score(folder, server, caplog):
    server.script = lambda number, question: (
        content('{"fits": 3}') if "patterns" in question["messages"][1]["content"] else None
    )
    labels = ask(folder, server, memories=[Memory(1, 0)])
    (pattern,) = labels.patterns[Memory(1, 0)]
    assert (pattern.detection, pattern.p_value) == (None, None)
    assert "L1.0: its labels could not be tested" in caplog.text


@pytest.mark.parametrize(
    "text",
    [
        f"```json\n{GOOD}\n```",
        f"Here is what I found: {GOOD} I hope this {{helps}}.",
        f'<think>maybe {{"patterns": []}}</think>\n{GOOD}',
        f'it begins in the middle {{"patterns": []}} </think>{GOOD}',
        json.dumps([PATTERN]),
        json.dumps({"patterns": PATTERN}),
        json.dumps({"patterns": [{**PATTERN, "kind": " Shallow pattern", "covers": ["1", 2.0, "3", 99, True]}]}),
        json.dumps({"patterns": [{**PATTERN, "covers": "1, 2, 3"}, {"kind": "semantic"}, 4]}),
        json.dumps({"patterns": [PATTERN, PATTERN], "more": 1}),
    ],
)
def test_sloppy_answers_are_understood(text):
    (pattern,) = read_patterns(text, range(1, 6))
    assert (pattern.kind, pattern.description, pattern.covers) == ("shallow", "ends with x", (1, 2, 3))


def test_answers_are_limited_to_valid_patterns():
    many = [{**PATTERN, "description": f"{number}\x1b[31m\u202e {'long ' * 99}"} for number in range(9)]
    patterns = read_patterns(json.dumps({"patterns": many}), range(1, 4))
    assert len(patterns) == 6
    assert all(len(pattern.description) <= 200 and pattern.description.isprintable() for pattern in patterns)
    assert read_fits('{"fits": {"1": [2, 9], "2": []}}', patterns=2, prefixes=3) == [{2}, set()]
    for wrong in (
        "{}",
        '{"fits": []}',
        '{"fits": {"1": []}}',
        '{"fits": {"1": [], "2": 5}}',
        '{"fits": {"1": [], "2": ["x"]}}',
    ):
        with pytest.raises(MalformedError):
            read_fits(wrong, patterns=2, prefixes=3)


def test_a_copy_of_the_requested_format_is_not_an_answer(folder, server):
    server.script = lambda number, question: content(question["messages"][0]["content"]) if number != 3 else None
    with pytest.raises(LabellerError, match=r"no readable labels for 1 of 1 memories.*kind of a pattern"):
        ask(folder, server, memories=[Memory(1, 0)])
    labels = ask(
        folder, server, memories=[Memory(1, 0)], seed=1
    )  # the third question is the label, the fourth its test
    assert [pattern.detection for pattern in labels.patterns[Memory(1, 0)]] == [None]


def test_text_from_the_corpus_is_quoted_and_never_obeyed(folder, server):
    server.script = lambda number, question: oracle(question)
    ask(folder, server, memories=[Memory(0, 0)])
    system, user = server.questions[0]["messages"]
    assert "never instructions" in system["content"]
    quoted = json.loads(user["content"])  # nothing in it ends the quotation
    assert any("Ignore all instructions" in text for text in quoted["prefixes"].values())
    assert "PWNED" not in json.dumps(rows(folder))
    assert marked("a ", "b") == "a «b»"
    assert marked("a", " b") == "a «b»"
    assert len(marked("x" * 900, "b")) < 410


def test_the_key_is_nowhere_but_in_the_request(folder, server, caplog, monkeypatch):
    caplog.set_level(logging.DEBUG)

    def echo(number, question):
        if number == 1:
            return 500, {}, {"error": {"message": KEY}}
        if number == 2:
            return content(json.dumps({"patterns": [{**PATTERN, "description": f'says "{KEY}"'}]}))
        return None

    server.script = echo
    ask(folder, server, workers=1)
    assert {headers["Authorization"] for headers in server.headers} == {f"Bearer {KEY}"}
    address = (
        server.url.replace("http://", "http://someone:pass%20word-secret@") + "/v1/chat/completions?api=query-secret"
    )
    ask(folder, server, url=address, seed=3)
    assert server.headers[-1]["Authorization"].startswith("Basic ")
    with pytest.raises(LabellerError) as raised:
        server.script = lambda number, question: (
            403,
            {},
            {"error": {"message": "query-secret pass word-secret"}},
        )
        ask(folder, server, url=address, seed=4)
    message = str(raised.value)
    files = b"".join(file.read_bytes() for file in folder.rglob("*") if file.is_file())
    for secret in (KEY, "word-secret", "someone"):
        assert secret.encode() not in files
        assert secret not in caplog.text
        assert secret not in message
    assert b"query-secret" not in files
    assert "query-secret" not in message
    assert KEY not in repr(Address.parse(server.url))
    monkeypatch.setenv("FFSCOPE_LABELLER_KEY", "sk-bad\nkey")
    with pytest.raises(LabellerError, match="contains characters that a key cannot have") as raised:
        ask(folder, server)
    assert "sk-bad" not in str(raised.value)


def test_a_key_is_not_sent_in_the_open(monkeypatch):
    for url in ("http://api.example.com/v1", "http://8.8.8.8", "http://134744072", "http://[2001:4860:4860::8888]"):
        with pytest.raises(LabellerError, match="Your key would be sent to .* unencrypted"):
            Address.parse(url)
    for url in (
        "https://api.example.com",
        "http://localhost:80",
        "http://10.1.2.3",
        "http://vllm:8000",
        "http://[::1]:80",
        "http://a.local",
    ):
        assert Address.parse(url).authorization == f"Bearer {KEY}"
    monkeypatch.setenv("FFSCOPE_LABELLER_KEY", "")
    monkeypatch.setenv("OPENAI_API_KEY", KEY)
    assert Address.parse("http://api.example.com").authorization is None
    monkeypatch.delenv("FFSCOPE_LABELLER_KEY")
    assert Address.parse("localhost:80").authorization == f"Bearer {KEY}"


def test_labels_need_no_torch_and_load_without_the_sdk():
    code = """
import sys
for name in ("torch", "transformers", "openai", "httpx2"): sys.modules[name] = None
import ffscope.labelling.labeller
"""
    assert subprocess.run([sys.executable, "-c", code], timeout=60).returncode == 0


def test_addresses():
    for url in (
        "localhost:80",
        "http://localhost:80/",
        "http://localhost:80/v1/",
        "http://localhost:80/v1/chat/completions",
    ):
        assert Address.parse(url).shown == "http://localhost:80/v1"
        assert Address.parse(url).is_loopback
    assert Address.parse("https://h.org/v1beta/openai/").shown == "https://h.org/v1beta/openai"
    queried = Address.parse("https://h.org/api/v1?version=1&x=a%20b")
    assert (queried.shown, queried.query) == ("https://h.org/api/v1", {"version": "1", "x": "a b"})
    assert not queried.is_loopback
    for url in ("", "ftp://h", "http://", "http://h:x", "http://h/a b", "http://[", "https://ho\u202est"):
        with pytest.raises(LabellerError, match="is not the address of a labeller. Expected one such as"):
            Address.parse(url)


def test_without_the_sdk_it_says_what_to_install(monkeypatch):
    monkeypatch.delitem(sys.modules, "ffscope.labelling.client", raising=False)
    monkeypatch.setitem(sys.modules, "openai", None)
    with pytest.raises(LabellerError, match=r"not installed: pip install 'ffscope\[label\]'"):
        Endpoint("http://localhost:1", model="x")


def test_nothing_of_an_account_elsewhere_is_sent(folder, server, monkeypatch):
    """The SDK would take these from the environment."""
    for name in ("OPENAI_ADMIN_KEY", "OPENAI_ORG_ID", "OPENAI_PROJECT_ID"):
        monkeypatch.setenv(name, "ambient-secret")
    monkeypatch.setenv("OPENAI_CUSTOM_HEADERS", "X-Secret: ambient-secret\nAuthorization: ambient-secret")
    monkeypatch.setenv("OPENAI_BASE_URL", "http://127.0.0.1:9/v1")
    ask(folder, server, memories=[Memory(0, 0)])
    assert len(server.questions) == 2
    assert "ambient-secret" not in json.dumps(server.headers)
    assert {name.lower() for headers in server.headers for name in headers} <= {
        *("host", "accept", "accept-encoding", "connection", "content-type", "content-length", "user-agent"),
        "authorization",
    }


def test_the_environment_s_proxy_is_used_but_not_to_this_machine(folder, server, monkeypatch):
    monkeypatch.setenv("NO_PROXY", "")
    monkeypatch.setenv("no_proxy", "")
    monkeypatch.setenv("HTTP_PROXY", "http://127.0.0.1:9")
    monkeypatch.setenv("http_proxy", "http://127.0.0.1:9")
    ask(folder, server, memories=[Memory(0, 2)])
    for name in ("HTTP_PROXY", "http_proxy"):
        monkeypatch.setenv(name, server.url)  # which stands for a proxy: it is asked for the whole address
    ask(folder, server, url="http://labeller.internal", model="x", memories=[Memory(0, 2)])
    assert server.paths[-1] == "http://labeller.internal/v1/chat/completions"


def test_a_redirect_is_not_followed(folder, server):
    with serving() as other:
        server.script = lambda number, question: (307, {"Location": f"{other.url}/v1/chat/completions"}, {})
        with pytest.raises(LabellerError, match=r"redirects to another address \(307\)"):
            ask(folder, server)
        assert not other.headers


# --- batches ---


@pytest.fixture
def quick(monkeypatch):
    monkeypatch.setattr(batch, "POLL_SECONDS", 0.01)


def test_a_batch_gives_the_same_labels_as_single_questions(tmp_path, server, quick):
    singly, together = write_study(tmp_path / "singly"), write_study(tmp_path / "together")
    events = []
    first = ask(singly, server)
    second = ask(together, server, batch=True, progress=events.append)
    assert (singly / "patterns.parquet").read_bytes() == (together / "patterns.parquet").read_bytes()
    assert (first.cost, first.patterns) == (second.cost, second.patterns)
    assert len(server.batches) == 2  # labels, then their tests
    assert {batch["completion_window"] for batch in server.batches.values()} == {"24h"}
    assert "answers of batch batch_1 (in_progress)" in {progress.unit for progress in events}
    again = ask(together, server, batch=True)
    assert (again.cost.paid, again.cost.cached.requests, len(server.batches)) == (Tokens(), 9, 2)
    assert ask(together, server).cost.paid == Tokens()  # one cache for both ways
    stages = [Study.open(folder).manifest["stages"]["labels"] for folder in (singly, together)]
    assert [stage["requests"] for stage in stages] == [9, 9]


@pytest.mark.parametrize("when", ["made", "polled"])
def test_a_batch_that_was_interrupted_is_picked_up_and_paid_once(folder, server, quick, when, caplog):
    caplog.set_level(logging.INFO)

    def interrupt(batch):
        if (batch["polls"] > 0) is (when == "polled"):
            _thread.interrupt_main()
            time.sleep(0.3)

    server.on_batch, server.polls = interrupt, 3
    with pytest.raises(KeyboardInterrupt):
        ask(folder, server, batch=True)
    assert len(server.batches) == 1
    assert len(server.questions) in (0, 5)  # its questions are answered in the meantime
    server.on_batch = lambda batch: None
    labels = ask(folder, server, batch=True)
    assert len(server.batches) == 2
    assert len(server.questions) == 9
    assert labels.cost.paid.requests == 9
    assert "sent by an earlier run" in caplog.text
    assert len(labels.patterns) == 5


def test_a_batch_whose_creation_got_no_response_is_found_again(folder, server, quick):
    def broken(batch):
        raise Cut

    server.on_batch = broken
    with pytest.raises(LabellerError, match="dropped the connection"):
        ask(folder, server, batch=True)
    assert len(server.batches) == 1  # created once, though the response was lost
    server.on_batch = lambda batch: None
    ask(folder, server, batch=True)
    assert len(server.batches) == 2
    assert len(server.questions) == 9


def test_questions_that_a_batch_refuses_are_asked_singly_or_dropped(folder, server, quick):
    def picky(number, question):
        if "max_tokens" in question:
            return 400, {}, {"error": {"message": "Unsupported parameter: 'max_tokens'."}}
        if "«cat»" in question["messages"][1]["content"][-60:]:
            return 413, {}, {"error": {"message": "too long"}}
        return None

    server.script = picky
    labels = ask(folder, server, batch=True)
    assert list(labels.failed) == [Memory(0, 2)]
    assert "413: too long" in labels.failed[Memory(0, 2)]
    assert len(labels.patterns) == 4
    assert len(server.batches) == 3  # refused, labels, tests
    assert all("max_completion_tokens" in question for question in server.questions[5:])


def test_malformed_answers_of_a_batch_are_asked_for_once_more(folder, server, quick):
    server.script = lambda number, question: content("?") if number == 1 else None
    labels = ask(folder, server, batch=True, memories=[Memory(0, 2)])
    assert len(labels.patterns[Memory(0, 2)]) == 1
    assert len(server.batches) == 2


def test_a_batch_that_ends_early_keeps_what_it_answered(folder, server, quick):
    server.ending = "expired"
    with pytest.raises(LabellerError, match="ended with status expired.*run the same command to request the others"):
        ask(folder, server, batch=True)
    server.ending = "completed"
    labels = ask(folder, server, batch=True)
    assert labels.cost.cached.requests == 2
    assert len(labels.patterns) == 5


def test_a_server_without_batches_is_one_sentence(folder, server, quick):
    server.polls = 0  # it has no files either
    with pytest.raises(LabellerError, match="may not support batches: leave out --labeller-batch"):
        ask(folder, server, batch=True)
    server.polls = 2
    server.on_batch = lambda batch: server.batches.clear()  # lost at the server
    with pytest.raises(LabellerError, match="no longer exists: run the same command to send its questions again"):
        ask(folder, server, batch=True)
    server.on_batch = lambda batch: None
    assert len(ask(folder, server, batch=True).patterns) == 5


def test_the_key_is_not_in_a_batch(folder, server, quick):
    ask(folder, server, batch=True)
    assert {headers["Authorization"] for headers in server.headers} == {f"Bearer {KEY}"}
    files = b"".join(file.read_bytes() for file in folder.rglob("*") if file.is_file())
    assert KEY.encode() not in files + b"".join(server.files.values())


def test_scores():
    assert balanced_accuracy(8, 10, alarms=1, others=10) == pytest.approx(0.85)
    assert p_value(3, 3, alarms=0, others=3) == pytest.approx(1 / 20)
    assert p_value(0, 5, alarms=5, others=5) == p_value(0, 5, alarms=0, others=5) == 1
    # scipy.stats.fisher_exact([[8, 2], [1, 9]], alternative="greater").pvalue
    assert p_value(8, 10, alarms=1, others=10) == pytest.approx(0.0027387764, abs=1e-7)
    assert math.isclose(p_value(10, 10, alarms=10, others=10), 1)


def test_cost():
    price = Price.parse("0.5,2")
    cost = Cost(Tokens(2, 1_000_000, 500_000), Tokens(3, 7, 7), price)
    assert cost.money == 1.5
    assert str(cost) == "2 requests, 1,000,000 tokens in, 500,000 out, 1.5000 paid; 3 from the cache"
    assert Cost().money is None
    for wrong in ("", "1", "1,x", "-1,2", "nan,1", "1,2,3"):
        with pytest.raises(InputError, match="is not a price"):
            Price.parse(wrong)


def test_progress_shows_the_cost(folder, server):
    events = []
    ask(folder, server, price=Price(1.0, 1.0), progress=events.append)
    assert [progress.done for progress in events] == [0, 1, 2, 3, 4, 5]
    assert events[-1].unit == "memories (9 requests, 1,300 tokens in, 130 out, 0.0014 paid)"


def test_it_says_what_is_missing(folder, server):
    for memory, error, message in (
        (Memory(0, 3), InputError, "L0.3 has 2 triggers, but a pattern needs at least 3"),
        (Memory(7, 0), MemoryNameError, "There is no memory L7.0"),
    ):
        with pytest.raises(error, match=message):
            ask(folder, server, memories=[memory])
    with pytest.raises(InputError, match="has no memory to label"):
        ask(folder, server, memories_per_layer=0)
    (folder / "labeller.sqlite").write_bytes(b"no database at all" * 100)
    with pytest.raises(
        LabellerError, match="labeller.sqlite cannot store the labeller's answers: file is not a database"
    ):
        ask(folder, server)
    (folder / "patterns.parquet").unlink()
    with pytest.raises(StudyError, match="has no patterns yet"):
        ask(folder, server)
