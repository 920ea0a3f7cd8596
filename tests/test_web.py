"""The explorer's server: every page and its JSON twin, compared with the library, and the requests it refuses."""

import asyncio
import json
import random
import shutil
import sqlite3
import threading
import time

import httpx2
import pyarrow.parquet as pq
import pytest

import ffscope
from explorer import app_of, client_of, served, tiny_model
from ffscope.errors import GradientError
from ffscope.html import dump_json, json_script
from ffscope.live.interventions import Interventions
from ffscope.live.model import Live
from ffscope.memory_name import Memory
from ffscope.queries.annotations import read
from ffscope.queries.memory import memory_page
from ffscope.queries.search import SearchQuery, search
from ffscope.report.catalogue import charted
from ffscope.web.rows import merged_rows
from studies import copy_of

PAGES = ["/", "/L1", "/L2/5", "/search", "/prompt", "/annotate"]


@pytest.fixture(scope="module")
def study(explored, tmp_path_factory):
    return copy_of(explored, tmp_path_factory.mktemp("web"))


@pytest.fixture(scope="module")
def client(study):
    with client_of(app_of(study.folder)) as client:
        yield client


@pytest.fixture(scope="module")
def live(study, tokenizer):
    with client_of(app_of(study.folder, tokenizer)) as client:
        yield client


def raiser(error):
    """A function that raises an error, whatever it is called with."""

    def fail(*_args, **_kwargs):
        raise error

    return fail


def get(client, path, **params):
    answer = client.get(path, params=params)
    assert answer.status_code == 200, answer.text
    return answer.json()


@pytest.mark.parametrize("path", PAGES)
def test_every_page_is_there_with_nothing_inline(client, path):
    answer = client.get(path)
    assert answer.status_code == 200
    assert answer.headers["content-type"] == "text/html; charset=utf-8"
    assert "<script>" not in answer.text
    assert " style=" not in answer.text
    assert " on" not in answer.text.split("<body>")[0]


def test_a_memorys_twin_is_what_the_library_says(client, study):
    for name in ("L0.3", "L2.21"):
        layer, number = name[1:].split(".")
        twin, page = get(client, f"/L{layer}/{number}.json"), memory_page(study.folder, name)
        for part in ("memory", "seen", "fired", "mean", "maximum", "histogram"):
            assert twin[part] == getattr(page, part)
        assert [tuple(pair) for pair in twin["value"]["promotes"]] == page.value.promotes
        shown = {rank for row in twin["triggers"] for rank in (row["rank"], *row["folded"])}
        assert shown == {trigger.rank for trigger in page.triggers}
        for row in twin["triggers"]:
            trigger = page.triggers[row["rank"] - 1]
            assert (row["coefficient"], row["sentence"], row["position"]) == (
                trigger.coefficient,
                trigger.sentence,
                trigger.position,
            )
            assert row["tokens"] == trigger.tokens
            assert row["agrees"] == (trigger.next_token == page.value.promotes[0][0])
        assert [row["rank"] for row in twin["sample"]] == [trigger.rank for trigger in page.sample]
        assert {row["sentence"] for row in twin["quantiles"]} <= {row["sentence"] for row in twin["sample"]}
        assert [pattern["description"] for pattern in twin["patterns"]] == [
            pattern.description for pattern in page.patterns
        ]


def test_a_memorys_gist_is_its_first_pattern_and_its_first_tokens(client, study):
    for name in ("L0.3", "L2.21"):
        twin, page = get(client, f"/{name.replace('.', '/')}.json"), memory_page(study.folder, name)
        pattern, *_ = page.patterns
        promoted = " ".join(token for token, _ in page.value.promotes[:5])
        assert twin["gist"] == page.gist
        assert page.gist.startswith("Fires on: ")
        assert page.gist.endswith(f" · promotes {promoted}")
        assert page.gist == f"Fires on: {pattern.description} · promotes {promoted}"
        assert twin["value"]["vocabulary"] == study.manifest["model"]["vocab"]


def test_similar_memories_share_as_much_as_reported(client, study):
    results = ffscope.open(study.folder)
    places = {}
    for row in results.table("triggers").to_pylist():
        places.setdefault((row["layer"], row["memory"]), set()).add((row["sentence"], row["position"]))
    tokens = {(row["layer"], row["memory"]): set(row["top_tokens"]) for row in results.table("values").to_pylist()}
    mine = next(iter(places))
    twin = get(client, f"/L{mine[0]}/{mine[1]}.json")["similar"]
    for kind, members in (("triggers", places), ("tokens", tokens)):
        counts = sorted((-len(members[mine] & other), *name) for name, other in members.items() if name != mine)
        expected = [(f"L{layer}.{memory}", -shared) for shared, layer, memory in counts if shared][:10]
        assert [(entry["memory"], entry["shared"]) for entry in twin[kind]] == expected
        assert all(entry["of"] == len(members[mine]) for entry in twin[kind])


