"""Pruned models, compared with plain transformers models whose value rows are set to zero; scores compared with plain numpy."""

import copy
import json
import shutil

import numpy as np
import pyarrow.parquet as pq
import pytest
import torch
import transformers as hf

import command_line
import ffscope
import plain
import tiny
from ffscope.effects import held_out
from ffscope.errors import CorpusError, GradientError, InputError, LayoutError, LensError, SourceError, StudyError
from ffscope.models.loading import load, make_memory_model
from ffscope.models.removal import Remover
from ffscope.models.saving import save_model
from ffscope.options.corpus import CorpusOptions
from ffscope.options.search import SearchOptions
from ffscope.pipeline import analyse, triggers
from ffscope.pruning.contributions import Contributions, sampled_text
from ffscope.pruning.ranking import lowest
from ffscope.pruning.redundancy import LayerTriggers, layer_redundancy, related_pairs
from ffscope.pruning.written import RECORD, Pruned
from ffscope.report.catalogue import figures
from ffscope.report.summary import findings, sentence, summarise
from ffscope.search.text_pass import TextBatch
from ffscope.stages.prune import SCORES, PrunedModelOptions, PruneOptions
from ffscope.study.folder import Study
from plain import make
from studies import write_corpus

BOS = 2
OPTIONS = {"shares": "0.2,0.5", "random_seeds": 2, "prune_prefixes": 60, "prune_sentences": 20, "layer_share": 0.4}
EFFECTS = {"examples": 20, "effect_memories": 0, "group_examples": 2, "least": "10"}


@pytest.fixture(scope="module")
def corpus(tmp_path_factory):
    return write_corpus(tmp_path_factory.mktemp("corpus") / "text.jsonl", documents=60)


def studied(model, corpus, folder, *, effects=False, **search):
    search = SearchOptions(top=4, batch_tokens=20, **search)  # so that the held-out text is in several batches
    study = triggers(model, CorpusOptions(str(corpus), max_tokens=10), folder, search=search)
    return analyse("effects", model, study.folder, **EFFECTS) if effects else study


@pytest.fixture(scope="module")
def opt(corpus, tokenizer, tmp_path_factory):
    """A model with its study, whose curves are measured by every score."""
    bare = make("opt")
    model = make_memory_model(bare, tokenizer)
    folder = tmp_path_factory.mktemp("opt") / "study"
    studied(model, corpus, folder, effects=True)
    return bare, model, analyse("prune", model, folder, **OPTIONS)


@pytest.fixture
def copied(opt, tmp_path):
    """The same model, and a copy of its study."""
    return opt[1], Study.open(shutil.copytree(opt[2].folder, tmp_path / "copied"))


def table(study, name):
    return pq.read_table(study.path(f"{name}.parquet")).to_pylist()


def column(study, name, *columns):
    rows = pq.read_table(study.path(f"{name}.parquet"))
    arrays = [rows[name].to_numpy() for name in columns]
    return arrays[0] if len(arrays) == 1 else arrays


class PlainText:
    """The held-out sentences of a study that losses are measured at, for a plain OPT model."""

    def __init__(self, model, study, prefixes):
        self.model = model
        held = [row for row in table(study, "sentences") if row["held_out"]]
        order = np.random.default_rng([study.settings["seed"], *b"held out"]).permutation(len(held))
        count, self.sentences = 0, []
        for number in order:
            if count < prefixes:
                self.sentences.append(held[number])
                count += len(held[number]["tokens"])

    @torch.no_grad()
    def losses(self, coefficients=None):
        """The loss at every prefix; `coefficients` replaces a layer's coefficients, by layer: (mask, numbers)."""
        hooks = []
        for layer, (mask, numbers) in (coefficients or {}).items():

            def replace(_module, inputs, mask=mask, numbers=numbers):
                return (torch.where(torch.tensor(mask), torch.tensor(numbers).float(), inputs[0]),)

            hooks.append(self.model.model.decoder.layers[layer].fc2.register_forward_pre_hook(replace))
        losses = []
        for row in self.sentences:
            log_probs = self.model(input_ids=torch.tensor([[BOS, *row["tokens"]]])).logits[0, 1:].log_softmax(-1)
            targets = [*row["tokens"][1:], row["next_token"]]
            losses += [-log_probs[at, target].item() for at, target in enumerate(targets) if target >= 0]
        for hook in hooks:
            hook.remove()
        return np.array(losses)


def order_of(study, score, seed=0):
    """All memories in the order in which a score prunes them, by definition."""
    total = 66
    if score == "random":
        return np.argsort(np.random.default_rng([0, seed, *b"random"]).permutation(total))
    ties = np.random.default_rng([0, 0, *b"pruning"]).permutation(total)
    contribution = column(study, "pruning_scores", "contribution")
    second = np.zeros(total)
    if score in ("effect", "effect_size"):
        first = column(study, "effects", score)
    elif score == "firing":
        first = np.divide(*column(study, "memories", "fired", "seen"))
    elif score == "redundancy":
        first = -column(study, "redundancy", "redundancy_left")
        second = np.where(first < 0, contribution, 0)
    else:
        first = column(study, "pruning_scores", score)
    return np.array(sorted(range(total), key=lambda i: (first[i], second[i], ties[i])))


