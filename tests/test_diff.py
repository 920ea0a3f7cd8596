"""Two models compared memory by memory, with plain transformers models and numpy beside them."""

import json
import shutil

import numpy as np
import pyarrow.parquet as pq
import pytest
import torch

import tiny
from ffscope.analysis import diff as diff_stage
from ffscope.comparison import partners as partners_module
from ffscope.comparison.rotation import Rotation
from ffscope.differences import diff, make_study
from ffscope.errors import InputError, StudyError
from ffscope.models.loading import make_memory_model
from ffscope.options.corpus import CorpusOptions
from ffscope.options.search import SearchOptions
from ffscope.pipeline import analyse, triggers
from ffscope.study.folder import Study
from plain import Plain, make, ranking
from studies import write_corpus

BOS = 2
ALL = {"diff_tokens": 10**6, "diff_prefixes": 10**6}
KEYS = {
    "gpt2": ("transformer.h.{}.mlp.c_fc",),
    "opt": ("model.decoder.layers.{}.fc1",),
    "llama": ("model.layers.{}.mlp.gate_proj", "model.layers.{}.mlp.up_proj"),
    "gemma2": ("model.layers.{}.mlp.gate_proj", "model.layers.{}.mlp.up_proj"),
    "bert": ("bert.encoder.layer.{}.intermediate.dense",),
    "adaptive_lm": ("layers.{}.fc1",),
}


@pytest.fixture(scope="module")
def corpus(tmp_path_factory):
    return write_corpus(tmp_path_factory.mktemp("corpus") / "corpus.jsonl", documents=20)


@pytest.fixture
def study_of(corpus, tokenizer, tmp_path):
    """Makes the study of a plain model: its triggers and values."""

    def make_one(plain, folder="after", **search):
        masked = tokenizer
        masked.mask_token = "<unk>"  # a masked model is compared at masked tokens
        options = {"top": 5, **search}
        model = make_memory_model(plain, masked)
        return model, make_study(
            model, CorpusOptions(str(corpus), max_tokens=12), tmp_path / folder, SearchOptions(**options)
        )

    return make_one


def compared(study_of, before, after, folder="after", **options):
    """The study of `after`, compared with a study of `before`."""
    model_before, study_before = study_of(before, f"{folder}-before")
    model_after, study_after = study_of(after, folder)
    models = {"model_before": model_before, "model_after": model_after}
    return diff(study_before.folder, study_after.folder, **models, **{**ALL, **options})


def column(study, name, table="diff"):
    """A column as an array; NaN for null."""
    values = pq.read_table(study.path(f"{table}.parquet"))[name].to_pylist()
    return np.array([np.nan if value is None else value for value in values])


def searched_sentences(study):
    rows = pq.read_table(study.path("sentences.parquet")).to_pylist()
    return [row["tokens"] for row in rows if not row["held_out"]]


def nudged(name, size=0.1, seed=1):
    """The tiny model with some noise added to every parameter."""
    model, generator = make(name), torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(size * torch.randn(parameter.shape, generator=generator))
    return model


def permuted(name="gpt2", layer=1, seed=3):
    """A copy whose memories of a layer are in another order, and the order: memory i of the copy is memory order[i]."""
    model, order = make(name), torch.randperm(22, generator=torch.Generator().manual_seed(seed))
    mlp = model.transformer.h[layer].mlp
    with torch.no_grad():
        mlp.c_fc.weight.copy_(mlp.c_fc.weight[:, order].clone())
        mlp.c_fc.bias.copy_(mlp.c_fc.bias[order].clone())
        mlp.c_proj.weight.copy_(mlp.c_proj.weight[order].clone())
    return model, order.numpy()