def test_neighbours_lead_through_all_memories(client):
    assert get(client, "/L0/0.json")["previous"] is None
    assert get(client, "/L0/21.json")["next"] == "L1.0"
    assert get(client, "/L1/0.json")["previous"] == "L0.21"
    assert get(client, "/L2/21.json")["next"] is None


def test_a_layers_twin_has_every_memory(client, study):
    twin = get(client, "/L1.json")
    columns = twin["columns"]
    assert columns["memory"] == list(range(22))
    for number in (0, 7, 21):
        page = memory_page(study.folder, f"L1.{number}")
        assert columns["maximum"][number] == page.maximum
        assert columns["fires"][number] == pytest.approx(page.fired / page.seen)
        assert columns["top"][number] == page.value.promotes[0][0]
        assert columns["precision"][number] == page.value.precision
        assert columns["patterns"][number] == len(page.patterns)
    assert {figure["name"] for figure in twin["figures"]} <= {
        "fires",
        "max_prob",
        "next_rank",
        "precision",
        "effect_size",
    }


def test_the_overview_has_the_reports_figures(client, study):
    twin = get(client, "/index.json")
    summary = json.loads(study.path("summary.json").read_text())
    assert {figure["name"] for figure in twin["figures"]} == summary.keys() & charted().keys()
    assert len(twin["figures"]) >= 15
    for figure in twin["figures"]:
        assert figure["spec"] == ffscope.open(study.folder).figure(figure["name"]).spec
    assert all("mark" in json.dumps(figure["spec"]) for figure in twin["figures"])
    assert [row["layer"] for row in twin["layers"]] == [0, 1, 2]
    assert not twin["older"]
    assert twin["missing"] == []
    assert len(twin["predictive"]) == 10


def test_search_gives_the_librarys_rows(client, study):
    twin = get(client, "/search.json", trigger="cat", fires="0.001..", limit=9)
    results = search(study, SearchQuery.parse({"trigger": "cat", "fires": "0.001.."}, limit=9))
    assert twin["count"] == results.count
    assert [(row["memory"], row["hits"], row["top"]) for row in twin["rows"]] == [
        (row.memory, row.hits, row.measures["top"]) for row in results.rows
    ]


def test_context_is_the_paragraph(client, study):
    twin = get(client, "/context.json", sentence=1)
    table = ffscope.open(study.folder).table("sentences").to_pylist()
    mine = next(row for row in table if row["sentence"] == 1)
    expected = [row for row in table if (row["document"], row["paragraph"]) == (mine["document"], mine["paragraph"])]
    assert [sentence["text"] for sentence in twin["sentences"]] == [row["text"] for row in expected]


@pytest.mark.parametrize(
    ("path", "status", "message"),
    [
        ("/L9/1.json", 404, "There is no memory L9.1"),
        ("/L1/22.json", 404, "Layer 1 has memories 0 to 21"),
        ("/L9.json", 404, "There is no layer 9"),
        ("/L99999999999999999999.json", 404, "no such page"),
        ("/L" + "9" * 5000 + ".json", 404, "no such page"),
        ("/context.json?sentence=99999999", 400, "There is no sentence"),
        ("/context.json", 422, "sentence"),
        ("/search.json?precision=much", 400, "precision must be a range"),
        ("/prompt.json?text=hi", 503, "--no-model"),
        ("/L1/2/coefficients.json?text=hi", 503, "--no-model"),
        ("/annotate/L1/2.json?annotator=machine", 400, "cannot be a person's name"),
        ("/nothing.json", 404, "no such page"),
        ("/static/../app.py.json", 404, "no such page"),
        ("/static/%2e%2e/app.json", 404, "no such page"),
    ],
)
def test_what_is_refused_is_a_sentence(client, path, status, message):
    answer = client.get(path)
    assert answer.status_code == status, answer.text
    assert message in answer.json()["error"]


@pytest.mark.parametrize("path", ["/L9/1", "/L1/22", "/L9", "/nothing", "/L1/2/3/4", "/%3Cscript%3E"])
def test_a_wrong_page_is_a_page(client, path):
    answer = client.get(path)
    assert answer.status_code == 404
    assert "This page cannot be shown" in answer.text
    assert "<script>" not in answer.text


