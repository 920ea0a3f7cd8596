"""The paper's findings on a real model with its training text; and a sample of that model's numbers against a plain computation."""

import itertools
import json

import pyarrow.parquet as pq
import pytest
import torch
from transformers import AutoModelForCausalLM

import ffscope
from conftest import SHARED
from ffscope.options.corpus import CorpusOptions
from ffscope.pipeline import run
from plain import Plain

TRAIN, VALID = SHARED / "corpora" / "wiki-train.jsonl.xz", SHARED / "corpora" / "wiki-valid.jsonl"


def study_of(folder, out, sentences, **options):
    reading = CorpusOptions(str(TRAIN), held_out=str(VALID), sentences=sentences)
    return run(ffscope.load(str(folder), "cpu", "float32"), reading, out, **options)


def rows(study, table):
    return pq.read_table(study.path(f"{table}.parquet")).to_pylist()


@pytest.fixture(scope="module")
def sampled(tmp_path_factory):
    """A small study of the real model, and the model itself, read by transformers alone."""
    folder = SHARED / "models" / "wiki16"
    if not folder.is_dir():
        pytest.skip(f"needs {folder}")
    with pytest.MonkeyPatch.context() as patch:  # patterns and the report have tests of their own
        patch.setattr("ffscope.analysis.patterns.run", lambda *_: None)
        patch.setattr("ffscope.pipeline._report", lambda *_: None)
        study = study_of(
            folder,
            tmp_path_factory.mktemp("wiki16") / "study",
            60,
            examples=6,
            mutation_memories=2,
            effect_memories=3,
            exact_examples=4,
            group_examples=4,
            mutation_triggers=2,
        )
    model = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32).eval()
    return study, Plain("opt", model, lens="norm", bos=0)


@pytest.mark.shared
@torch.no_grad()
@pytest.mark.slow
def test_values_and_agreement_of_the_real_model(sampled):
    study, plain = sampled
    values = {(row["layer"], row["memory"]): row for row in rows(study, "values")}
    agreement = [row for row in rows(study, "agreement") if row["memory"] % 97 == 5]
    assert len(agreement) > 100
    for row in agreement:
        vector = plain.layers[row["layer"]].values[row["memory"]]
        logits, value = plain.updates(vector), values[row["layer"], row["memory"]]
        order = logits.sort(descending=True, stable=True).indices.tolist()
        near = (logits - logits[row["next_token"]]).abs().lt(1e-6).sum().item() - 1
        assert value["top_tokens"][0] == row["top_token"] == order[0]
        assert abs(row["next_rank"] - 1 - order.index(row["next_token"])) <= near
        assert row["max_prob"] == pytest.approx(logits.softmax(-1).max().item(), rel=1e-4)
        assert value["norm"] == pytest.approx(vector.norm().item(), rel=1e-5)


@pytest.mark.shared
@torch.no_grad()
@pytest.mark.slow
def test_mutations_of_the_real_model(sampled):
    study, plain = sampled
    sentences = {row["sentence"]: row["tokens"] for row in rows(study, "sentences")}
    triggers = {(row["layer"], row["memory"], row["rank"]): row for row in rows(study, "triggers")}
    for row in rows(study, "mutation")[::5]:
        trigger = triggers[row["layer"], row["memory"], row["rank"]]
        left = sentences[trigger["sentence"]][: trigger["position"] + 1]
        del left[row["removed_index"]]
        coefficient = plain.layers[row["layer"]].coefficients(plain.run(left))[-1, row["memory"]].item()
        assert row["mutated"] == pytest.approx(coefficient, rel=1e-4, abs=1e-5)


@pytest.mark.shared
@torch.no_grad()
@pytest.mark.slow
def test_composition_and_refinement_of_the_real_model(sampled):
    study, plain = sampled
    sentences = {row["sentence"]: row["tokens"] for row in rows(study, "sentences")}
    composition, refinement = (iter(rows(study, name)) for name in ("composition", "refinement"))
    tops = [plain.updates(layer.values).argmax(-1) for layer in plain.layers]  # of a ReLU: none is below 0
    for example in rows(study, "examples"):
        place = plain.at(sentences[example["sentence"]], example["position"])
        assert example["prediction"] == torch.tensor(place.logits).argmax().item()
        for layer, coefficients in enumerate(place.coefficients):
            composed, refined = next(composition), next(refinement)
            active = coefficients > 0
            ff_top = torch.tensor(place.update[layer]).argmax().item()
            assert composed["active"] == active.sum().item()
            assert composed["ff_top"] == refined["ff_top"] == ff_top
            assert composed["matches"] == (active & (tops[layer] == ff_top)).sum().item()
            residual = torch.tensor(place.residual[layer])
            probability = residual.softmax(-1)[example["prediction"]].item()
            assert refined["residual_top"] == residual.argmax().item()
            assert refined["output_top"] == torch.tensor(place.output[layer]).argmax().item()
            assert refined["residual_prob"] == pytest.approx(probability, rel=1e-3, abs=1e-9)


def series(summary, figure, name):
    return summary[figure]["series"][name]["value"]


def mean(values):
    return sum(values) / len(values)


def assert_findings(summary):
    """The paper's findings by their direction."""
    first, last = (series(summary, "mutation", name) for name in ("first", "last"))
    assert mean(last) < 4 * mean(first) < 0, "removing the last token hurts far more than the first"
    assert mean(last[-4:]) > mean(last[:8]) + 0.05, "less so in upper layers"
    agreement = summary["agreement"]
    assert agreement["overall"]["low"] > 50 * agreement["chance"], "agreement is far above chance"
    bins = [group["value"] for group in summary["agreement_by_probability"]["bins"]]
    assert all(low <= high for low, high in itertools.pairwise(bins)), "and rises with maximum probability"
    assert bins[-1] > 5 * agreement["overall"]["value"]
    residual = series(summary, "residual_agreement", "residual_agreement")
    assert mean(residual[:4]) < mean(residual[4:8]) < mean(residual[8:12]) < mean(residual[12:]), "it rises with depth"
    cases = {case: series(summary, "cases", case) for case in ("residual", "agreement", "composition", "ffn")}
    by_layer = [{case: cases[case][layer] for case in cases} for layer in range(len(residual))]
    assert sum(max(shares, key=shares.get) == "residual" for shares in by_layer) > 12, (
        "residual is the largest case in most layers"
    )
    assert sum(min(shares, key=shares.get) == "ffn" for shares in by_layer) > 10, "and ffn the smallest"


@pytest.mark.slow
@pytest.mark.shared
@pytest.mark.timeout(3600)
def test_the_papers_findings_appear(wiki16, tmp_path):
    study = study_of(wiki16, tmp_path / "study", 30_000, examples=2000, mutation_memories=30, mutation_triggers=20)
    assert_findings(json.loads(study.path("summary.json").read_text()))