class Reference:
    """What a comparison should contain, from passes over one sentence at a time."""

    def __init__(self, name, before, after, sentences):
        self.plain = [Plain(name, model, lens="norm", bos=BOS) for model in (before, after)]
        self.layers = np.concatenate(
            [[number] * len(layer.values) for number, layer in enumerate(self.plain[1].layers)]
        )
        self.coefficients = [np.concatenate([self._of(plain, tokens) for tokens in sentences]) for plain in self.plain]
        self.values = [
            np.concatenate([layer.written(layer.values).detach().numpy() for layer in plain.layers]).astype(np.float64)
            for plain in self.plain
        ]

    @torch.no_grad()
    def _of(self, plain, tokens):
        forward_pass = plain.run(tokens)
        layers = [layer.coefficients(forward_pass)[-len(tokens) :].numpy() for layer in plain.layers]
        return np.concatenate(layers, 1).astype(np.float64)

    def correlations(self):
        """Memory after × memory before; NaN for a constant one."""
        before, after = self.coefficients
        with np.errstate(invalid="ignore", divide="ignore"):
            return np.corrcoef(after.T, before.T)[: after.shape[1], after.shape[1] :]

    def value_cosines(self, partner):
        before, after = self.values[0][partner], self.values[1]
        return (before * after).sum(1) / np.linalg.norm(before, axis=1) / np.linalg.norm(after, axis=1)

    def changes(self, partner, none):
        written = [
            self.coefficients[side][:, chosen, None] * self.values[side][chosen]
            for side, chosen in ((0, partner), (1, np.arange(len(partner))))
        ]
        written[0][:, none] = 0
        squares = [(each**2).sum(-1).mean(0) for each in written]
        differences = ((written[1] - written[0]) ** 2).sum(-1).mean(0)
        totals = [np.bincount(self.layers, square)[self.layers] for square in squares]
        return np.sqrt(differences / ((totals[0] + totals[1]) / 2)), [np.sqrt(square) for square in squares]


FAMILIES = ("gpt2", "opt", "llama", "mixtral", "gemma2", "bert", "t5", "adaptive_lm")


@pytest.mark.parametrize("match", ["index", "activations"])
@pytest.mark.parametrize("name", FAMILIES)
def test_columns_are_those_of_plain_models(name, match, study_of):
    before, after = make(name), nudged(name)
    study = compared(study_of, before, after, match=match)
    reference = Reference(name, before, after, searched_sentences(study))
    correlations = reference.correlations()
    count = len(correlations)
    starts = np.cumsum([0, *np.bincount(reference.layers)])
    none = np.isnan(column(study, "partner_layer"))
    assert (none == (np.isnan(correlations).all(1) & (match == "activations"))).all()  # constant over the text
    layers, memories = (np.nan_to_num(column(study, f"partner_{part}")).astype(int) for part in ("layer", "memory"))
    partner = starts[layers] + memories
    best = np.where(np.isnan(correlations), -2, correlations)
    if match == "index":
        assert (partner == np.arange(count)).all()
    else:  # apart from memories with two equally good partners
        np.testing.assert_allclose(best[np.arange(count), partner], best.max(1), atol=1e-5)
    np.testing.assert_allclose(column(study, "correlation"), correlations[np.arange(count), partner], atol=1e-5)
    cosines = np.where(none, np.nan, reference.value_cosines(partner))
    np.testing.assert_allclose(column(study, "value_cosine"), cosines, atol=1e-5)
    changes, (written_before, written_after) = reference.changes(partner, none)
    np.testing.assert_allclose(column(study, "change"), changes, rtol=1e-4, atol=1e-6)
    np.testing.assert_allclose(column(study, "contribution_before"), written_before, rtol=1e-4, atol=1e-6)
    np.testing.assert_allclose(column(study, "contribution_after"), written_after, rtol=1e-4, atol=1e-6)
    assert np.isnan(column(study, "baseline")).all() == (match == "index")