@pytest.mark.parametrize(
    "path",
    [
        "/static/../app.py",
        "/static/..%2fapp.py",
        "/static/%2e%2e/%2e%2e/__init__.py",
        "/../study.json",
        "/static//etc/passwd",
        "/L1/..%2f..%2fstudy.json",
    ],
)
def test_no_path_leaves_the_study(client, path):
    answer = client.get(path)
    assert answer.status_code == 404
    assert "def " not in answer.text
    assert "root:" not in answer.text


def test_an_unexpected_error_is_a_sentence(study, monkeypatch):
    from ffscope.web.pages import memory

    monkeypatch.setattr(memory, "memory_response", lambda *_: 1 / 0)
    with client_of(app_of(study.folder)) as client:
        answer = client.get("/L1/2.json")
    assert answer.status_code == 500
    assert "The server failed on this request" in answer.json()["error"]
    assert "default-src 'none'" in answer.headers["content-security-policy"]


def test_json_in_a_page_cannot_end_its_block():
    html = json_script("x", {"text": "</script><script>alert(1)</script>\u2028&amp;"})
    assert html.count("<") == 2
    assert json.loads(html.split(">", 1)[1].rsplit("<", 1)[0])["text"].startswith("</script>")
    assert dump_json({"a": float("nan"), "b": [float("inf"), 1.0]}) == '{"a":null,"b":[null,1.0]}'


def test_the_same_text_is_folded(study):
    page = memory_page(study.folder, "L0.3")
    rows = merged_rows([page.triggers[0], page.triggers[1], page.triggers[0]])
    assert [row.rank for row in rows] == [page.triggers[0].rank, page.triggers[1].rank]
    assert rows[0].folded == [page.triggers[0].rank]


def test_a_stage_run_since_the_start_is_seen(study, tmp_path, tokenizer):
    copy = tmp_path / "copy"
    shutil.copytree(study.folder, copy)
    manifest = json.loads((copy / "study.json").read_text())
    agreement = manifest["stages"].pop("agreement")
    (copy / "study.json").write_text(json.dumps(manifest))
    with client_of(app_of(copy)) as client:
        twin = get(client, "/L1/2.json")
        assert [entry["stage"] for entry in twin["missing"]] == ["agreement"]
        assert twin["missing"][0]["command"] == "ffscope agreement copy"
        assert "precision" not in get(client, "/L1.json")["columns"]
        manifest["stages"]["agreement"] = agreement
        (copy / "study.json").write_text(json.dumps(manifest))
        assert get(client, "/L1/2.json")["missing"] == []
        assert "precision" in get(client, "/L1.json")["columns"]
        manifest["schema"] = 7
        (copy / "study.json").write_text(json.dumps(manifest))
        answer = client.get("/L1/2.json")
        assert answer.status_code == 409
        assert "Make it again with: ffscope run tiny/llama --corpus" in answer.json()["error"]


# Annotating


def annotation(annotator, *patterns, none=False):
    return {"annotator": annotator, "patterns": list(patterns), "none": none}


ENDS = {"kind": "shallow", "description": "ends with <b>a", "covers": [1, 2, 3]}


@pytest.fixture
def annotating(study, tmp_path):
    copy = tmp_path / "study"
    shutil.copytree(study.folder, copy)
    with client_of(app_of(copy)) as client:
        yield client, ffscope.open(copy).study


