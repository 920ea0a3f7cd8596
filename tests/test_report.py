"""The summary compared with plain loops over the tables; figures and report as files."""

import json
import re
import shutil
import subprocess
import sys
from collections import Counter
from html import escape
from html.parser import HTMLParser

import numpy as np
import pyarrow.parquet as pq
import pytest

import ffscope
import tiny
from explorer import app_of, client_of
from ffscope import read
from ffscope.cases import CASE_MEANINGS
from ffscope.errors import StudyError
from ffscope.glossary import GLOSSARY
from ffscope.options.corpus import CorpusOptions
from ffscope.options.search import SearchOptions
from ffscope.pipeline import run
from ffscope.queries.tables import reading
from ffscope.queries.values import predictive_values
from ffscope.report import bootstrap
from ffscope.report.agreement_by_probability import bin_edges
from ffscope.report.catalogue import figures
from ffscope.report.command import reproduce
from ffscope.report.drawn_figure import FORMS, draw, draw_all
from ffscope.report.figure import Finding
from ffscope.report.page import write_report
from ffscope.report.summary import findings, sentence, summarise
from ffscope.report.wording import by_depth, compare, percent, trend
from ffscope.stages.registry import stages
from ffscope.stages.stage import Stage
from ffscope.study.folder import Study
from ffscope.study.public import public
from studies import make_study, undrawn, write_corpus

FIGURES = {
    "patterns": 2,
    "mutation": 3,
    "agreement": 4,
    "next_rank": 5,
    "agreement_by_probability": 6,
    "active": 7,
    "zero_agreement": 8,
    "residual_agreement": 9,
    "residual_probability": 10,
    "cases": 11,
}
# Those that the paper does not have.
UNNUMBERED = ("effect_concentration", "effect_estimate", "effect_scores", "effect_kinds", "effect_groups", "types")


@pytest.fixture(scope="module")
def study(tmp_path_factory, tokenizer):
    model = read(tiny.make("llama"), tokenizer, source="tiny/<i>llama<i>")
    return make_study(model, tmp_path_factory.mktemp("study"), hostile=True, drawn=True)


@pytest.fixture(scope="module")
def summary(study):
    return json.loads(study.path("summary.json").read_text())


def rows(study, table):
    return pq.read_table(study.path(f"{table}.parquet")).to_pylist()


def by_layer(rows, value):
    grouped = {}
    for row in rows:
        grouped.setdefault(row["layer"], []).append(value(row))
    return [grouped[layer] for layer in sorted(grouped)]


def series(summary, figure, name):
    return summary[figure]["series"][name]["value"]


def test_every_figure_has_its_series(summary):
    assert {name: summary[name]["figure"] for name in FIGURES} == FIGURES


def test_shares_and_medians_are_those_of_the_tables(study, summary):
    agreement, composition, refinement = (rows(study, name) for name in ("agreement", "composition", "refinement"))
    prediction = {row["example"]: row["prediction"] for row in rows(study, "examples")}
    expected = {
        ("agreement", "agreement"): by_layer(agreement, lambda row: row["agrees"]),
        ("zero_agreement", "zero_agreement"): by_layer(composition, lambda row: row["matches"] == 0),
        ("residual_agreement", "residual_agreement"): by_layer(
            refinement, lambda row: row["residual_top"] == prediction[row["example"]]
        ),
        **{
            ("cases", case): by_layer(refinement, lambda row, case=case: row["case"] == case)
            for case in ("agreement", "residual", "ffn", "composition")
        },
    }
    for (name, part), layers in expected.items():
        assert series(summary, name, part) == pytest.approx([sum(some) / len(some) for some in layers])
    medians = {
        ("next_rank", "next_rank"): by_layer(agreement, lambda row: row["next_rank"]),
        ("active", "active"): by_layer(composition, lambda row: row["active_fraction"]),
        ("active", "effective"): by_layer(composition, lambda row: row["effective"]),
        ("residual_probability", "residual_prob"): by_layer(refinement, lambda row: row["residual_prob"]),
        ("residual_probability", "residual_rank"): by_layer(refinement, lambda row: row["residual_rank"]),
    }
    for (name, part), layers in medians.items():
        assert series(summary, name, part) == pytest.approx([float(np.median(some)) for some in layers])
        quartiles = [float(np.quantile(some, 0.25)) for some in layers]
        assert summary[name]["series"][part]["q25"] == pytest.approx(quartiles)