@pytest.mark.parametrize("name", KEYS)
def test_keys_are_compared_with_those_of_the_partner(name, study_of):
    before, after = make(name), nudged(name)
    study = compared(study_of, before, after, match="index")
    gated = len(KEYS[name]) == 2
    for path, of_study in zip(KEYS[name], ("gate_cosine", "key_cosine")[not gated :], strict=True):
        old, new = (
            torch.cat([_key(model.get_submodule(path.format(layer)), name) for layer in range(3)])
            for model in (before, after)
        )
        np.testing.assert_allclose(column(study, of_study), torch.cosine_similarity(old, new).numpy(), atol=1e-5)
    assert np.isnan(column(study, "gate_cosine")).all() == (not gated)


def _key(module, name):
    return module.weight.detach().T if name == "gpt2" else module.weight.detach()


def test_top_tokens_ranks_and_triggers_are_those_of_the_two_studies(study_of):
    before, after = make("llama"), nudged("llama", 0.3)
    study = compared(study_of, before, after, match="index")
    folder = study.folder.with_name("after-before")
    tables = [pq.read_table(at / "values.parquet").to_pylist() for at in (folder, study.folder)]
    plain = Plain("llama", after, lens="norm", bos=BOS)
    logits = [row for layer in range(3) for row in plain.value_logits(layer)]
    rows = pq.read_table(study.path("diff.parquet")).to_pylist()
    for row, old, new, of_value in zip(rows, *tables, logits, strict=True):
        assert (row["layer"], row["memory"]) == (new["layer"], new["memory"])
        assert (row["top_before"], row["top_after"]) == (old["top_tokens"][0], new["top_tokens"][0])
        assert row["top_kept"] == (row["top_before"] == row["top_after"])
        assert row["tokens_before"] == old["top_tokens"][:10]
        assert row["rank_of_top"] == ranking(of_value).index(row["top_before"]) + 1
    assert 0 < np.mean([row["top_kept"] for row in rows]) < 1
    old, new = (triggers_of(at) for at in (folder, study.folder))
    for row in rows:
        name = (row["layer"], row["memory"])
        prefixes = [{place[1:] for place in of_study.get(name, [])} for of_study in (old, new)]
        union = prefixes[0] | prefixes[1]
        expected = None if not union else len(prefixes[0] & prefixes[1]) / len(union)
        assert row["triggers_kept"] == pytest.approx(expected)
    places = pq.read_table(study.path("diff_triggers.parquet")).to_pylist()
    assert {(row["layer"], row["memory"], row["rank"], row["sentence"], row["position"]) for row in places} == {
        (*name, *place) for name, of_memory in old.items() for place in of_memory
    }
    assert max(len(of_memory) for of_memory in old.values()) == 5


def triggers_of(folder):
    """Rank, sentence and position of the triggers, by memory."""
    found_triggers = {}
    for row in pq.read_table(folder / "triggers.parquet").to_pylist():
        place = (row["rank"], row["sentence"], row["position"])
        found_triggers.setdefault((row["layer"], row["memory"]), []).append(place)
    return found_triggers


def test_means_and_firing_rates_are_those_of_the_two_studies(study_of):
    study = compared(study_of, make("gpt2"), nudged("gpt2"), match="index")
    for folder, side in ((study.folder.with_name("after-before"), "before"), (study.folder, "after")):
        memories = pq.read_table(folder / "memories.parquet").sort_by([("layer", "ascending"), ("memory", "ascending")])
        mean, fired, seen = (memories[name].to_numpy() for name in ("mean", "fired", "seen"))
        np.testing.assert_allclose(column(study, f"mean_{side}"), mean, rtol=1e-6)
        np.testing.assert_allclose(column(study, f"firing_{side}"), fired / seen, rtol=1e-6)