@pytest.mark.parametrize("replace", ["zero", "mean"])
def test_curves_are_the_losses_of_a_plain_model_without_the_first_memories(opt, copied, replace):
    plain, model, study = opt
    if replace == "mean":
        study = analyse("prune", model, copied[1].folder, **OPTIONS, replace="mean")
    text = PlainText(plain, study, 60)
    means = column(study, "memories", "mean").reshape(3, 22) if replace == "mean" else np.zeros((3, 22))
    intact = text.losses()
    entry = study.manifest["stages"]["prune"]
    assert entry["loss"] == pytest.approx(intact.mean(), abs=1e-5)
    assert entry["perplexity"] == pytest.approx(np.exp(intact.mean()), rel=1e-5)
    assert entry["prefixes"] == len(intact)
    rows = table(study, "pruning")
    assert entry["passes"] == 1 + len(rows) == 1 + (len(SCORES) - 1 + 2) * (2 + 3)
    assert {(row["score"], row["seed"]) for row in rows} == {(score, None) for score in SCORES[:-1]} | {
        ("random", 0),
        ("random", 1),
    }
    for row in rows:
        order = order_of(study, row["score"], row["seed"])
        if row["layer"] is not None:
            order = order[order // 22 == row["layer"]]
        pruned = order[: round(row["share"] * len(order))]
        mask = np.isin(np.arange(66), pruned).reshape(3, 22)
        losses = text.losses({layer: (mask[layer], means[layer]) for layer in range(3)})
        change = losses - intact
        width = 1.959964 * change.std(ddof=1) / len(change) ** 0.5
        assert row["memories"] == len(pruned)
        assert row["loss"] == pytest.approx(losses.mean(), abs=1e-5)
        assert row["perplexity"] == pytest.approx(np.exp(losses.mean()), rel=1e-4)
        assert row["change"] == pytest.approx(change.mean(), abs=1e-5)
        assert row["change_low"] == pytest.approx(change.mean() - width, abs=1e-5)
        assert row["change_high"] == pytest.approx(change.mean() + width, abs=1e-5)


def test_contributions_are_means_over_the_searched_text(opt):
    plain, _, study = opt
    searched = [row for row in table(study, "sentences") if not row["held_out"]]
    drawn = np.random.default_rng([0, *b"contributions"]).permutation(len(searched))[:20]
    sizes = [[], [], []]
    for number in drawn:
        ids = torch.tensor([[BOS, *searched[number]["tokens"]]])
        for layer in range(3):
            module, kept = plain.model.decoder.layers[layer].fc2, []
            hook = module.register_forward_pre_hook(lambda _, inputs, kept=kept: kept.append(inputs[0]))
            with torch.no_grad():
                plain(input_ids=ids)
            hook.remove()
            coefficients = kept[0].reshape(-1, 22)[1:]  # without BOS
            sizes[layer].append((coefficients.abs() * module.weight.norm(dim=0)).detach().numpy())
    sizes = np.stack([np.concatenate(rows) for rows in sizes])
    rows = pq.read_table(study.path("pruning_scores.parquet"))
    np.testing.assert_allclose(rows["contribution"], sizes.mean(1).ravel(), rtol=1e-4)
    np.testing.assert_allclose(rows["squared"], np.square(sizes).mean(1).ravel(), rtol=1e-4)


@pytest.mark.parametrize("name", sorted(plain.FAMILIES))
def test_contributions_are_those_of_a_plain_model_of_any_family(name, tokenizer):
    reference = plain.Plain(name, model := plain.make(name), lens="norm", bos=BOS)
    batches = [TextBatch(np.array([[7, 11, 30], [9, 8, 41]])), TextBatch(np.array([[5, 12, 9, 6, 20]]))]
    state = Contributions(BOS)(make_memory_model(model, tokenizer), batches)
    sentences = [row.tolist() for batch in batches for row in batch.tokens]
    with torch.no_grad():
        sizes = [[] for _ in reference.layers]
        for tokens in sentences:
            run = reference.run(tokens)
            for layer, rows in zip(reference.layers, sizes, strict=True):
                coefficients = layer.coefficients(run)[-len(tokens) :]
                rows.append(coefficients.abs() * layer.written(layer.values).norm(dim=-1))
        sizes = [torch.cat(rows).double() for rows in sizes]
    assert state["count"] == 11
    torch.testing.assert_close(state["contribution"], torch.cat([rows.sum(0) for rows in sizes]), rtol=1e-4, atol=1e-5)
    torch.testing.assert_close(
        state["squared"], torch.cat([rows.square().sum(0) for rows in sizes]), rtol=1e-4, atol=1e-5
    )


@pytest.mark.parametrize("name", ["llama", "mixtral", "bert", "t5", "adaptive_lm"])
def test_every_kind_of_model_is_pruned(name, corpus, tokenizer, tmp_path):
    masking = copy.deepcopy(tokenizer)
    masking.mask_token = "<unk>"
    model = make_memory_model(make(name), masking)
    model.model.save_pretrained(tmp_path / "model")
    masking.save_pretrained(tmp_path / "model")
    model = load(str(tmp_path / "model"), device="cpu")
    studied(model, corpus, tmp_path / "study")
    options = {**OPTIONS, "shares": "0.3", "layer_share": 0}
    study = analyse("prune", model, tmp_path / "study", **options)
    rows = {row["score"]: row for row in table(study, "pruning")}
    assert set(rows) == {"contribution", "squared", "firing", "redundancy", "random"}
    # The same memories, with their value rows set to zero.
    zeroed = {"zero_rows": True, "ranking": "model", "prune_prefixes": 60, "prune_sentences": 20}
    pruned = ffscope.prune(model, study.folder, tmp_path / "pruned", share=0.3, score="contribution", **zeroed)
    assert sum(map(len, pruned.removed)) == rows["contribution"]["memories"]
    assert pruned.before.perplexity == pytest.approx(study.manifest["stages"]["prune"]["perplexity"], rel=1e-5)
    assert pruned.after.perplexity == pytest.approx(rows["contribution"]["perplexity"], rel=1e-4)


def test_layers_below_a_pruned_one_run_once(tokenizer):
    model = make_memory_model(make("opt"), tokenizer)
    counts = [0] * 3

    def counter(layer):
        return lambda *_: counts.__setitem__(layer, counts[layer] + 1)

    hooks = [model.layer(layer).block.fc1.register_forward_hook(counter(layer)) for layer in range(3)]
    groups = tuple(lowest(np.arange(66), model.memories, 0.5, layer=layer) for layer in (1, 2))
    tokens = np.array([[7, 11, 30], [9, 8, 41]])
    batch = held_out.HeldOutBatch(tokens, np.array([0, 1]), np.array([-1, -2]), np.array([20, 31]))
    held_out.HeldOutLoss(BOS, groups)(model, [batch])
    for hook in hooks:
        hook.remove()
    assert counts == [1, 2, 3]


# --- redundancy ---


def brute_force(triggers, values, contribution):
    """The redundancy of every memory of a layer by definition, its partner, and what is left when it is pruned."""
    count = len(values)
    lists = [set(triggers.prefix[triggers.memory == memory].tolist()) for memory in range(count)]

    def degree(i, j):
        cosine = float(values[i] @ values[j] / (np.linalg.norm(values[i]) * np.linalg.norm(values[j])))
        return max(0.0, cosine) * len(lists[i] & lists[j]) / max(len(lists[i]), 1)

    degrees = np.array([[degree(i, j) if i != j else 0.0 for j in range(count)] for i in range(count)])
    left, remaining = np.zeros(count), set(range(count))
    while True:
        now = {i: max((degrees[i, j] for j in remaining if j != i), default=0.0) for i in remaining}
        # Degrees that differ by rounding alone are equal.
        first = min(remaining, key=lambda i: (-round(now[i], 5), contribution[i], i), default=None)
        if first is None or now[first] <= 0:
            return degrees.max(1), degrees.argmax(1), left
        left[first] = now[first]
        remaining.discard(first)


@pytest.mark.parametrize("name", ["opt", "gemma2", "mixtral", "t5"])
def test_redundancy_is_that_of_a_brute_force_search(name, tokenizer):
    model = make_memory_model(make(name), tokenizer)
    generator = np.random.default_rng(7)
    layer = model.layer(1)
    memory = np.sort(generator.integers(0, model.memories[1], 5 * model.memories[1]))
    triggers = LayerTriggers(1, model.memories[1], memory, generator.integers(0, 30, len(memory)))
    keep = np.unique(np.stack([triggers.memory, triggers.prefix]), axis=1)  # a list has a prefix once
    triggers = triggers._replace(memory=keep[0], prefix=keep[1])
    values = layer.values().detach().double()
    if name == "gemma2":
        values = values * (1 + layer.post.weight.detach().double())
    contribution = generator.random(len(values))
    pairs = {name: tensor.numpy() for name, tensor in related_pairs(model, triggers).items()}
    result = layer_redundancy(triggers, pairs, contribution)
    redundancy, partner, left = brute_force(triggers, values.numpy(), contribution)
    np.testing.assert_allclose(result.redundancy, redundancy, atol=1e-5)
    np.testing.assert_array_equal(result.partner, np.where(redundancy > 0, partner, -1))
    np.testing.assert_allclose(result.left, left, atol=1e-5)
    assert (left > 0).any()
    assert (left < redundancy - 1e-3).any()


def test_of_two_twins_the_smaller_one_is_pruned_and_the_other_stays(tokenizer):
    model = make_memory_model(make("opt"), tokenizer)
    weight = model.model.model.decoder.layers[0].fc2.weight
    with torch.no_grad():
        weight[:, 4] = 3 * weight[:, 9]
    triggers = LayerTriggers(0, 22, np.array([4, 4, 9, 9, 11]), np.array([1, 2, 1, 2, 5]))
    pairs = {name: tensor.numpy() for name, tensor in related_pairs(model, triggers).items()}
    contribution = np.zeros(22)
    contribution[4], contribution[9] = 2.0, 1.0
    result = layer_redundancy(triggers, pairs, contribution)
    assert result.redundancy[[4, 9, 11]].tolist() == pytest.approx([1, 1, 0])
    assert result.partner[[4, 9, 11]].tolist() == [9, 4, -1]
    assert result.left[[4, 9]].tolist() == pytest.approx([0, 1])
    assert result.shared[4] == result.triggers[4] == 2


def test_the_panel_names_the_nearest_memory(opt):
    from ffscope.memory_name import Memory
    from ffscope.queries.pruning import redundancy_panel

    _, _, study = opt
    rows = table(study, "redundancy")
    near = next(row for row in rows if row["partner"] is not None)
    panel = redundancy_panel(study, Memory(near["layer"], near["memory"]))
    assert panel["rows"][0][:2] == [f"L{near['layer']}.{near['partner']}", near["redundancy"]]
    alone = next(row for row in rows if row["partner"] is None)
    assert alone["redundancy"] == 0
    assert redundancy_panel(study, Memory(alone["layer"], alone["memory"])) is None


def test_memories_are_sorted_and_filtered_by_redundancy(opt):
    from ffscope.queries.search import SearchQuery, search

    _, _, study = opt
    rows = {f"L{row['layer']}.{row['memory']}": row["redundancy"] for row in table(study, "redundancy")}
    result = search(study, SearchQuery.parse({"redundancy": "0.01..", "sort": "redundancy"}))
    expected = sorted((value for value in rows.values() if value >= 0.01), reverse=True)
    assert expected
    assert [row.measures["redundancy"] for row in result.rows] == pytest.approx(expected)
    assert all(rows[row.memory] == pytest.approx(row.measures["redundancy"]) for row in result.rows)


# --- the figures ---


def test_the_report_names_the_score_that_prunes_best(opt):
    _, _, study = opt
    summary = summarise(study)
    entry = summary["pruning"]
    at = {score: next(p for p in curve if p["share"] == 0.2)["value"] for score, curve in entry["scores"].items()}
    best = min((score for score in at if score != "random"), key=at.__getitem__)
    label = figures()["pruning"].labels[best]
    assert "Without 20 % of the memories" in sentence("pruning", summary)
    assert sentence("pruning", summary).endswith("at examples of this text, which flatters them.")
    row = next(row for row in findings(summary) if row.finding == "Perplexity without 20 % of the memories")
    assert row.model.startswith(f"× {at[best] / entry['perplexity']:.3g} by {label}")
    rows = [row for row in table(study, "pruning") if row["score"] == "random" and row["layer"] is None]
    random = next(p for p in entry["scores"]["random"] if p["share"] == 0.5)
    losses = [row["loss"] for row in rows if row["share"] == pytest.approx(0.5)]
    assert random["value"] == pytest.approx(np.exp(np.mean(losses)))
    assert (random["low"], random["high"]) == pytest.approx((np.exp(min(losses)), np.exp(max(losses))))
    layers = summary["pruning_layers"]
    assert layers["layer"] == [0, 1, 2]
    assert set(layers["series"]) == set(SCORES)
    assert "40 % of one layer" in sentence("pruning_layers", summary)
    for name in ("pruning", "pruning_layers"):
        assert figures()[name].chart(summary[name]).to_dict()


# --- resuming ---


def test_a_killed_stage_resumes_with_what_it_has(opt, copied, monkeypatch):
    model, study = copied
    for name in ("pruning", "pruning_scores", "redundancy"):
        study.path(f"{name}.parquet").unlink()
    batches = []
    original = held_out.losses_of

    def stopping(*arguments):
        batches.append(arguments)
        if len(batches) == 50:
            raise KeyboardInterrupt
        return original(*arguments)

    monkeypatch.setattr(held_out, "losses_of", stopping)
    with pytest.raises(KeyboardInterrupt):
        analyse("prune", model, study.folder, **OPTIONS)
    assert list((study.folder / ".prune").glob("pruning-*.safetensors"))
    analyse("prune", model, study.folder, **OPTIONS)
    resumed = len(batches) - 50
    for name in ("pruning", "pruning_scores", "redundancy"):
        assert table(study, name) == table(opt[2], name)
    assert not (study.folder / ".prune").exists()
    batches.clear()
    analyse("prune", model, study.folder, **OPTIONS)
    assert not batches
    analyse("prune", model, study.folder, **{**OPTIONS, "scores": "firing"})
    assert {row["score"] for row in table(study, "pruning")} == {"firing"}
    assert 0 < resumed < len(batches) * 8


# --- written models ---


def plain_logits(model):
    """Its logits, or last states, on random inputs; and the inputs."""
    from ffscope.models.inputs import random_inputs

    inputs = random_inputs(model, batch=2, length=7)
    with torch.no_grad():
        result = model(**inputs)
    return result.logits if hasattr(result, "logits") else result.last_hidden_state


@pytest.mark.parametrize("zero_rows", [False, True], ids=["removed", "zeroed"])
@pytest.mark.parametrize("name", [*tiny.sweep(tiny.TABLE), "qwen2_moe"])
def test_a_written_model_equals_the_live_edit(name, zero_rows, tokenizer, tmp_path):
    plain = make(name) if name == "qwen2_moe" else tiny.make(name)
    model = make_memory_model(plain)
    if name.startswith("bloom") and not zero_rows:
        with pytest.raises(LayoutError, match="sets the width of layer 0, 48 memories.*Use --zero-rows"):
            Remover(model, zero_rows=False)
        return
    remover = Remover(model, zero_rows=zero_rows)
    generator = np.random.default_rng(3)
    removed = remover.lowest([generator.permutation(count) for count in model.memories], 0.3)
    before = {key: tensor.clone() for key, tensor in plain.state_dict().items()}
    save_model(remover.remove(removed), None, tmp_path / "pruned")
    for key, tensor in plain.state_dict().items():
        torch.testing.assert_close(tensor, before[key], rtol=0, atol=0)
    # As anyone would load it.
    auto = type(plain).from_pretrained(tmp_path / "pruned").eval()
    names = [f"L{layer}.{i}" for layer, mask in enumerate(removed) for i in mask.nonzero()[0]]
    with model.edit(zero=names):
        expected = plain_logits(plain)
    torch.testing.assert_close(plain_logits(auto), expected, rtol=1e-5, atol=1e-5)
    assert (plain_logits(plain) - expected).abs().max() > 1e-3
    written = load(str(tmp_path / "pruned"), device="cpu")
    lost = tuple(0 if zero_rows else int(mask.sum()) for mask in removed)
    assert all(mask.any() for mask in removed)
    assert written.memories == tuple(a - b for a, b in zip(model.memories, lost, strict=True))
    keys, values = model.layer(1).keys(), model.values(1)
    keys = keys if isinstance(keys, tuple) else (keys,)
    if not zero_rows:
        new = written.layer(1).keys()
        for key, old in zip(new if isinstance(new, tuple) else (new,), keys, strict=True):
            torch.testing.assert_close(key, old[~removed[1]], rtol=0, atol=0)
        torch.testing.assert_close(written.values(1), values[~removed[1]], rtol=0, atol=0)


@pytest.mark.parametrize("zero_rows", [False, True], ids=["removed", "zeroed"])
@pytest.mark.parametrize("name", ["opt", "gpt2", "opt post-norm", "granite", "bart"])
def test_the_mean_contribution_goes_into_the_bias(name, zero_rows, tmp_path):
    plain = tiny.make(name)
    model = make_memory_model(plain)
    if name == "granite":  # whose update is scaled
        for layer in plain.model.layers:
            assert layer.mlp.down_proj.bias is not None
    means = tuple(np.linspace(-1, 2, count, dtype=np.float32) for count in model.memories)
    remover = Remover(model, zero_rows=zero_rows)
    removed = remover.lowest([np.random.default_rng(1).permutation(count) for count in model.memories], 0.4)
    save_model(remover.remove(removed, means), None, tmp_path / "pruned")
    auto = type(plain).from_pretrained(tmp_path / "pruned").eval()
    numbers = {f"L{layer}.{i}": float(means[layer][i]) for layer, mask in enumerate(removed) for i in mask.nonzero()[0]}
    with model.edit(set=numbers):
        expected = plain_logits(plain)
    torch.testing.assert_close(plain_logits(auto), expected, rtol=1e-4, atol=2e-5)


@pytest.mark.parametrize("name", ["qwen2", "t5", "mixtral", "qwen2_moe"])
def test_the_mean_needs_a_bias(name):
    model = make_memory_model(make(name) if name == "qwen2_moe" else tiny.make(name))
    remover = Remover(model, zero_rows=False)
    removed = remover.lowest([np.arange(count) for count in model.memories], 0.3)
    means = tuple(np.ones(count, dtype=np.float32) for count in model.memories)
    with pytest.raises(LayoutError, match="needs an output projection with a bias.*Use --replace zero"):
        remover.remove(removed, means)


def test_a_width_that_the_config_leaves_out_is_set(tmp_path):
    plain = tiny.build(hf.GPT2LMHeadModel, hf.GPT2Config, {**tiny._GPT2, "n_inner": None})
    model = make_memory_model(plain)
    remover = Remover(model, zero_rows=False)
    removed = remover.lowest([np.arange(48)] * 3, 0.25)
    save_model(remover.remove(removed), None, tmp_path / "pruned")
    assert json.loads((tmp_path / "pruned" / "config.json").read_text())["n_inner"] == 36


def test_layers_of_one_width_lose_equally_many():
    model = make_memory_model(tiny.make("opt"))
    removed = [np.zeros(22, dtype=bool) for _ in range(3)]
    removed[0][3] = True
    with pytest.raises(InputError, match="as many memories removed from every layer whose width is ffn_dim"):
        Remover(model, zero_rows=False).remove(removed)


def test_experts_keep_a_width_that_kernels_take():
    """16 bytes: 4 numbers in float32."""
    model = make_memory_model(tiny.make("mixtral"))
    removed = Remover(model, zero_rows=False).lowest([np.arange(100)[::-1]] * 3, 0.3)
    for mask in removed:
        assert mask.reshape(5, 20).sum(1).tolist() == [8] * 5  # 4 × round(6 / 4)
        assert mask.reshape(5, 20)[:, -8:].all()


def test_ties_of_weights_and_generation_options_stay(tmp_path):
    plain = tiny.make("gpt2")
    plain.generation_config.max_new_tokens = 7
    model = make_memory_model(plain)
    remover = Remover(model, zero_rows=False)
    save_model(remover.remove(remover.lowest([np.arange(22)] * 3, 0.3)), None, tmp_path / "pruned")
    auto = hf.AutoModelForCausalLM.from_pretrained(tmp_path / "pruned")
    assert auto.lm_head.weight is auto.transformer.wte.weight
    assert auto.generation_config.max_new_tokens == 7


@pytest.fixture(scope="module")
def planted(corpus, tokenizer, tmp_path_factory):
    """A ReLU model in a folder in half precision, with four dead memories a layer, and its study."""
    plain = make("opt")
    with torch.no_grad():
        for number, layer in enumerate(plain.model.decoder.layers):
            layer.fc1.bias += 3  # all others fire
            layer.fc1.bias[[2 + number, 5, 11, 17]] = -1e3
    folder = tmp_path_factory.mktemp("planted")
    plain.half().save_pretrained(folder / "model")
    tokenizer.save_pretrained(folder / "model")
    model = load(str(folder / "model"), device="cpu")
    return model, studied(model, corpus, folder / "study")


def test_removing_dead_memories_changes_nothing(planted, tmp_path):
    model, study = planted
    pruned = ffscope.prune(model, study.folder, tmp_path / "pruned", share=4 / 22, score="firing")
    assert [set(row) for row in pruned.removed] == [{2, 5, 11, 17}, {3, 5, 11, 17}, {4, 5, 11, 17}]
    assert pruned.after.perplexity == pytest.approx(pruned.before.perplexity, rel=1e-6)
    auto = hf.AutoModelForCausalLM.from_pretrained(tmp_path / "pruned", dtype=torch.float32).eval()
    for row in table(study, "sentences")[:20]:
        ids = torch.tensor([[BOS, *row["tokens"]]])
        with torch.no_grad():
            torch.testing.assert_close(auto(ids).logits, model.model(ids).logits, rtol=1e-5, atol=1e-5)


def test_a_written_model_has_a_record(planted, tmp_path):
    model, study = planted
    folder = tmp_path / "pruned"
    pruned = ffscope.prune(model, study.folder, folder, share=0.3, score="contribution", prune_prefixes=60)
    assert pruned == Pruned.read(folder)
    assert (pruned.score, pruned.share, pruned.replace) == ("contribution", 0.3, "zero")
    assert pruned.fingerprint == study.manifest["model"]["fingerprint"]
    assert pruned.seed == study.settings["seed"]
    assert pruned.error < 1e-5
    assert [len(row) for row in pruned.removed] == [7] * 3  # round(0.3 × 22)
    # Names map back: the value of a memory is that of its original.
    written = load(str(folder), device="cpu")
    assert written.memories == (15, 15, 15)
    original = pruned.original("L2.14")
    torch.testing.assert_close(written.values(2)[14], model.values(2)[original.memory], rtol=0, atol=0)
    with pytest.raises(
        ffscope.MemoryNameError, match="There is no memory 15 in layer 2 of the pruned model; it has 15"
    ):
        pruned.original("L2.15")
    # In the precision of the source; perplexities as of a plain model.
    saved = hf.AutoModelForCausalLM.from_pretrained(folder, dtype="auto")
    assert saved.dtype == torch.float16
    assert pruned.after.parameters == saved.num_parameters()
    assert pruned.after.bytes == 2 * saved.num_parameters()
    assert 0 < sum(file.stat().st_size for file in folder.glob("*.safetensors")) - pruned.after.bytes < 10_000
    text = PlainText(saved.float().eval(), study, 60)
    assert pruned.after.perplexity == pytest.approx(np.exp(text.losses().mean()), rel=1e-5)
    assert pruned.prefixes == len(text.losses())
    assert min(pruned.before.tokens_per_second, pruned.after.tokens_per_second) > 0
    assert not study.path(".pruned_model").exists()
    assert hf.AutoTokenizer.from_pretrained(folder).decode([7]) == model.tokenizer.decode([7])


def test_mean_contributions_are_rounded_to_the_precision_of_the_files(planted, tmp_path):
    model, study = planted
    options = {"share": 0.3, "score": "contribution", "replace": "mean"}
    pruned = ffscope.prune(model, study.folder, tmp_path / "pruned", **options)
    assert 1e-6 < pruned.error < 1e-2
    numbers = column(study, "memories", "mean").reshape(3, 22)
    edit = {f"L{layer}.{i}": float(numbers[layer][i]) for layer, row in enumerate(pruned.removed) for i in row}
    auto = hf.AutoModelForCausalLM.from_pretrained(tmp_path / "pruned", dtype=torch.float32).eval()
    ids = torch.tensor([[BOS, 7, 11, 30, 4, 25]])
    with torch.no_grad(), model.edit(set=edit):
        expected = model.model(ids).logits
    torch.testing.assert_close(auto(ids).logits, expected, rtol=1e-2, atol=1e-2)


def test_zeroed_rows_may_be_the_lowest_of_the_whole_model(planted, tmp_path):
    model, study = planted
    options = {"share": 0.3, "score": "contribution", "zero_rows": True, "ranking": "model"}
    pruned = ffscope.prune(model, study.folder, tmp_path / "pruned", **options)
    assert sum(map(len, pruned.removed)) == 20
    assert len(set(map(len, pruned.removed))) > 1
    written = load(str(tmp_path / "pruned"), device="cpu")
    assert written.memories == model.memories
    for layer, numbers in enumerate(pruned.removed):
        assert not written.values(layer)[list(numbers)].any()
    assert pruned.original("L1.20") == (1, 20)


def test_a_layer_may_lose_none_of_the_lowest_of_the_whole_model(planted, tmp_path):
    model, study = planted
    options = {"share": 0.03, "score": "contribution", "zero_rows": True, "ranking": "model"}
    pruned = ffscope.prune(model, study.folder, tmp_path / "pruned", **options)
    assert 0 in map(len, pruned.removed)
    assert sum(map(len, pruned.removed)) == 2
    written = load(str(tmp_path / "pruned"), device="cpu")
    assert [int((~written.values(layer).any(1)).sum()) for layer in range(3)] == list(map(len, pruned.removed))


def test_a_model_that_cannot_be_written_leaves_nothing(planted, tmp_path, monkeypatch):
    from ffscope.models import written as models_written
    from ffscope.pruning import written

    model, study = planted
    monkeypatch.setattr(written, "perplexity", lambda *_: 1 / 0)
    with pytest.raises(ZeroDivisionError):
        ffscope.prune(model, study.folder, tmp_path / "pruned", share=0.3, score="firing")
    assert not list(tmp_path.iterdir())
    monkeypatch.setattr(models_written, "relative_error", lambda *_: 0.1)
    with pytest.raises(ffscope.ProofError, match="found 1.0e-01. Nothing was kept"):
        ffscope.prune(model, study.folder, tmp_path / "pruned", share=0.3, score="firing")
    assert not list(tmp_path.iterdir())


def test_a_written_model_uses_the_scores_of_finished_curves(copied, tmp_path, monkeypatch):
    from ffscope.pruning import scored

    model, study = copied
    computed = []
    monkeypatch.setattr(
        scored, "sampled_text", lambda *arguments: computed.append(arguments) or sampled_text(*arguments)
    )
    options = {"share": 0.3, "prune_prefixes": 60}
    orders = {}
    for score in ("redundancy", "contribution"):
        for sentences in (20, 21):
            out = tmp_path / f"{score}-{sentences}"
            orders[score, sentences] = ffscope.prune(
                model, study.folder, out, score=score, prune_sentences=sentences, **options
            )
            assert len(computed) == sentences - 20
        computed.clear()
    study.path("pruning.parquet").unlink()
    for score in ("redundancy", "contribution"):
        again = ffscope.prune(model, study.folder, tmp_path / score, score=score, prune_sentences=20, **options)
        assert again.removed == orders[score, 20].removed
        assert computed
    computed.clear()
    ffscope.prune(model, study.folder, tmp_path / "effect", score="effect", **options)
    assert not computed


# --- the command ---


def call(*arguments):
    result = command_line.ffscope(*map(str, arguments))
    return result.returncode, " ".join(f"{result.stdout} {result.stderr}".split())


def test_the_command_measures_curves_and_writes_a_model(planted, tmp_path):
    model, study = planted
    folder = shutil.copytree(study.folder, tmp_path / "study")
    options = ["--study", folder, "--device", "cpu"]
    code, output = call("prune", model.source, *options, "--prune-prefixes", 30, "--shares", "0.3", "--layer-share", 0)
    assert code == 0, output
    assert "pruning.parquet, written in" in output
    assert {row["score"] for row in table(Study.open(folder), "pruning")} == {*SCORES} - {"effect", "effect_size"}
    assert {row["layer"] for row in table(Study.open(folder), "pruning")} == {None}
    written = ["--out", tmp_path / "pruned", "--share", 0.3, "--score", "redundancy"]
    code, output = call("prune", model.source, *options, *written)
    assert code == 0, output
    assert "21 of 66 memories removed: parameters" in output
    assert (tmp_path / "pruned" / RECORD).is_file()
    code, output = call("prune", model.source, *options, *written)
    assert code == 2
    assert "already exists. Name a new folder with --out." in output


def test_errors_say_what_to_do(opt, planted, corpus, tokenizer, tmp_path):
    model, study = planted
    with pytest.raises(StudyError, match="effect_size cannot be used: It needs effects.parquet. Run `ffscope effects"):
        analyse("prune", model, study.folder, scores="effect_size")
    with pytest.raises(StudyError, match="is a study of another model: .*with fingerprint"):
        analyse("prune", opt[1], study.folder)
    with pytest.raises(StudyError, match="no study|not a study|There is no"):
        analyse("prune", model, tmp_path / "none")
    bare = make_memory_model(make("opt").model, tokenizer)
    studied(bare, corpus, tmp_path / "bare")
    with pytest.raises(LensError, match="there is no loss"):
        analyse("prune", bare, tmp_path / "bare")
    with pytest.raises(LensError, match="there is no loss"):
        ffscope.prune(bare, tmp_path / "bare", tmp_path / "pruned", share=0.2, score="firing")
    short = write_corpus(tmp_path / "short.jsonl", documents=5)
    studied(model, short, tmp_path / "short")
    with pytest.raises(CorpusError, match="no held-out text.*--held-out FILE"):
        analyse("prune", model, tmp_path / "short")
    assert not (tmp_path / "short" / ".prune").exists()
    studied(model, corpus, tmp_path / "few", memories="0-9")
    with pytest.raises(StudyError, match="redundancy cannot be used: .* this study searched 30 of 66"):
        analyse("prune", model, tmp_path / "few", scores="redundancy")
    with pytest.raises(GradientError, match="--replace mean needs the mean coefficient of every memory"):
        analyse("prune", model, tmp_path / "few", replace="mean")
    partial = analyse("prune", model, tmp_path / "few", **OPTIONS)
    assert table(partial, "redundancy") == []
    assert {row["score"] for row in table(partial, "pruning")} == {"contribution", "squared", "random"}


def test_quantized_weights_are_refused(planted, tmp_path):
    model, study = planted
    folder = shutil.copytree(model.source, tmp_path / "model")
    config = json.loads((folder / "config.json").read_text())
    config["quantization_config"] = {"quant_method": "bitsandbytes", "load_in_8bit": True}
    (folder / "config.json").write_text(json.dumps(config))
    code, output = call("prune", folder, "--study", study.folder, "--share", 0.2, "--out", tmp_path / "pruned")
    assert code == 2
    assert "are quantized, so keys and values cannot be read from them" in output


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"scores": "effect,fame"}, "There is no score 'fame'. The scores are: effect, effect_size"),
        ({"shares": "0.1,x"}, "Expected numbers above 0 and below 1"),
        ({"shares": "1"}, "Expected numbers above 0 and below 1"),
        ({"shares": ""}, "Expected numbers above 0 and below 1"),
        ({"random_seeds": 0}, "random_seeds is 0. Expected 1 to 100"),
        ({"replace": "median"}, "Expected one of zero, mean"),
        ({"layer_share": 1.0}, "layer_share is 1.0. Expected 0 to 0.99"),
    ],
)
def test_options_out_of_range(options, message):
    with pytest.raises(InputError, match=message):
        PruneOptions(**options)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"share": 1.0}, "share is 1.0. Expected a number above 0 and below 1"),
        ({"share": 0.0}, "share is 0.0. Expected a number above 0 and below 1"),
        ({"share": 0.2}, "--share and --out belong together"),
        ({"out": "x"}, "--share and --out belong together"),
        ({"out": "x", "share": 0.2, "score": "fame"}, "Expected one of effect"),
        ({"out": "x", "share": 0.2, "ranking": "model"}, "Add --zero-rows, or leave out --ranking"),
    ],
)
def test_options_of_a_written_model_out_of_range(options, message):
    with pytest.raises(InputError, match=message):
        PrunedModelOptions(**options)


def test_a_share_that_leaves_nothing(planted, tmp_path):
    model, study = planted
    with pytest.raises(InputError, match="removes all of the 22 memories that ffn_dim stands for"):
        ffscope.prune(model, study.folder, tmp_path / "pruned", share=0.99, score="firing")


@pytest.mark.parametrize("record", [None, "", "{}", '{"before": {}, "after": {}}'])
def test_a_record_that_is_missing_or_of_another_version(record, tmp_path):
    if record is not None:
        (tmp_path / RECORD).write_text(record)
    with pytest.raises(SourceError, match="was not written by this version of `ffscope prune`"):
        Pruned.read(tmp_path)