def test_the_mean_change_is_that_of_the_table(study, summary):
    table = rows(study, "mutation")
    for removed in ("first", "last", "random"):
        changes = by_layer([row for row in table if row["removed"] == removed], lambda row: row["change"])
        assert series(summary, "mutation", removed) == pytest.approx([float(np.mean(some)) for some in changes])
    needed, plain = summary["mutation"]["forward_tokens"], summary["mutation"]["plain_tokens"]
    triggers = {(row["layer"], row["memory"], row["rank"]): row for row in rows(study, "triggers")}
    lengths = [triggers[row["layer"], row["memory"], row["rank"]]["position"] + 1 for row in table]
    assert plain == sum(lengths)  # without a token, behind BOS
    assert 0 < needed < plain


def test_every_value_lies_in_its_interval(summary):
    for name in FIGURES:
        for part in summary[name].get("series", {}).values():
            for low, value, high in zip(part["low"], part["value"], part["high"], strict=True):
                assert low <= value + 1e-9
                assert value <= high + 1e-9 or name in ("next_rank", "active", "residual_probability")


def test_dead_memories_are_counted(study, summary):
    memories = rows(study, "memories")
    assert summary["agreement"]["dead_in_all"] == sum(row["maximum"] <= 0 for row in memories)
    assert summary["agreement"]["chance"] == 1 / tiny.VOCAB
    assert sum(summary["agreement"]["memories"]) + summary["agreement"]["dead_in_all"] == len(memories)


def test_exceptions_are_those_with_a_match(study, summary):
    composition = rows(study, "composition")
    examples = {row["example"]: row for row in rows(study, "examples")}
    matched = [row for row in composition if row["matches"] > 0]
    short = [examples[row["example"]]["position"] + 1 < 5 for row in matched]
    exceptions = summary["zero_agreement"]["exceptions"]
    assert exceptions["count"] == len(matched)
    for kind in ("stop_word", "short_prefix"):
        by_layer = exceptions[kind]["by_layer"]
        for low, value, high in zip(by_layer["low"], by_layer["value"], by_layer["high"], strict=True):
            assert value is None or low <= value <= high
    assert exceptions["short_prefix"]["value"] == pytest.approx(sum(short) / len(short))
    assert exceptions["short_prefix"]["of_all"] == pytest.approx(
        sum(examples[row["example"]]["position"] + 1 < 5 for row in composition) / len(composition)
    )
    vocabulary = {row["token"]: row["text"] for row in rows(study, "vocabulary")}
    stop = [vocabulary[examples[row["example"]]["prediction"]].strip("␣").casefold() in ("a", "i") for row in matched]
    assert exceptions["stop_word"]["value"] == pytest.approx(sum(stop) / len(stop))  # the only words of one letter


def test_where_there_is_no_list_frequent_tokens_are_stop_words(study):
    other = Study(study.folder, {**study.manifest, "settings": {**study.settings, "language": "fi"}})
    exceptions = summarise(other)["zero_agreement"]["exceptions"]
    assert exceptions["stop_words"] == "the 100 most frequent tokens of the text"
    used = {token for row in rows(study, "sentences") for token in row["tokens"]}  # fewer than a hundred
    predictions = [row["prediction"] in used for row in rows(study, "examples")]
    assert exceptions["stop_word"]["of_all"] == pytest.approx(np.mean(predictions))


def test_predictive_values_have_the_highest_probabilities(study, summary):
    values = sorted(rows(study, "values"), key=lambda row: (-row["max_prob"], row["layer"], row["memory"]))
    agreement = {(row["layer"], row["memory"]): row for row in rows(study, "agreement")}
    chosen = [(row["layer"], row["memory"]) for row in values[:100]]
    expected = [agreement[memory]["precision"] > 0 if memory in agreement else False for memory in chosen]
    assert summary["predictive_values"]["memories"] == [f"L{layer}.{memory}" for layer, memory in chosen]
    triggers = rows(study, "triggers")
    for row, value in zip(predictive_values(study.folder), values, strict=False):
        own = [
            trigger
            for trigger in triggers
            if (trigger["layer"], trigger["memory"]) == (value["layer"], value["memory"])
        ]
        agreeing = [trigger["rank"] for trigger in own if trigger["next_token"] == value["top_tokens"][0]]
        assert (row.trigger and row.trigger.rank) == (min(agreeing, default=1) if own else None)
    assert summary["predictive_values"]["with_agreeing_trigger"]["value"] == pytest.approx(np.mean(expected))