def test_annotating_step_by_step(annotating):
    client, study = annotating
    tasks = get(client, "/annotate.json", annotator="ada", sample=2)
    assert (tasks["annotator"], tasks["done"], len(tasks["memories"])) == ("ada", 0, 6)
    name = tasks["memories"][0]["memory"]
    path = "/annotate/" + name.replace(".", "/")
    half = {"kind": None, "description": "", "covers": [2]}
    assert client.post(f"{path}/draft.json", json=annotation("ada", half)).status_code == 200
    assert client.post(f"{path}/draft.json", json=annotation("ada", {**half, "covers": [2, 3]})).status_code == 200
    task = get(client, f"{path}.json", annotator="ada")
    assert task["patterns"] == [{**half, "covers": [2, 3]}]
    assert [step["patterns"][0]["covers"] for step in task["steps"]] == [[2], [2, 3]]
    assert get(client, f"{path}.json", annotator="bob")["steps"] == []
    assert not task["done"]
    assert get(client, "/annotate.json", annotator="ada", sample=2)["memories"][0]["draft"]
    refused = client.post(f"{path}.json", json=annotation("ada", {**ENDS, "covers": [1, 2]}))
    assert refused.status_code == 400
    assert "at least 3" in refused.json()["error"]
    assert client.post(f"{path}.json", json=annotation("ada", ENDS)).status_code == 200
    task = get(client, f"{path}.json", annotator="ada")
    assert task["done"]
    assert task["patterns"] == [ENDS]
    assert [(record.annotator, record.memory, record.source) for record in read(study)] == [
        ("ada", Memory.parse(name), "page")
    ]
    tasks = get(client, "/annotate.json", annotator="ada", sample=2)
    assert (tasks["done"], tasks["people"], tasks["memories"][0]["draft"]) == (1, {"ada": 1}, False)
    shown = get(client, "/" + name[0:].replace(".", "/") + ".json")["patterns"]
    assert [pattern["description"] for pattern in shown if pattern["annotator"] == "ada"] == [ENDS["description"]]


def test_an_annotation_has_either_patterns_or_none(annotating):
    client, study = annotating
    assert client.post("/annotate/L0/3.json", json=annotation("ada", none=True)).status_code == 200
    assert read(study)[0].patterns == []
    assert get(client, "/annotate/L0/3.json", annotator="ada")["none"]
    for wrong in (annotation("ada"), annotation("ada", ENDS, none=True)):
        assert "exactly one of the two" in client.post("/annotate/L0/3.json", json=wrong).json()["error"]


@pytest.mark.parametrize(
    "body",
    [
        {},
        {"annotator": "ada", "patterns": "x"},
        annotation("", ENDS),
        annotation("a" * 201, ENDS),
        annotation("ada", {**ENDS, "description": "x" * 1001}),
        annotation("ada", {**ENDS, "covers": [0]}),
        annotation("ada", {**ENDS, "description": "null \x00 byte"}),
        annotation("ada", {**ENDS, "kind": "deep"}),
        annotation("ada", *[ENDS] * 21),
    ],
)
def test_an_invalid_annotation_is_refused_and_not_stored(annotating, body):
    client, study = annotating
    answer = client.post("/annotate/L0/3.json", json=body)
    assert answer.status_code in (400, 422)
    assert answer.json()["error"]
    assert read(study) == []


def test_a_change_needs_the_pages_token(annotating):
    client, study = annotating
    client.headers.pop("x-page-token")
    assert client.post("/annotate/L0/3.json", json=annotation("ada", none=True)).status_code == 403
    assert read(study) == []


def test_two_people_at_once_lose_nothing(annotating):
    client, study = annotating
    problems = []

    def annotate(who):
        for number in range(15):
            for path, body in (
                ("/draft.json", annotation(who, {"covers": [1]})),
                (".json", annotation(who, none=True)),
            ):
                answer = client.post(f"/annotate/L1/{number}{path}", json=body)
                problems.extend([] if answer.status_code == 200 else [answer.text])

    threads = [threading.Thread(target=annotate, args=(who,)) for who in ("ada", "bob", "eve")]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert problems == []
    assert {(record.annotator, record.memory.memory) for record in read(study)} == {
        (who, number) for who in ("ada", "bob", "eve") for number in range(15)
    }
    with sqlite3.connect(study.path("annotations.sqlite")) as database:
        assert database.execute("SELECT count(*) FROM draft").fetchone() == (45,)
        assert database.execute("PRAGMA journal_mode").fetchone() == ("wal",)
    database.close()


def test_figure_2_is_drawn_at_once(annotating):
    client, _ = annotating
    before = json.dumps(get(client, "/annotate/figure.json", annotator="ada")["figure"]["spec"])
    for number in (3, 4):
        client.post(f"/annotate/L0/{number}.json", json=annotation("ada", ENDS))
    after = json.dumps(get(client, "/annotate/figure.json", annotator="ada")["figure"]["spec"])
    assert '"ada"' not in before
    assert '"ada"' in after


# The model


def test_the_coefficients_of_sentences_are_those_of_the_study(live, study):
    page = memory_page(study.folder, "L1.4")
    sentences = ",".join(str(trigger.sentence) for trigger in page.triggers)
    twin = get(live, "/L1/4/coefficients.json", sentences=sentences)
    for trigger in page.triggers:
        numbers = twin["sentences"][str(trigger.sentence)]
        assert len(numbers) == len(trigger.tokens)
        assert numbers[trigger.position] == pytest.approx(trigger.coefficient, rel=1e-4, abs=1e-6)
    assert twin["maximum"] == page.maximum
    for wrong in ("1-9", "x", ",".join(map(str, range(101))), "99999999", ""):
        assert live.get("/L1/4/coefficients.json", params={"sentences": wrong}).status_code in (400, 404)