@pytest.mark.parametrize("name", ["gpt2", "mixtral", "bert", "t5", "adaptive_lm"])
@pytest.mark.parametrize("match", ["auto", "activations"])
def test_identical_models_have_not_changed(name, match, study_of):
    study = compared(study_of, make(name), make(name), match=match)
    entry = study.manifest["stages"]["diff"]
    assert entry["match"] == ("index" if match == "auto" else "activations")
    known = ~np.isnan(column(study, "partner_memory"))  # a memory that never fires has no partner by activations
    assert known.mean() > 0.5
    for name in ("layer", "memory"):
        assert (column(study, name) == column(study, f"partner_{name}"))[known].all()
    for kept in ("correlation", "value_cosine", "triggers_kept", "top_kept", "rank_of_top"):
        values = column(study, kept)
        np.testing.assert_allclose(values[~np.isnan(values)], 1, atol=1e-6)
    assert (column(study, "change") == 0).all()
    predictions = entry["predictions"]
    assert (predictions["changed"], predictions["divergence"]) == (0, 0)
    assert predictions["perplexity_before"] == predictions["perplexity_after"]


def test_activations_find_a_permutation_of_the_memories(study_of):
    after, order = permuted()
    study = compared(study_of, make("gpt2"), after)
    assert study.manifest["stages"]["diff"]["match"] == "activations"  # the weights of that layer are not related
    expected = np.concatenate([np.arange(22), order, np.arange(22)])
    assert (column(study, "partner_layer") == np.repeat([0, 1, 2], 22)).all()
    assert (column(study, "partner_memory") == expected).all()
    np.testing.assert_allclose(column(study, "correlation"), 1, atol=1e-5)
    np.testing.assert_allclose(column(study, "value_cosine"), 1, atol=1e-5)
    assert column(study, "change").max() < 1e-4
    assert np.nanmin(column(study, "triggers_kept")) == 1


def test_memories_whose_values_were_changed_rank_first(study_of):
    after, changed = make("llama"), [(2, 5), (2, 20), (2, 7)]  # above them nothing changes
    with torch.no_grad():
        for layer, memory in changed:
            after.model.layers[layer].mlp.down_proj.weight[:, memory] *= -4
    study = compared(study_of, make("llama"), after)
    order = np.argsort(-column(study, "change"))[:3]
    assert {(int(column(study, "layer")[row]), int(column(study, "memory")[row])) for row in order} == set(changed)
    np.testing.assert_allclose(column(study, "value_cosine")[order], -1, atol=1e-5)
    assert (column(study, "top_kept")[order] == 0).all()


def test_models_of_other_depth_and_width_are_paired_by_activations(study_of):
    arguments = {**tiny._GPT2, "n_embd": 16, "n_inner": 26, "n_layer": 2}
    before = tiny.build(tiny.hf.GPT2LMHeadModel, tiny.hf.GPT2Config, arguments, seed=5)
    after = make("gpt2")
    study = compared(study_of, before, after)
    entry = study.manifest["stages"]["diff"]
    assert entry["match"] == "activations"
    assert "52 memories of width 16" in entry["match_reason"]
    for name in ("value_cosine", "key_cosine", "change"):
        assert np.isnan(column(study, name)).all()
    assert column(study, "partner_layer").max() == 1
    assert column(study, "partner_memory").max() > 22
    assert (column(study, "rank_of_top") >= 1).all()
    sentences = searched_sentences(study)
    coefficients = [
        np.concatenate([coefficients_of(model, tokens) for tokens in sentences]) for model in (before, after)
    ]
    best = np.corrcoef(coefficients[1].T, coefficients[0].T)[:66, 66:].max(1)
    np.testing.assert_allclose(column(study, "correlation"), best, atol=1e-5)


@torch.no_grad()
def coefficients_of(model, tokens):
    """The coefficients of a tiny GPT-2, position × memory."""
    observed = []
    hooks = [
        block.mlp.c_proj.register_forward_pre_hook(lambda _module, inputs: observed.append(inputs[0][0, 1:]))
        for block in model.transformer.h
    ]
    model(input_ids=torch.tensor([[BOS, *tokens]]))
    for hook in hooks:
        hook.remove()
    return torch.cat(observed, -1).double().numpy()