def test_bins_hold_enough_and_cover_all():
    values = np.random.default_rng(0).lognormal(size=3000)
    edges = bin_edges(values)
    counts = np.histogram(values, edges)[0]
    assert counts.sum() == len(values)
    assert (counts >= 50).all()
    assert len(counts) > 4
    assert bin_edges(np.full(7, 0.25)) == [0.25, 0.25]
    assert len(bin_edges(values[:20])) == 2


@pytest.mark.parametrize("hits", [0, 3, 80, 200])
def test_the_interval_of_a_share_is_that_of_resampling(hits):
    sample = np.arange(200) < hits
    drawn = np.random.default_rng(1).choice(sample, (4000, 200)).mean(1)
    interval = bootstrap.share(hits, 200, np.random.default_rng(2))
    assert interval == pytest.approx(np.quantile(drawn, (0.025, 0.975)), abs=0.02)


@pytest.mark.parametrize("count", [1, 2, 7, 150, 151])
def test_the_interval_of_a_median_is_that_of_resampling(count):
    sample = np.random.default_rng(3).exponential(size=count)
    drawn = np.sort(np.random.default_rng(1).choice(sample, (4000, count)), axis=1)[:, (count + 1) // 2 - 1]
    interval = bootstrap.median(sample, np.random.default_rng(2))
    assert interval == pytest.approx(np.quantile(drawn, (0.025, 0.975)), rel=0.1)


def test_the_interval_of_a_mean_draws_whole_clusters():
    generator = np.random.default_rng(4)
    clusters = [generator.normal(loc=generator.normal(), size=size) for size in generator.integers(1, 30, size=40)]
    drawn = [
        np.concatenate([clusters[i] for i in np.random.default_rng([7, n]).integers(40, size=40)]).mean()
        for n in range(3000)
    ]
    sums, counts = np.array([cluster.sum() for cluster in clusters]), np.array([len(cluster) for cluster in clusters])
    interval = bootstrap.mean_of_clusters(sums, counts, np.random.default_rng(2))
    assert interval == pytest.approx(np.quantile(drawn, (0.025, 0.975)), abs=0.06)


def test_a_summary_is_the_same_every_time(study, summary):
    assert json.loads(json.dumps(summarise(study))) == summary


def test_figures_are_saved_in_every_form_and_need_no_network(study, summary):
    drawn = draw_all(summary)
    assert [figure.name for figure in drawn] == [*FIGURES, *UNNUMBERED]
    for name in (*FIGURES, *UNNUMBERED):
        files = {form: study.path(f"figures/{name}.{form}").read_bytes() for form in FORMS}
        png, svg, pdf, html, spec = files.values()
        assert list(files) == ["png", "svg", "pdf", "html", "json"]
        assert png.startswith(b"\x89PNG")
        assert pdf.startswith(b"%PDF-")
        assert json.loads(spec) == draw(name, summary).spec
        assert svg.startswith(b"<svg")
        assert not re.search(rb'(src|href)\s*=\s*"(https?:)?//', html)
        assert b"layer" in svg or name in ("agreement_by_probability", "effect_scores", "effect_groups")


def test_a_figure_draws_itself_in_a_notebook(summary):
    assert draw("cases", summary)._repr_mimebundle_()["image/svg+xml"].startswith("<svg")


def test_an_unknown_figure_is_named_in_the_error(summary):
    with pytest.raises(StudyError, match="no figure 'case'. The figures are: patterns, mutation, agreement"):
        draw("case", summary)
    with pytest.raises(StudyError, match="has no data for the figure 'cases' yet. It has data for: agreement"):
        draw("cases", {"agreement": summary["agreement"]})


class Page(HTMLParser):
    def __init__(self):
        super().__init__()
        self.tags, self.attributes, self.text = Counter(), [], ""

    def handle_starttag(self, tag, attrs):
        self.tags[tag] += 1
        self.attributes += attrs

    def handle_data(self, data):
        self.text += data.replace("\N{NO-BREAK SPACE}", " ")


def test_the_report_is_one_page_that_runs_nothing_and_fetches_nothing(study):
    text = study.path("report.html").read_text()
    page = Page()
    page.feed(text)
    assert page.tags["img"] == len(FIGURES) + len(UNNUMBERED)
    assert not {"script", "link", "iframe", "object", "i"} & set(page.tags) - {"i"}
    assert page.tags["i"] == 1  # the paper's title, not the model's name
    assert not [name for name, _ in page.attributes if name.startswith("on")]
    sources = [value for name, value in page.attributes if name in ("src", "href")]
    assert all(value.startswith("data:image/svg+xml;base64,") for value in sources)
    assert "default-src 'none'" in text
    assert "\x1b" not in text
    assert "\u202e" not in text
    assert "tiny/<i>llama<i>" in page.text
    assert len(text) < 2_000_000


def test_the_report_says_what_each_figure_shows(study, summary):
    page = Page()
    page.feed(study.path("report.html").read_text())
    for name in (*FIGURES, *UNNUMBERED):
        assert sentence(name, summary) in page.text
    for row in findings(summary):
        assert all(vars(row).values())
        for cell in vars(row).values():
            assert cell in page.text
    assert len(findings(summary)) == 16
    assert reproduce(public(study)) in page.text


def test_every_figure_has_a_title_and_says_how_to_read_it(study, summary):
    page = Page()
    page.feed(study.path("report.html").read_text())
    for name, number in FIGURES.items():
        figure = figures()[name]
        assert f"Figure {number}. {figure.title}" in page.text
        assert figure.how_to_read in page.text
        assert draw(name, summary).spec["title"]["text"] == figure.title
    assert all(figure.how_to_read for figure in figures().values() if figure.chart)


def test_every_term_is_explained_once_and_before_the_figures(study):
    text = study.path("report.html").read_text()
    page = Page()
    page.feed(text)
    for term, meaning in GLOSSARY.items():
        assert page.text.count(f"{term}{meaning}") == 1
        assert text.count(f"<dfn>{term}</dfn>") == (2 if term in CASE_MEANINGS else 1)
        assert text.index(f"<dfn>{term}</dfn>") < text.index('id="findings"')
    figure = Page()
    figure.feed(text[text.index('<figure id="cases">') :].partition("</figure>")[0])
    assert all(f"{case}{meaning[0].upper()}{meaning[1:]}." in figure.text for case, meaning in CASE_MEANINGS.items())
    assert "<dfn>" not in text[text.index("<footer>") :]


def test_readings_compare_with_the_paper():
    assert [compare(value, 0.6, 0.8) for value in (0.6, 0.9, 0.3, 0.99, None)] == [
        "as in the paper",
        "close to the paper",
        "lower than in the paper",
        "higher than in the paper",
        "nothing to compare",
    ]
    assert trend((0, 0.1), (5, 0.2), expected="rises") == "rises with depth, as in the paper"
    assert trend((0, 0.1), (5, 0.1), expected="rises") == "does not change with depth, unlike in the paper"
    assert trend((0, 0.1), (5, 0.2), expected="falls") == "rises with depth, unlike in the paper"
    assert trend((3, 0.1), (3, 0.1), expected="falls") == "in one layer only, no trend"
    assert trend((0, 0.1), (5, 0.5), expected="rises", top=(0.9, 0.9)).endswith(
        "as in the paper; lower at the top than in the paper"
    )
    assert trend((0, 0.1), (5, 0.8), expected="rises", top=(0.9, 0.9)) == "rises with depth, as in the paper"
    assert by_depth((3, 0.1), (3, 0.1)) == "10 % in layer 3"


def test_findings_are_right_for_other_numbers_than_ours(summary):
    layers = len(summary["mutation"]["layer"])
    changes = {"first": -0.5, "last": -0.2, "random": -0.1}
    same = {name: {"value": [change] * layers} for name, change in changes.items()}
    last, first = findings(altered(summary, "mutation", **same))
    assert last.reading == "drop does not change with depth, unlike in the paper"
    assert first.reading == (
        "first token matters no less than the last, unlike in the paper; drop higher than in the paper"
    )
    none = {part: [0.0] * layers for part in ("value", "low", "high")}
    (agreement,) = findings(altered(summary, "agreement", agreement=none))
    assert agreement.model.endswith("0 × chance")
    assert agreement.reading == "not clearly above chance; lower than in the paper"
    shares = {"residual": 0.7, "agreement": 0.2, "composition": 0.09, "ffn": 0.01}
    residual, ffn = findings(altered(summary, "cases", **{name: {"value": [x] * layers} for name, x in shares.items()}))
    assert (residual.model, residual.reading) == ("70 %", "as in the paper")
    assert ffn.reading == "rarest case, as in the paper"


def test_the_command_that_reproduces_names_every_choice(study):
    command = reproduce(study)
    for part in ("ffscope run", "--top 6", "--examples 40", "--mutation-memories 4", "--lens norm", "--seed 0"):
        assert part in command


def test_a_study_without_a_report_is_drawn_from_what_it_has(study, tmp_path):
    with Study.adding(study.folder) as half:
        for stage in ("mutation", "refinement"):
            del half.manifest["stages"][stage]
        summary = summarise(half)
    assert {"mutation", "cases", "last_layer"}.isdisjoint(summary)
    assert "agreement" in summary


def test_writing_a_report_again_changes_nothing_but_its_seconds(study):
    before = study.path("summary.json").read_bytes()
    with Study.adding(study.folder) as again:
        write_report(again)
    assert study.path("summary.json").read_bytes() == before


def test_percentages_are_short():
    assert [percent(share) for share in (0.123, 0.0123, 0.00123, -0.5, None)] == [
        "12 %",
        "1.2 %",
        "0.12 %",
        "−50 %",
        "–",
    ]


def test_a_folder_named_like_a_pattern_reads_its_own_tables_alone(study, tmp_path):
    for name in ("a?", "ab", "a[b]"):
        shutil.copytree(study.folder, tmp_path / name)
    expected = len(predictive_values(study.folder, 1000))
    assert [len(predictive_values(tmp_path / name, 1000)) for name in ("a?", "a[b]")] == [expected, expected]


def test_bins_with_the_same_label_stay_apart(summary):
    entry = {**summary["agreement_by_probability"]}
    entry["bins"] = [{**entry["bins"][0], "from": 1.00001, "to": 1.00002, "value": 0.02}] * 2
    svg = draw("agreement_by_probability", {"agreement_by_probability": entry}).svg()
    assert "4%" not in re.findall(r">([\d.]+%)<", svg)


def test_layers_that_were_not_searched_are_not_called_signed(tokenizer, tmp_path):
    corpus = write_corpus(tmp_path / "corpus.jsonl")
    searching = SearchOptions(top=6, layers=[1])
    model = read(tiny.make("opt"), tokenizer)  # a ReLU
    how = {"examples": 5, "mutation_memories": 2, "mutation_triggers": 2, "effect_memories": 0}
    with undrawn():
        study = run(model, CorpusOptions(str(corpus)), tmp_path / "study", search=searching, encoder="model", **how)
    summary = summarise(study)
    assert summary["active"]["signed"] == [None, False, None]
    assert "negative" not in sentence("active", summary)
    assert "in layer 1 and by" in sentence("mutation", summary)
    page = study.path("report.html").read_text()
    shown = {"agreement": "agreement", "mutation": "last", "next_rank": "next_rank", "active": "active"}
    assert all(f">{escape(figures()[name].labels[series])}</th>" in page for name, series in shown.items())


def altered(summary, name, **series):
    return {name: {**summary[name], "series": {**summary[name]["series"], **series}}}


def test_sentences_hold_in_odd_cases(summary):
    layers = len(summary["mutation"]["layer"])
    rising = altered(summary, "mutation", last={"value": [-0.05] * (layers - 1) + [3.0]})
    assert "so no less in the highest layer" in sentence("mutation", rising)
    shares = {"residual": 0.4, "agreement": 0.0, "composition": 0.6, "ffn": 0.0}
    ties = {case: {"value": [share] * layers} for case, share in shares.items()}
    assert f"the ffn case is the smallest in {layers}." in sentence("cases", altered(summary, "cases", **ties))
    none = altered(summary, "agreement", agreement={"value": [0.0] * layers})
    assert "The best layer" not in sentence("agreement", none)


def test_exceptions_draw_whole_examples():
    """Two clusters that are all or nothing: the mean of a draw is 0, a half or 1."""
    interval = bootstrap.mean_of_clusters(np.array([16, 0]), np.array([16, 16]), np.random.default_rng(0))
    assert interval == (0.0, 1.0)
    assert bootstrap.mean_of_clusters(np.zeros(3), np.zeros(3), np.random.default_rng(0)) == (None, None)


def test_a_figure_of_one_layer_has_one_label(summary):
    entry = {**summary["zero_agreement"], "layer": [0], "model_layers": 1}
    entry["series"] = {"zero_agreement": {part: some[:1] for part, some in entry["series"]["zero_agreement"].items()}}
    svg = draw("zero_agreement", {"zero_agreement": entry}).svg()
    assert ">-1<" not in svg.replace("−", "-")


OUTSIDE = """
from ffscope.report.figure import Figure, Finding
from ffscope.report.series import by_layer


def series(source):
    columns = source.tables.columns("memories", "layer", "mean")
    columns["positive"] = columns["mean"] > 0
    layers, shares = by_layer(columns, "positive", source.share)
    return {"layer": layers, "series": {"positive": shares}}


def chart(entry):
    from ffscope.report import drawing

    return drawing.share_bars(entry, "positive", "memories with a positive mean")


FIGURE = Figure(
    name="positive", title="Positive <memories>", stage="memories", series=series, chart=chart,
    how_to_read="Bars.", sentence=lambda entry: "Some are.",
    findings=lambda entry: [Finding("Positive memories", "<some>", "none", "more")],
)
TABLE = Figure(
    name="means", title="Means <of> layers", stage="memories", series=series, sentence=lambda entry: "All of them.",
    rows=lambda tables, entry: [{"layer": layer, "what": "<b>\\u202e"} for layer in entry["layer"]],
    labels={"what": "hostile text"},
)
"""


def test_a_row_from_another_package_is_all_that_a_figure_or_a_table_needs(study, tmp_path, monkeypatch, request):
    (tmp_path / "outside_figures.py").write_text(OUTSIDE)
    monkeypatch.syspath_prepend(tmp_path)
    rows = ("outside_figures:FIGURE", "outside_figures:TABLE")
    outside = Stage(name="memories", help="Another package's.", figures=rows)
    monkeypatch.setattr("ffscope.report.catalogue.stages", lambda: {**stages(), "memories": outside})
    figures.cache_clear()
    request.addfinalizer(figures.cache_clear)
    folder = shutil.copytree(study.folder, tmp_path / "study")
    with Study.adding(folder) as copy:
        copy.finish("memories", {}, seconds=0.0)  # stands for a stage of that package
        write_report(copy)
    summary = json.loads((folder / "summary.json").read_text())
    assert list(summary["positive"]) == ["layer", "series", "model_layers"]
    drawn = ffscope.open(folder).figure("positive")
    assert drawn._repr_mimebundle_()["text/plain"] == "Positive <memories>"
    assert "stated in the paper" not in json.dumps(drawn.spec)
    assert json.loads((folder / "figures" / "positive.json").read_text()) == drawn.spec
    assert [figure.name for figure in draw_all(summary)] == [*FIGURES, *UNNUMBERED, "positive"]
    assert findings(summary)[-1] == Finding("Positive memories", "<some>", "none", "more")
    page = (folder / "report.html").read_text()
    assert ">&lt;some&gt;</td>" in page
    assert "<h3>Positive &lt;memories&gt;</h3>" in page
    assert '<h2 id="means">Means &lt;of&gt; layers</h2>' in page
    assert "<th>hostile text</th>" in page
    assert "<bdi>&lt;b&gt;" in page
    assert "\u202e" not in page
    with client_of(app_of(folder)) as client:
        overview = client.get("/index.json").json()
    assert overview["figures"][-1]["number"] is None
    assert overview["figures"][-1]["how_to_read"] == "Bars."
    assert overview["findings"][-1] == {
        "finding": "Positive memories",
        "model": "<some>",
        "paper": "none",
        "reading": "more",
    }


def test_figures_are_known_without_what_draws_them():
    code = """
import sys
for name in ("torch", "transformers", "altair", "vl_convert", "jinja2"): sys.modules[name] = None
from ffscope.report.catalogue import figures
from ffscope.report.summary import findings, summarise
assert "agreement" in figures()
"""
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=120)
    assert result.returncode == 0, result.stderr


def test_missing_numbers_are_nan_in_columns(study):
    with reading(study) as tables:
        columns = tables.arrays(
            "SELECT * FROM (VALUES (1, 0.5::FLOAT, 'a'), (NULL, NULL, NULL)) AS t(whole, real, text)"
        )
    assert [column.dtype for column in columns.values()] == [np.float64, np.float32, np.object_]
    assert columns["whole"][0] == 1
    assert np.isnan(columns["whole"][1])
    assert np.isnan(columns["real"][1])
    assert columns["text"].tolist() == ["a", None]