def test_all_memories_are_ranked_for_any_token(live, study, tokenizer):
    twin = get(live, "/search/token.json", token="#40", count=7)
    ranked = Live(tiny_model(tokenizer), bos=True).promoters("#40", count=7)
    assert [(row["memory"], row["promoted"]["rank"]) for row in twin["rows"]] == [
        (row.memory, row.rank) for row in ranked.rows
    ]
    assert [row["logit"] for row in twin["rows"]] == pytest.approx([row.logit for row in ranked.rows])
    assert twin["count"] == sum(study.manifest["model"]["memories"])
    fires = {row.memory: row.measures["fires"] for row in search(study, SearchQuery.parse({}, limit=1000)).rows}
    assert [row["fires"] for row in twin["rows"]] == [fires[row["memory"]] for row in twin["rows"]]
    assert {row["memory"][:3] for row in get(live, "/search/token.json", token="#40", layers="1")["rows"]} == {"L1."}


def test_switching_off_gives_the_numbers_of_the_python_call(live, tokenizer):
    model = tiny_model(tokenizer)
    text = "The cat sat"
    with model.edit(zero=["L0.3", "L2.9"], scale={"L1.4": 3.0}, set={"L1.5": -2.0}):
        expected = model.trace(text).logits[0, -1].float().softmax(-1)
    before = model.trace(text).logits[0, -1].float().softmax(-1)
    twin = get(live, "/prompt.json", text=text, zero="L0.3,L2.9", scale="L1.4:3", set="L1.5:-2")
    for choice in twin["distribution"]:
        assert choice["after"] == pytest.approx(expected[choice["id"]].item(), rel=1e-4)
        assert choice["before"] == pytest.approx(before[choice["id"]].item(), rel=1e-4)


def test_memories_are_ranked_by_effect(live, tokenizer, monkeypatch):
    question = {"text": "The cat sat", "by": "effect", "zero": "L0.3", "position": 4, "target": "b"}
    twin = get(live, "/prompt/memories.json", **question, count=5)
    ranked = Live(tiny_model(tokenizer), bos=True).memories(
        "The cat sat", by="effect", interventions=Interventions.parse("L0.3"), position=4, target="b", count=5
    )
    assert twin["by"] == "effect"
    assert [(row["memory"], row["effect"]) for row in twin["memories"]] == [
        (row.memory, pytest.approx(row.effect, rel=1e-4)) for row in ranked.memories
    ]
    assert get(live, "/prompt/memories.json", text="a")["memories"][0]["effect"] is None
    why = "Effects are estimated from gradients, and this model cannot be differentiated."
    monkeypatch.setattr("ffscope.live.ranking.memory_effects", raiser(GradientError(why)))
    refused = live.get("/prompt/memories.json", params=question)
    assert (refused.status_code, refused.json()) == (400, {"error": why})


def test_a_link_does_what_the_same_edit_does_in_python(live, tokenizer):
    """Whole layers, positions and repeated parameters included."""
    model, text = tiny_model(tokenizer), "The cat sat"
    edit = {"zero": ["L0.3", "L2"], "scale": {"L1.4": 3.0}, "set": {"L1.5": -2.0, "L1.6": 1.0}, "positions": [0, 3, -1]}
    with model.edit(**edit):
        expected = model.trace(text).logits[0, -1].float().softmax(-1)
    link = "zero=L0.3&zero=L2&scale=L1.4:3&set=L1.5:-2&set=L1.6:1&positions=0,3&positions=-1"
    twin = live.get(f"/prompt.json?text={text}&{link}").json()
    assert [choice["after"] for choice in twin["distribution"]] == pytest.approx(
        [expected[choice["id"]].item() for choice in twin["distribution"]], rel=1e-4
    )
    assert [(intervention["name"], intervention["change"]) for intervention in twin["interventions"]] == [
        ("L0.3", "zero"),
        ("L2", "zero"),
        ("L1.4", "scale"),
        ("L1.5", "set"),
        ("L1.6", "set"),
    ]
    assert twin["positions"] == [0, 3, 11]
    together = get(
        live, "/prompt.json", text=text, zero="L0.3,L2", scale="L1.4:3", set="L1.5:-2,L1.6:1", positions="0,3,-1"
    )
    assert together == twin