def test_the_baseline_is_the_best_correlation_with_random_directions(study_of):
    before, after = make("gpt2"), nudged("gpt2", 0.3)
    study = compared(study_of, before, after, match="activations")
    sentences = searched_sentences(study)
    x, y = (np.concatenate([coefficients_of(model, tokens) for tokens in sentences]) for model in (before, after))
    along = []
    for layer in range(3):
        generator = np.random.default_rng([0, *b"rotation", layer, 0])
        along.append(x[:, 22 * layer : 22 * layer + 22] @ generator.standard_normal((22, 22), dtype=np.float32))
    expected = np.corrcoef(y.T, np.concatenate(along, 1).T)[:66, 66:].max(1)
    np.testing.assert_allclose(column(study, "baseline"), expected, atol=1e-5)


def test_rotations_of_wide_layers_are_of_blocks(monkeypatch):
    monkeypatch.setattr("ffscope.comparison.rotation.BLOCK", 4)
    numbers = torch.randn(3, 9, generator=torch.Generator().manual_seed(0))
    mixed = Rotation((6, 3), 7, torch.device("cpu"))(numbers)
    blocks = {(0, 0): slice(0, 4), (0, 1): slice(4, 6), (1, 0): slice(6, 9)}
    for block, at in blocks.items():
        size = at.stop - at.start
        directions = np.random.default_rng([7, *b"rotation", *block]).standard_normal((size, size), dtype=np.float32)
        np.testing.assert_allclose(mixed[:, at].numpy(), numbers[:, at].numpy() @ directions, rtol=1e-5)


@pytest.mark.parametrize("name", ["gpt2", "bert", "t5", "adaptive_lm"])
def test_predictions_are_compared_at_held_out_text(name, study_of):
    before, after = make(name), nudged(name, 0.1 if name == "bert" else 0.06)
    study = compared(study_of, before, after, match="index")
    rows = [row for row in pq.read_table(study.path("sentences.parquet")).to_pylist() if row["held_out"]]
    losses, changed, divergence = [[], []], [], []
    for row in rows:
        tokens = row["tokens"]
        for position in range(len(tokens)):
            target = [*tokens[1:], row["next_token"]][position]
            text = tokens
            if name == "bert":
                target, text = tokens[position], [*tokens[:position], 0, *tokens[position + 1 :]]
            if target < 0:
                continue
            both = [log_probs(name, model, text, position - len(tokens)) for model in (before, after)]
            for side, log_prob in zip(losses, both, strict=True):
                side.append(-log_prob[target])
            changed.append(both[0].argmax() != both[1].argmax())
            divergence.append((np.exp(both[0]) * (both[0] - both[1])).sum())
    predictions = study.manifest["stages"]["diff"]["predictions"]
    assert predictions["prefixes"] == len(changed) > 20
    assert predictions["changed"] == pytest.approx(np.mean(changed))
    assert 0 < predictions["changed"] < (1.01 if name == "bert" else 1)  # the tiny BERT always predicts the same token
    assert predictions["divergence"] == pytest.approx(np.mean(divergence), rel=1e-4)
    assert predictions["perplexity_before"] == pytest.approx(np.exp(np.mean(losses[0])), rel=1e-4)
    assert predictions["perplexity_after"] == pytest.approx(np.exp(np.mean(losses[1])), rel=1e-4)


@torch.no_grad()
def log_probs(name, model, tokens, position):
    """The log-probabilities at a position, which counts from the end."""
    ids = {"input_ids": torch.tensor([[BOS, *tokens]])}
    if name == "t5":
        ids["decoder_input_ids"] = torch.tensor([[0, *tokens]])
    return model(**ids).logits[0, position].log_softmax(-1).double().numpy()


def table_bytes(study):
    return [pq.read_table(study.path(f"{name}.parquet")) for name in ("diff", "diff_triggers")]