ADDRESSES = [
    ("/", "/index.json"),
    ("/L1", "/L1.json"),
    ("/L1/2", "/L1/2.json"),
    ("/search?trigger=cat", "/search.json?trigger=cat"),
    ("/prompt?text=a", "/prompt.json?text=a"),
    ("/prompt?text=a&a=a&b=b", "/prompt/why.json?text=a&a=a&b=b"),
    ("/prompt?text=a", "/prompt/memories.json?text=a"),
    ("/prompt?text=a&new_tokens=3", "/prompt/text.json?text=a&new_tokens=3"),
    ("/annotate?annotator=ada", "/annotate.json?annotator=ada"),
]


@pytest.mark.parametrize(("page", "twin"), ADDRESSES)
def test_a_parameter_that_is_not_understood_is_refused_on_page_and_twin(live, page, twin):
    assert live.get(page).status_code == 200
    assert live.get(twin).status_code == 200
    for address in (page, twin):
        for name in ("off", "foo"):
            answer = live.get(f"{address}{'&' if '?' in address else '?'}{name}=L1.2")
            assert answer.status_code == 400, address
            assert (
                f"takes no parameter &#x27;{name}&#x27;" in answer.text or f"takes no parameter '{name}'" in answer.text
            )


@pytest.mark.parametrize(
    ("page", "twin", "name"),
    [
        ("/search?trigger=cat&trigger=dog", "/search.json?trigger=cat&trigger=dog", "trigger"),
        ("/prompt?text=a&text=b", "/prompt.json?text=a&text=b", "text"),
        ("/prompt?text=a&position=1&position=1", "/prompt.json?text=a&position=1&position=1", "position"),
        ("/annotate?annotator=a&annotator=b", "/annotate.json?annotator=a&annotator=b", "annotator"),
        ("/L1?sort=top&sort=fires", "/context.json?sentence=1&sentence=2", "s"),
    ],
)
def test_a_repeated_parameter_that_does_not_add_up_is_refused_on_page_and_twin(live, page, twin, name):
    for address in (page, twin):
        answer = live.get(address)
        assert answer.status_code == 400, address
        assert "is given 2 times. Give it once." in answer.text
        assert name in answer.text


def test_a_page_lists_its_parameters(client):
    about = client.get("/prompt").text.split('id="about">')[1].split("</script>")[0]
    parameters = json.loads(about)["parameters"]
    assert {name for name, repeats in parameters.items() if repeats} == {"zero", "scale", "set", "positions"}
    assert {"text", "position", "of", "lens", "by", "a", "b", "new_tokens", "colour"} <= parameters.keys()
    assert "ticket" not in parameters


def test_a_token_is_found_as_the_json_prints_it(live):
    for choice in get(live, "/prompt.json", text="The cat sat")["distribution"]:
        other = "a" if choice["token"] != "a" else "b"
        why = get(live, "/prompt/why.json", text="The cat sat", a=choice["token"], b=other)
        assert why["a"] == {"asked": choice["token"], "id": choice["id"], "token": choice["token"]}


def test_fifty_prompts_at_once_are_answered_as_if_alone(study, tokenizer):
    """No intervention may reach another person's request."""
    generator = random.Random(3)
    texts = ["The cat sat", "on a mat", "why it flew", "a dog"]
    queries = [
        {
            "text": generator.choice(texts),
            "zero": f"L{generator.randrange(3)}.{generator.randrange(11)}",
            "scale": f"L{generator.randrange(3)}.{11 + generator.randrange(5)}:{generator.uniform(-4, 4):.3f}",
            "set": f"L{generator.randrange(3)}.{16 + generator.randrange(6)}:{generator.uniform(-9, 9):.3f}",
        }
        for _ in range(46)
    ] + [{"text": text} for text in texts]
    with served(app_of(study.folder, tokenizer)) as address:
        with httpx2.Client(base_url=address, timeout=60) as client:
            alone = [client.get("/prompt.json", params=query).json() for query in queries]

        async def together():
            async with httpx2.AsyncClient(base_url=address, timeout=60) as client:
                return await asyncio.gather(*(client.get("/prompt.json", params=query) for query in queries))

        answers = [answer.json() for answer in asyncio.run(together())]
    assert all("distribution" in answer for answer in alone)
    assert answers == alone
    assert len({json.dumps(answer["distribution"]) for answer in alone}) > 40  # they do differ