def test_results_do_not_depend_on_the_size_of_panels_and_batches(study_of, monkeypatch):
    before, after = make("qwen2_moe"), nudged("qwen2_moe")
    whole = compared(study_of, before, after, "whole", match="activations")
    monkeypatch.setattr(partners_module, "_CELLS", 30_000)
    monkeypatch.setattr("ffscope.comparison.coefficients._NUMBERS", 50_000)
    monkeypatch.setattr("ffscope.comparison.similarity._ROWS", 7)
    parts = compared(study_of, before, after, "parts", match="activations")
    for name in ("partner_layer", "partner_memory", "triggers_kept", "rank_of_top"):
        np.testing.assert_array_equal(column(whole, name), column(parts, name))
    for name in ("correlation", "baseline", "change", "contribution_after", "key_cosine", "value_cosine"):
        np.testing.assert_allclose(column(whole, name), column(parts, name), atol=1e-5)


def test_panels_cover_every_memory_once():
    for cells in (1, 30, 100, 450, 10**6):
        panels = partners_module._panels([7, 3, 40, 2], 10, cells)
        assert [number for panel in panels for number in panel] == list(range(52))
        assert all(len(panel) <= max(1, cells // 10) for panel in panels)


@pytest.mark.parametrize("match", ["index", "activations"])
def test_an_interrupted_comparison_resumes(match, study_of, monkeypatch):
    before, after = make("gpt2"), nudged("gpt2")
    whole = compared(study_of, before, after, "whole", match=match)
    monkeypatch.setattr(partners_module, "_CELLS", 22 * 66)
    models, studies = zip(*(study_of(model, folder) for model, folder in ((before, "a"), (after, "b"))), strict=True)
    real_search, real_similarities, calls = partners_module.Search.panel, diff_stage.similarities, []

    def interrupted(function, stop):
        def run(*arguments, **options):
            if len(calls) == stop:
                calls.append(None)
                raise KeyboardInterrupt
            calls.append(function.__name__)
            return function(*arguments, **options)

        return run

    arguments = (studies[0].folder, studies[1].folder)
    keywords = {"model_before": models[0], "model_after": models[1], "match": match, **ALL}
    for stop in (1, 3 if match == "index" else 5):
        monkeypatch.setattr(partners_module.Search, "panel", interrupted(real_search, stop))
        monkeypatch.setattr(diff_stage, "similarities", interrupted(real_similarities, stop))
        with pytest.raises(KeyboardInterrupt):
            diff(*arguments, **keywords)
        assert studies[1].path(".diff").is_dir()
        assert not Study.open(studies[1].folder).has("diff")
    resumed = diff(*arguments, **keywords)
    steps = [call for call in calls if call]
    assert steps == (["panel"] * 3 if match == "activations" else []) + ["similarities"] * 3  # none was done twice
    assert not resumed.path(".diff").exists()
    for name in ("partner_memory", "correlation", "change", "triggers_kept"):
        np.testing.assert_allclose(column(resumed, name), column(whole, name), atol=1e-6)


def test_a_finished_comparison_is_repeated_with_other_options_only(study_of, monkeypatch):
    before, after = make("gpt2"), nudged("gpt2")
    models, studies = zip(*(study_of(model, folder) for model, folder in ((before, "a"), (after, "b"))), strict=True)
    arguments = (studies[0].folder, studies[1].folder)
    keywords = {"model_before": models[0], "model_after": models[1], **ALL}
    entry = diff(*arguments, **keywords).manifest["stages"]["diff"]
    written = []
    monkeypatch.setattr(diff_stage, "_write", lambda *_: written.append(True))
    assert diff(*arguments, **keywords).manifest["stages"]["diff"] == entry
    threshold = diff(*arguments, **keywords, universal_above=0.7).manifest["stages"]["diff"]
    assert threshold["options"]["universal_above"] == 0.7
    assert threshold["predictions"] == entry["predictions"]
    assert not written
    diff(*arguments, **{**keywords, "match": "activations"})
    assert len(written) == 2


def test_an_interrupted_repetition_with_other_options_resumes(study_of, monkeypatch):
    before, after = make("gpt2"), nudged("gpt2")
    models, studies = zip(*(study_of(model, folder) for model, folder in ((before, "a"), (after, "b"))), strict=True)
    arguments = (studies[0].folder, studies[1].folder)
    keywords = {"model_before": models[0], "model_after": models[1], **ALL}
    diff(*arguments, **keywords)
    panel, calls = partners_module.Search.panel, []
    monkeypatch.setattr(partners_module.Search, "panel", lambda *some: calls.append(None) or panel(*some))
    with monkeypatch.context() as patch:
        patch.setattr(diff_stage, "similarities", raise_interrupt)
        with pytest.raises(KeyboardInterrupt):
            diff(*arguments, **keywords, match="activations")
    assert not Study.open(studies[1].folder).has("diff")
    assert diff(*arguments, **keywords, match="activations").manifest["stages"]["diff"]["match"] == "activations"
    assert len(calls) == 1


def raise_interrupt(*_arguments, **_options):
    raise KeyboardInterrupt


def test_the_sample_is_random_and_depends_on_the_seed_alone(study_of):
    study = compared(study_of, make("gpt2"), nudged("gpt2"), match="index", diff_tokens=40)
    entry = study.manifest["stages"]["diff"]
    sentences = searched_sentences(study)
    order = np.random.default_rng([0, *b"diff"]).permutation(len(sentences))
    lengths = np.cumsum([len(sentences[number]) for number in order])
    count = int(np.searchsorted(lengths, 40)) + 1
    assert (entry["sampled_sentences"], entry["sampled_tokens"]) == (count, lengths[count - 1])
    drawn = [sentences[number] for number in order[:count]]
    reference = Reference("gpt2", make("gpt2"), nudged("gpt2"), drawn)
    np.testing.assert_allclose(column(study, "correlation"), np.diag(reference.correlations()), atol=1e-5)


def test_dead_memories_have_no_correlation_and_no_partner(study_of):
    before, after = make("opt"), make("opt")
    with torch.no_grad():
        after.model.decoder.layers[1].fc1.weight[12] = 0
        after.model.decoder.layers[1].fc1.bias[12] = -1
        before.model.decoder.layers[1].fc1.weight[9] = 0
        before.model.decoder.layers[1].fc1.bias[9] = -1
    by_index = compared(study_of, before, after, "index", match="index")
    assert np.isnan(column(by_index, "correlation")[[34, 31]]).all()
    assert column(by_index, "change")[34] > 0
    assert column(by_index, "contribution_before")[31] == 0
    assert column(by_index, "triggers_kept")[[34, 31]].tolist() == [0, 0]
    study = compared(study_of, before, after, "activations", match="activations")
    assert np.isnan(column(study, "partner_memory")[34])
    assert np.isnan(column(study, "top_before")[34])
    assert 31 not in 22 * column(study, "partner_layer") + column(study, "partner_memory")
    assert not np.isnan(column(study, "correlation")[31])


def test_errors_say_what_was_expected(study_of, corpus, tokenizer, tmp_path):
    model, study = study_of(make("gpt2"), "a")
    with pytest.raises(InputError, match="Name the other one"):
        analyse("diff", model, study.folder)
    _, other_shape = study_of(make("gpt_neox"), "neox")
    wide = tiny.build(tiny.hf.GPT2LMHeadModel, tiny.hf.GPT2Config, {**tiny._GPT2, "n_inner": 26})
    wide_model, wide_study = study_of(wide, "wide")
    both = {"model_before": wide_model, "model_after": model}
    with pytest.raises(StudyError, match="same layers and widths.*Use\\s+--match activations"):
        diff(wide_study.folder, study.folder, **both, match="index")
    with pytest.raises(StudyError, match='family = "gpt_neox"; the model before has "gpt2".*--model-a'):
        diff(other_shape.folder, study.folder, model_before=model, model_after=model)
    with pytest.raises(StudyError, match="is a study of another model: .*with memories"):
        diff(study.folder, wide_study.folder, model_before=model, model_after=model)
    other_text = write_corpus(tmp_path / "other.jsonl", documents=21)
    other = make_study(model, CorpusOptions(str(other_text), max_tokens=12), tmp_path / "other")
    with pytest.raises(StudyError, match="different text"):
        diff(other.folder, study.folder, model_before=model, model_after=model)
    searched = triggers(
        model, CorpusOptions(str(corpus), max_tokens=12), tmp_path / "searched", search=SearchOptions(top=5)
    )
    with pytest.raises(StudyError, match="has no values yet. Run `ffscope values`"):
        diff(searched.folder, study.folder, model_before=model, model_after=model)
    with pytest.raises(StudyError, match="is not a study"):
        diff(tmp_path / "none", study.folder, model_after=model)
    with pytest.raises(InputError, match="two studies.*corpus"):
        diff(model, model)
    with pytest.raises(InputError, match="out=DIR"):
        diff(model, model, corpus=CorpusOptions(str(corpus)))
    _, all_prefixes = study_of(make("gpt2"), "all", prefixes="all")
    with pytest.raises(StudyError, match="prefixes = best.*with all"):
        diff(study.folder, all_prefixes.folder, model_before=model, model_after=model)
    assert not Study.open(study.folder).has("diff")
    assert not study.path(".diff").exists()


def test_other_vocabularies_and_lenses_are_refused(study_of):
    model, study = study_of(make("gpt2"), "a")
    copied = shutil.copytree(study.folder, study.folder.with_name("copy"))
    manifest = json.loads((copied / "study.json").read_text())
    (copied / "study.json").write_text(json.dumps({**manifest, "settings": {**manifest["settings"], "lens": "raw"}}))
    both = {"model_before": model, "model_after": model}
    with pytest.raises(StudyError, match="lens raw"):
        diff(copied, study.folder, **both)
    (copied / "study.json").write_text(json.dumps(manifest))
    table = pq.read_table(copied / "vocabulary.parquet")
    pq.write_table(table.slice(0, 60), copied / "vocabulary.parquet")
    with pytest.raises(StudyError, match="different vocabularies"):
        diff(copied, study.folder, **both)


def test_two_models_are_compared_in_one_call(corpus, tokenizer, tmp_path):
    models = [make_memory_model(model, tokenizer) for model in (make("gpt2"), nudged("gpt2"))]
    text = CorpusOptions(str(corpus), max_tokens=12)
    study = diff(*models, corpus=text, out=tmp_path / "both", search=SearchOptions(top=5), diff_tokens=100)
    assert study.folder == tmp_path / "both" / "b"
    assert study.has("diff")
    written = (tmp_path / "both" / "a" / "triggers.parquet").stat().st_mtime_ns
    diff(*models, corpus=text, out=tmp_path / "both", search=SearchOptions(top=5), diff_tokens=100)
    assert (tmp_path / "both" / "a" / "triggers.parquet").stat().st_mtime_ns == written


def test_the_base_is_only_read(study_of):
    model, study = study_of(make("gpt2"), "a")
    other, after = study_of(nudged("gpt2"), "b")
    before = {file.name: file.stat().st_mtime_ns for file in study.folder.iterdir()}
    diff(study.folder, after.folder, model_before=model, model_after=other, **ALL)
    assert {file.name: file.stat().st_mtime_ns for file in study.folder.iterdir()} == before
    itself = diff(study.folder, study.folder, model_before=model, model_after=model, **ALL)
    assert (column(itself, "change") == 0).all()