def test_leaving_cancels_a_question(study, tokenizer):
    with served(app_of(study.folder, tokenizer)) as address, httpx2.Client(base_url=address, timeout=60) as client:
        client.get("/prompt.json", params={"text": "a"})  # wait until the model is loaded
        slow = {"text": "The cat sat", "new_tokens": 12}
        leaving = [threading.Thread(target=_ask_and_leave, args=(address, slow)) for _ in range(10)]
        for thread in leaving:
            thread.start()
        for thread in leaving:
            thread.join()
        end = time.monotonic() + 10
        while client.get("/live.json").json()["waiting"] and time.monotonic() < end:
            time.sleep(0.05)
        assert client.get("/live.json").json()["waiting"] == 0


def _ask_and_leave(address, params):
    with httpx2.Client(base_url=address, timeout=0.05) as client:
        try:
            client.get("/prompt/text.json", params=params)
        except httpx2.TimeoutException:
            return


@pytest.mark.parametrize(
    ("path", "message"),
    [
        ("/prompt.json?text=" + "a" * 60, "Shorten it"),
        ("/prompt.json?text=", "text"),
        ("/prompt.json?text=" + "a" * 9000, "8000 characters"),
        ("/prompt.json?text=a&zero=L9.1", "no layer 9"),
        ("/prompt.json?text=a&scale=L1.1", "Expected a memory and a number"),
        ("/prompt.json?text=a&set=L1.1:inf", "Expected a memory and a number"),
        ("/prompt.json?text=a&position=7", "There is no position 7"),
        ("/prompt.json?text=a&zero=L1&positions=7", "There is no position 7"),
        ("/prompt.json?text=a&zero=L1&positions=x", "Expected positions as integers"),
        ("/prompt.json?text=a&zero=L1&scale=L1.2:3", "L1.2 is changed twice, once with its whole layer L1"),
        ("/prompt/memories.json?text=a&target=nothing", "is not one token"),
        ("/prompt/memories.json?text=a&by=importance", "'logit', 'size' or 'effect'"),
        ("/prompt.json?text=a&lens=tuned", "lens"),
        ("/prompt/why.json?text=a&a=nothing&b=b", "is not one token"),
        ("/prompt/text.json?text=a&new_tokens=13", "12"),
        ("/L1/2/coefficients.json", "not both"),
    ],
)
def test_invalid_live_requests_are_refused(live, path, message):
    answer = live.get(path)
    assert 400 <= answer.status_code < 500, answer.text
    assert message in answer.json()["error"]


def test_the_live_twin_has_the_limits(live, client):
    get(live, "/prompt.json", text="a")
    twin = get(live, "/live.json")
    assert (twin["state"], twin["limits"]["tokens"], twin["limits"]["new_tokens"]) == ("ready", 40, 12)
    assert get(client, "/live.json")["state"] == "none"


def test_another_model_is_refused(study, tokenizer, tmp_path):
    from ffscope.errors import StudyError
    from ffscope.models.fingerprint import manifest_entry

    study.refuse_other_model(manifest_entry(tiny_model(tokenizer)))
    with pytest.raises(StudyError, match="is a study of another model: .*with family"):
        study.refuse_other_model(manifest_entry(tiny_model(tokenizer, "opt")))


# Odd studies


@pytest.fixture
def copied(study, tmp_path):
    copy = tmp_path / "study"
    shutil.copytree(study.folder, copy)
    return copy


def test_pages_answer_head_requests(client):
    for path in ("/", "/L1/2", "/L1/2.json", "/static/style.css"):
        assert client.head(path).status_code == 200
    assert client.head("/L9/2").status_code == 404


def test_memories_that_were_not_searched_are_reported(tmp_path, tokenizer):
    from ffscope.options.corpus import CorpusOptions
    from ffscope.options.search import SearchOptions
    from ffscope.pipeline import triggers
    from studies import write_corpus

    corpus = write_corpus(tmp_path / "corpus.jsonl")
    searching = SearchOptions(top=3, layers=[1], memories=[3, 5])
    study = triggers(tiny_model(tokenizer), CorpusOptions(str(corpus)), tmp_path / "study", search=searching)
    with client_of(app_of(study.folder)) as client:
        assert get(client, "/L1/3.json")["next"] == "L1.5"
        assert [entry["stage"] for entry in get(client, "/L1/3.json")["missing"]] == [
            "values",
            "agreement",
            "mutation",
            "patterns",
            "effects",
            "types",
        ]
        assert get(client, "/L1.json")["columns"]["memory"] == [3, 5]
        assert get(client, "/index.json")["figures"] == []
        for path in ("/L1/4", "/L1/4.json", "/L0", "/L0.json"):
            answer = client.get(path)
            assert answer.status_code == 404
            assert "was not searched" in answer.text


def test_a_token_of_a_megabyte_does_not_reach_the_page(copied):
    file = copied / "vocabulary.parquet"
    table = pq.read_table(file)
    texts = ["x" * 1_000_000] * len(table)
    pq.write_table(table.set_column(1, "text", [texts]), file)
    with client_of(app_of(copied)) as client:
        for path in ("/L1.json", "/L1/2.json", "/index.json", "/search.json?limit=100"):
            assert len(client.get(path).content) < 1_000_000


@pytest.mark.parametrize("table", ["values", "sentences", "triggers"])
def test_a_damaged_table_is_a_sentence(copied, table):
    content = bytearray((copied / f"{table}.parquet").read_bytes())
    content[4 : len(content) // 2] = bytes(len(content) // 2 - 4)
    (copied / f"{table}.parquet").write_bytes(content)
    with client_of(app_of(copied)) as client:
        for path in ("/L1/2.json", "/search.json?trigger=cat"):
            assert client.get(path).status_code in (200, 409)
        assert "again" in client.get("/L1/2.json").json()["error"]


def test_a_deleted_study_and_one_with_odd_characters(copied, tokenizer):
    manifest = json.loads((copied / "study.json").read_text())
    manifest["model"]["source"] = "\ud800<script>alert(1)</script>"
    (copied / "study.json").write_text(json.dumps(manifest))
    with client_of(app_of(copied)) as client:
        for path in ("/", "/L1/2"):
            answer = client.get(path)
            assert answer.status_code == 200
            assert "<script>alert" not in answer.text
        shutil.rmtree(copied)
        answer = client.get("/")
        assert answer.status_code == 409
        assert "is not a study" in answer.text


def test_a_model_without_room_says_what_to_do(study):
    class Full:
        def about(self):
            return None

        def prompt(self, *_, **__):
            raise RuntimeError("CUDA out of memory. Tried to allocate 2 GiB")

    app = app_of(study.folder)
    app.state.queue._load, app.state.queue._state = Full, "loading"
    with client_of(app) as client:
        answer = client.get("/prompt.json", params={"text": "a"})
    assert answer.status_code == 503
    assert "Use a shorter text" in answer.json()["error"]


def test_a_failing_panel_leaves_the_others(client, monkeypatch, caplog):
    from ffscope.stages.stage import Panel, Stage

    class Plugin:
        """Panel functions of a package's module."""

        @staticmethod
        def fine(tables, memory):
            return f"{memory} and <b>"

        @staticmethod
        def broken(tables, memory):
            raise ZeroDivisionError("\x1b[31mno \u202edata")

    monkeypatch.setattr("ffscope.web.panels.resolve", lambda name: getattr(Plugin, name))
    panels = tuple(Panel(title, "text", title, "Why.") for title in ("fine", "broken"))
    row = Stage("triggers", "A stage that every study has.", memory_panels=panels, layer_panels=panels)
    monkeypatch.setattr("ffscope.web.panels.stages", lambda: {"triggers": row})
    fine, broken = get(client, "/L1/2.json")["panels"]
    assert fine == {"stage": "triggers", "title": "fine", "kind": "text", "help": "Why.", "data": "L1.2 and <b>"}
    assert broken["kind"] == "text"
    assert "could not be computed" in broken["data"]
    assert "ZeroDivisionError: <001B>[31mno <202E>data" in caplog.text


def test_the_mutations_of_a_memory_are_a_panel(client):
    twins = [get(client, f"/L0/{memory}.json") for memory in range(22)]
    twin = next(twin for twin in twins if twin["mutation"])
    panel = next(panel for panel in twin["panels"] if panel["stage"] == "mutation")
    assert (panel["stage"], panel["title"], panel["kind"]) == ("mutation", "Mutation", "table")
    summary, rows = twin["mutation"]["summary"], twin["mutation"]["rows"]
    assert panel["data"]["rows"] == [[name, entry["median"], entry["count"]] for name, entry in summary.items()]
    names = ("rank", "removed", "token", "coefficient", "mutated", "change")
    assert panel["data"]["more"]["rows"] == [[row[name] for name in names] for row in rows]
    assert any(all(panel["stage"] != "mutation" for panel in twin["panels"]) for twin in twins)
