"""The effects of memories, compared with plain transformers models whose value rows are set to zero or differentiated."""

import copy
import json
import shutil
from collections import Counter

import numpy as np
import pyarrow.parquet as pq
import pytest
import torch

import tiny
from ffscope.analysis import effects as effects_stage
from ffscope.effects.ablation import Ablation, choose
from ffscope.effects.baseline import Baselines
from ffscope.effects.estimate import Estimator
from ffscope.effects.exact import select
from ffscope.effects.texts import Batch, batches_by_prediction
from ffscope.errors import GradientError, InputError, LensError
from ffscope.models.gradient_pass import GradientPass
from ffscope.models.info import describe
from ffscope.models.loading import make_memory_model
from ffscope.options.corpus import CorpusOptions
from ffscope.options.search import SearchOptions
from ffscope.pipeline import analyse, triggers
from ffscope.search.example_pass import draw_examples
from ffscope.search.passes import by_similar_length
from ffscope.stages.effects import EffectOptions
from ffscope.study.folder import Study
from plain import DECODER_START, make
from studies import write_corpus

BOS = 2
TOKENS = np.array([[7, 11, 30, 4, 25, 16], [9, 8, 41, 66, 12, 5]])
BATCH = Batch(np.array([3, 8]), TOKENS, np.array([-1, -1]), np.array([20, 31]))
FAMILIES = (
    *("gpt2", "opt", "opt post-norm", "llama", "gpt_neox", "gemma2"),
    *("granite", "bert", "t5", "adaptive_lm", "falcon", "mixtral"),
)
# The output projections.
VALUES = {
    "gpt2": "transformer.h.{}.mlp.c_proj",
    "opt": "model.decoder.layers.{}.fc2",
    "opt post-norm": "model.decoder.layers.{}.fc2",
    "llama": "model.layers.{}.mlp.down_proj",
    "gpt_neox": "gpt_neox.layers.{}.mlp.dense_4h_to_h",
    "gemma2": "model.layers.{}.mlp.down_proj",
    "granite": "model.layers.{}.mlp.down_proj",
    "falcon": "transformer.h.{}.mlp.dense_4h_to_h",
    "bert": "bert.encoder.layer.{}.output.dense",
    "adaptive_lm": "layers.{}.fc2",
}


class PlainModel:
    """A transformers model alone."""

    def __init__(self, name):
        self.name, self.model = name, make(name) if name != "falcon" else tiny.make(name)

    def weight(self, layer):
        """The weight of a layer's output projection."""
        if self.name == "t5":
            path = f"encoder.block.{layer}.layer.1" if layer < 3 else f"decoder.block.{layer - 3}.layer.2"
            return self.model.get_submodule(f"{path}.DenseReluDense.wo").weight
        if self.name == "mixtral":
            return self.model.get_submodule(f"model.layers.{layer}.mlp.experts").down_proj
        return self.model.get_submodule(VALUES[self.name].format(layer)).weight

    def value_rows(self, weight):
        """The value rows in a weight, memory × hidden; a list for experts. They share its memory."""
        if self.name == "mixtral":
            return [row for expert in weight for row in expert.T]
        return weight if self.name == "gpt2" else weight.T

    def log_probs(self):
        """The log-probabilities at the examples."""
        ids = {"input_ids": torch.tensor([[BOS, *row] for row in TOKENS.tolist()])}
        if self.name in DECODER_START:
            ids["decoder_input_ids"] = torch.tensor([[DECODER_START[self.name], *row] for row in TOKENS.tolist()])
        return self.model(**ids).logits[:, -1].log_softmax(-1)

    def losses(self):
        return -self.log_probs()[[0, 1], torch.from_numpy(BATCH.targets)]

    @torch.no_grad()
    def exact(self, layer, memory):
        """The losses without the memory's value row, minus those with it; and the same of the prediction's log-probability."""
        before, row = self.log_probs(), self.value_rows(self.weight(layer))[memory]
        kept, predicted = row.clone(), before.argmax(-1)
        row.zero_()
        after = self.log_probs()
        row.copy_(kept)
        at = [0, 1], torch.from_numpy(BATCH.targets)
        return before[at] - after[at], (after - before)[[0, 1], predicted]

    def first_order(self, layer):
        """The derivatives along the removal of every value row, example × memory: of the losses, and of the predictions."""
        weight, log_probs = self.weight(layer), self.log_probs()
        predictions = log_probs.max(-1).values
        losses = -log_probs[[0, 1], torch.from_numpy(BATCH.targets)]
        return [torch.stack([self._along_removal(weight, number) for number in row]) for row in (losses, predictions)]

    def _along_removal(self, weight, loss):
        (gradient,) = torch.autograd.grad(loss, weight, retain_graph=True)
        rows = zip(self.value_rows(weight.detach()), self.value_rows(gradient), strict=True)
        return torch.stack([-(value * row).sum() for value, row in rows])


def memory_model(plain, tokenizer):
    return make_memory_model(plain.model, tokenizer)


def estimates(model, baselines=None, batch=BATCH, **options):
    rows = {}

    def add(quantity, layer, memories, numbers):
        rows.setdefault((quantity, layer), {})[memories.start] = numbers

    Estimator(model, baselines or Baselines(), bos=BOS, **options).run(batch, add)
    return {at: torch.cat([parts[start] for start in sorted(parts)], 1) for at, parts in rows.items()}


@pytest.mark.parametrize("name", FAMILIES)
def test_exact_effects_are_those_of_a_plain_model_without_the_value_row(name, tokenizer):
    plain = PlainModel(name)
    model = memory_model(plain, tokenizer)
    chosen = {
        layer: choose(model, layer, torch.tensor([0, 3, model.memories[layer] - 1]), torch.zeros(3))
        for layer in range(model.layers)
    }
    ablation = Ablation(model, BATCH.inputs(model, BOS), BATCH.places(model), chosen)
    for layer, (memories, *_) in chosen.items():
        effects = ablation.effects(layer, at_once=4)
        for column, memory in enumerate(memories.tolist()):
            loss, prediction = plain.exact(layer, memory)
            torch.testing.assert_close(effects.loss[:, column], loss, rtol=1e-5, atol=1e-5)
            torch.testing.assert_close(effects.prediction[:, column], prediction, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("name", FAMILIES)
def test_estimates_are_the_derivatives_of_a_plain_model(name, tokenizer):
    plain = PlainModel(name)
    rows = estimates(memory_model(plain, tokenizer))
    for layer in range(len([quantity for quantity, _ in rows if quantity == "effect"])):
        for quantity, expected in zip(("effect", "prediction"), plain.first_order(layer), strict=True):
            torch.testing.assert_close(rows[quantity, layer], expected, rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize("steps", [1, 3])
def test_one_backward_pass_is_enough_where_all_predictions_are_right(steps, tokenizer, monkeypatch):
    """The prediction's log-probability does not depend on the target, and is minus the loss if it is the target."""
    plain = PlainModel("opt")
    model, passes = memory_model(plain, tokenizer), []
    backward = GradientPass.backward
    monkeypatch.setattr(GradientPass, "backward", lambda *args, **options: passes.append(backward(*args, **options)))
    both_wrong = estimates(model, steps=steps)
    predictions = plain.log_probs().argmax(-1).numpy()
    assert (predictions != BATCH.targets).all()
    in_two, in_one = len(passes), 1 if steps == 1 else 1 + steps * model.layers
    assert in_two == (2 if steps == 1 else 1 + 2 * steps * model.layers)
    passes.clear()
    right = estimates(model, batch=BATCH._replace(targets=predictions), steps=steps)
    assert len(passes) == in_one
    for layer in range(model.layers):
        torch.testing.assert_close(right["effect", layer], -right["prediction", layer], rtol=0, atol=0)
        torch.testing.assert_close(right["prediction", layer], both_wrong["prediction", layer], rtol=1e-4, atol=1e-6)
    passes.clear()
    mixed = BATCH._replace(targets=np.array([predictions[0], BATCH.targets[1]]))
    one_right = estimates(model, batch=mixed, steps=steps)
    assert len(passes) == in_two
    for layer in range(model.layers):
        expected = torch.stack([right["effect", layer][0], both_wrong["effect", layer][1]])
        torch.testing.assert_close(one_right["effect", layer], expected, rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize("options", [{}, {"steps": 2}, {"baselines": "mean"}], ids=["first order", "steps", "mean"])
@pytest.mark.parametrize("name", sorted({*FAMILIES} - {"bert", "t5"}))
def test_texts_of_different_lengths_share_a_batch(name, options, tokenizer):
    """What follows a prefix changes nothing in a causal model, so it may be padded."""
    model = memory_model(PlainModel(name), tokenizer)
    if options.get("baselines"):
        generator = np.random.default_rng(0)
        means = tuple(generator.normal(size=count).astype(np.float32) for count in model.memories)
        options = {"baselines": Baselines(means)}
    padded = TOKENS.copy()
    padded[0, 4:] = padded[0, 3]
    together = estimates(model, batch=BATCH._replace(tokens=padded, positions=np.array([-3, -1])), **options)
    alone = [
        estimates(model, batch=Batch(*(array[row : row + 1] for array in BATCH._replace(tokens=tokens))), **options)
        for row, tokens in enumerate((TOKENS[:, :4], TOKENS))
    ]
    assert together.keys() == alone[0].keys() == alone[1].keys()
    for at, numbers in together.items():
        torch.testing.assert_close(numbers, torch.cat([rows[at] for rows in alone]), rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize("tokens", [1, 20, 300, 10**6])
def test_batches_of_similar_lengths(tokens):
    lengths = np.random.default_rng(0).integers(1, 70, size=500)
    batches = by_similar_length(lengths, tokens=tokens, causal=True)
    assert sorted(np.concatenate(batches).tolist()) == list(range(500))
    longest_of_each = [lengths[batch].max() for batch in batches]
    assert longest_of_each == sorted(longest_of_each, reverse=True)
    for batch in batches:
        longest = lengths[batch].max()
        assert len(batch) == 1 or len(batch) * longest <= tokens
        assert lengths[batch].min() >= 0.75 * longest
    assert tokens < 10**6 or len(batches) <= 15
    assert by_similar_length(lengths[:0], tokens=tokens, causal=True) == []


# --- the stage ---

OPTIONS = {"examples": 24, "effect_memories": 6, "exact_examples": 9, "group_examples": 12}


@pytest.fixture(scope="module")
def corpus(tmp_path_factory):
    return write_corpus(tmp_path_factory.mktemp("corpus") / "text.jsonl", documents=60)


def study_of(model, corpus, folder, **options):
    study = triggers(model, CorpusOptions(str(corpus), max_tokens=10), folder, search=SearchOptions(top=4))
    return analyse("effects", model, study.folder, **{**OPTIONS, **options})


def table(study, name):
    return pq.read_table(study.path(f"{name}.parquet")).to_pylist()


class PlainStudy:
    """The losses of a plain model at every example of a study, one text per pass."""

    def __init__(self, plain, study):
        self.plain, self.study = plain, study
        sentences = {row["sentence"]: row for row in table(study, "sentences")}
        self.texts = [
            (sentences[row["sentence"]]["tokens"][: row["position"] + 1], row["target"])
            for row in table(study, "examples")
        ]

    def log_probs(self, number):
        tokens, _ = self.texts[number]
        return self.plain.model(input_ids=torch.tensor([[BOS, *tokens]])).logits[0, -1].log_softmax(-1)

    def loss(self, number):
        return -self.log_probs(number)[self.texts[number][1]]

    @torch.no_grad()
    def loss_without(self, memories, number):
        """The loss without the value rows of memories, (layer, memory) pairs."""
        rows = [self.plain.value_rows(self.plain.weight(layer))[memory] for layer, memory in memories]
        kept = [row.clone() for row in rows]
        for row in rows:
            row.zero_()
        loss = self.loss(number).item()
        for row, values in zip(rows, kept, strict=True):
            row.copy_(values)
        return loss


@pytest.mark.parametrize("name", ["gpt2", "llama"])
def test_tables_are_means_over_the_examples_of_a_plain_model(name, corpus, tokenizer, tmp_path):
    plain = PlainModel(name)
    study = study_of(memory_model(plain, tokenizer), corpus, tmp_path / "study")
    texts = PlainStudy(plain, study)
    by_layer = [
        torch.stack([plain._along_removal(plain.weight(layer), texts.loss(n)) for n in range(24)]).double()
        for layer in range(3)
    ]
    rows = table(study, "effects")
    assert [(row["layer"], row["memory"]) for row in rows] == [(layer, i) for layer in range(3) for i in range(22)]
    for row in rows:
        changes = by_layer[row["layer"]][:, row["memory"]]
        width = 1.959964 * changes.std().item() / 24**0.5
        assert row["effect"] == near(changes.mean())
        assert (row["effect_low"], row["effect_high"]) == (near(changes.mean() - width), near(changes.mean() + width))
        assert row["effect_size"] == near(changes.abs().mean())
        order = changes.argsort(descending=True)
        assert row["helped_examples"] == [int(n) for n in order[:5] if changes[n] > 0]
        assert row["hurt_examples"] == [int(n) for n in order.flip(0)[:5] if changes[n] < 0]
        assert row["hurt_changes"] == [near(-changes[n]) for n in order.flip(0)[:5] if changes[n] < 0]
    sample = np.random.default_rng([0, *b"exact"]).permutation(24)[:9].tolist()
    intact = {n: texts.loss(n).item() for n in range(24)}
    for row in table(study, "exact_effects"):
        place = row["layer"], row["memory"]
        changes = [texts.loss_without([place], n) - intact[n] for n in sample]
        assert row["effect"] == near(np.mean(changes), abs=1e-6)
        assert row["effect_size"] == near(np.mean(np.abs(changes)), abs=1e-6)
        assert row["effect_square"] == near(np.mean(np.square(changes)), abs=1e-7)
        assert row["estimate"] == near(by_layer[place[0]][sample, place[1]].mean(), abs=1e-6)


def test_examples_that_are_predicted_rightly_have_batches_of_their_own(corpus, tokenizer, tmp_path):
    model = memory_model(PlainModel("gpt2"), tokenizer)
    study = study_of(model, corpus, tmp_path / "study", effect_memories=0)
    rows = pq.read_table(study.path("examples.parquet"))
    predictions = rows["target"].to_numpy().copy()
    predictions[::3] += 1
    column = rows.schema.get_field_index("prediction")
    pq.write_table(rows.set_column(column, "prediction", [predictions]), study.path("examples.parquet"))
    info, examples = describe(model), draw_examples(study, 24, 0)
    numbers = [batch.examples for batch in batches_by_prediction(study, info, examples)]
    assert sorted(np.concatenate(numbers).tolist()) == list(range(24))
    wrong = [set((batch % 3 == 0).tolist()) for batch in numbers]
    assert all(len(kinds) == 1 for kinds in wrong)
    assert wrong == sorted(wrong, key=sum)


def test_groups_are_taken_away_together(corpus, tokenizer, tmp_path):
    plain = PlainModel("gpt2")
    study = study_of(memory_model(plain, tokenizer), corpus, tmp_path / "study", least="30")
    texts = PlainStudy(plain, study)
    sizes = {(row["layer"], row["memory"]): row["effect_size"] for row in table(study, "effects")}
    least = sorted(sizes, key=lambda at: (sizes[at], at))[:20]  # 30 % of 66
    sample = np.random.default_rng([0, *b"exact"]).permutation(24)[:12].tolist()
    changes = [texts.loss_without(least, n) - texts.loss(n).item() for n in sample]
    groups = {(row["group"], row["random"]): row for row in table(study, "effect_groups")}
    assert groups["least important 30 %", False]["effect"] == near(np.mean(changes), abs=1e-6)
    assert groups["least important 30 %", False]["memories"] == groups["least important 30 %", True]["memories"] == 20
    dead = [at for at, size in sizes.items() if at in never_fires(study)]
    assert dead
    assert groups["dead", False]["memories"] == len(dead)
    assert {name for name, _ in groups} == {"dead", "least important 30 %", "most important 1 %"}


def never_fires(study):
    return {(row["layer"], row["memory"]) for row in table(study, "memories") if row["maximum"] <= 0}


def near(number, abs=1e-7):
    return pytest.approx(float(number), rel=1e-4, abs=abs)


def test_the_integral_adds_up_to_the_effect_of_a_whole_layer(tokenizer):
    """Which is how much the loss changes between the ends of the path; the first-order estimates do not."""
    plain = PlainModel("gpt2")
    model = memory_model(plain, tokenizer)
    rows = estimates(model, steps=100)
    first_order, errors = estimates(model), []
    with torch.no_grad():
        before = plain.losses()
        for layer in range(3):
            kept = plain.weight(layer).clone()
            plain.weight(layer).zero_()
            change = plain.losses() - before
            plain.weight(layer).copy_(kept)
            torch.testing.assert_close(rows["effect", layer].sum(1), change, rtol=2e-3, atol=2e-3)
            errors.append((first_order["effect", layer].sum(1) - change).abs().max())
    assert max(errors) > 0.05


def test_the_mean_as_baseline(tokenizer):
    """The product with what is left when the mean is taken; exact effects set the coefficient to it."""
    plain = PlainModel("llama")
    model = memory_model(plain, tokenizer)
    means = tuple(np.linspace(-1, 1, count, dtype=np.float32) for count in model.memories)
    rows = estimates(model, Baselines(means))
    zero = estimates(model)
    inputs = BATCH.inputs(model, BOS)
    for layer in (0, 2):
        for memory in (1, 5):
            with model.edit(set={f"L{layer}.{memory}": float(means[layer][memory])}):
                after = -model.trace(inputs).logits[:, -1].log_softmax(-1)[[0, 1], torch.from_numpy(BATCH.targets)]
            before = plain.losses().detach()
            chosen = {layer: choose(model, layer, torch.tensor([memory]), torch.from_numpy(means[layer][[memory]]))}
            effects = Ablation(model, inputs, BATCH.places(model), chosen).effects(layer, at_once=8)
            torch.testing.assert_close(effects.loss[:, 0], after - before, rtol=1e-5, atol=1e-5)
    # m → b is -m plus b times the summed gradient: linear in b.
    half = estimates(model, Baselines(tuple(mean / 2 for mean in means)))
    for at in (("effect", 0), ("effect", 2)):
        torch.testing.assert_close(rows[at] - zero[at], 2 * (half[at] - zero[at]), rtol=1e-3, atol=1e-5)


@pytest.mark.parametrize("name", ["gpt2", "llama", "t5", "adaptive_lm"])
def test_direct_parts_add_up_to_the_gradient_at_the_last_output(name, tokenizer):
    """In the last layer an effect has no indirect part, so it is the sum of its two direct ones."""
    model = memory_model(PlainModel(name), tokenizer)
    rows = estimates(model)
    last = model.layers - 1
    at_example = rows["direct", last] + rows["scale", last]
    alone = {quantity: rows[quantity, last] for quantity in ("effect", "contribution")}
    # Other positions do not reach the example from the last layer.
    torch.testing.assert_close(at_example, alone["effect"], rtol=1e-3, atol=1e-5)


def test_the_direct_logit_is_what_a_memory_adds_with_the_norm_held(tokenizer):
    plain = PlainModel("gpt2")
    model = memory_model(plain, tokenizer)
    rows = estimates(model)
    trace = model.trace(BATCH.inputs(model, BOS))
    norm, state = plain.model.transformer.ln_f, trace.output[-1][:, -1]
    scale = 1 / (state.var(-1, unbiased=False) + norm.eps).sqrt()
    unembedding = plain.model.transformer.wte.weight[torch.from_numpy(BATCH.targets)]
    for layer in range(3):
        values = plain.weight(layer)
        centred = (values - values.mean(-1, keepdim=True)) * norm.weight
        logits = trace.coefficients[layer][:, -1] * (unembedding @ centred.T) * scale[:, None]
        torch.testing.assert_close(rows["logit", layer], logits, rtol=1e-3, atol=1e-5)


# --- planted memories, and models without effects ---


def test_a_planted_memory_comes_first_and_an_idle_one_has_no_effect(corpus, tokenizer, tmp_path):
    plain = PlainModel("opt")
    layer = plain.model.model.decoder.layers[1]
    with torch.no_grad():
        layer.fc1.weight[7], layer.fc1.bias[7] = 0.0, 9.0  # fires everywhere
        layer.fc2.weight[:, 7] *= 4
        layer.fc1.weight[5], layer.fc1.bias[5] = 0.0, -1.0  # never fires
        layer.fc2.weight[:, 9] = 0  # writes nothing
    study = study_of(memory_model(plain, tokenizer), corpus, tmp_path / "study", effect_memories=66)
    rows = {(row["layer"], row["memory"]): row for row in table(study, "effects")}
    assert max(rows, key=lambda at: rows[at]["effect_size"]) == (1, 7)
    for idle in (5, 9):
        row = rows[1, idle]
        assert row["effect"] == row["effect_size"] == row["effect_on_prediction"] == row["direct"] == 0
        assert row["helped_examples"] == row["hurt_examples"] == []
    exact = {(row["layer"], row["memory"]): row for row in table(study, "exact_effects")}
    assert max(exact, key=lambda at: exact[at]["effect_square"]) == (1, 7)
    assert exact[1, 5]["effect"] == exact[1, 9]["effect"] == 0
    dead = next(row for row in table(study, "effect_groups") if row["group"] == "dead" and not row["random"])
    assert dead["effect"] == 0


def test_layers_below_a_memory_run_once(tokenizer):
    """For all its memories and those above: a count of the passes of every block."""
    model = memory_model(PlainModel("opt"), tokenizer)
    counts = [0] * 3
    chosen = {layer: choose(model, layer, torch.arange(4), torch.full((4,), 0.5)) for layer in range(3)}

    def counter(layer):
        return lambda *_: counts.__setitem__(layer, counts[layer] + 1)

    hooks = [model.layer(layer).block.fc1.register_forward_hook(counter(layer)) for layer in range(3)]
    ablation = Ablation(model, BATCH.inputs(model, BOS), BATCH.places(model), chosen)
    for layer in range(3):
        ablation.effects(layer, at_once=1)
    for hook in hooks:
        hook.remove()
    assert counts == [1 + 8, 1 + 16, 1 + 24]  # two texts, four memories a layer
    assert (ablation.runs, ablation.layer_passes) == (24, 2 * 3 + 8 * (3 + 2 + 1))


def test_a_stopped_stage_resumes_with_what_it_has(corpus, tokenizer, tmp_path, monkeypatch):
    model = memory_model(PlainModel("llama"), tokenizer)
    whole = study_of(model, corpus, tmp_path / "whole")
    batches, stop_after = [], [4]
    original = Estimator.run

    def stopping(self, batch, add):
        if len(batches) == stop_after[0]:
            raise KeyboardInterrupt
        batches.append(batch)
        original(self, batch, add)

    monkeypatch.setattr(Estimator, "run", stopping)
    with pytest.raises(KeyboardInterrupt):
        study_of(model, corpus, tmp_path / "study")
    batches.clear()
    stop_after[0] = 10**6
    study = analyse("effects", model, tmp_path / "study", **OPTIONS)
    assert len(batches) > 0
    for name in ("effects", "exact_effects", "effect_groups"):
        assert table(study, name) == table(whole, name)
    assert not (study.folder / ".effects").exists()
    batches.clear()
    analyse("effects", model, study.folder, **OPTIONS)
    assert not batches


def test_weights_and_hooks_are_left_as_they_were(tokenizer):
    model = memory_model(PlainModel("gpt2"), tokenizer)
    model.model.transformer.wte.weight.requires_grad_(False)
    before = {name: weight.requires_grad for name, weight in model.model.named_parameters()}
    estimates(model)
    assert before == {name: weight.requires_grad for name, weight in model.model.named_parameters()}
    assert all(weight.grad is None for weight in model.model.parameters())
    hooks = [module for module in model.model.modules() if module._forward_hooks or module._forward_pre_hooks]
    assert not hooks


class Rounded(torch.nn.Linear):
    """A projection without a gradient, as some quantized ones are."""

    def forward(self, x):
        return super().forward(x.detach())


def test_a_model_that_cannot_be_differentiated_gets_a_sentence(corpus, tokenizer, tmp_path):
    plain = PlainModel("opt")
    for layer in plain.model.model.decoder.layers:
        layer.fc1.__class__ = Rounded
    model = memory_model(plain, tokenizer)
    with pytest.raises(
        GradientError, match="cannot be differentiated.*found: a Rounded through which no gradient passes"
    ):
        study_of(model, corpus, tmp_path / "study")
    study = Study.open(tmp_path / "study")
    assert not study.has("effects")
    assert not study.path("effects.parquet").exists()


def test_a_model_without_a_head_gets_a_sentence(corpus, tokenizer, tmp_path):
    model = make_memory_model(PlainModel("opt").model.model, tokenizer)
    with pytest.raises(LensError, match="there is no loss"):
        study_of(model, corpus, tmp_path / "study")


def test_a_masked_model_predicts_the_masked_token(corpus, tokenizer, tmp_path):
    plain = PlainModel("bert")
    with pytest.raises(GradientError, match="no mask token"):
        study_of(memory_model(plain, tokenizer), corpus, tmp_path / "unmasked")
    masking = copy.deepcopy(tokenizer)
    masking.mask_token = "<unk>"
    study = study_of(make_memory_model(plain.model, masking), corpus, tmp_path / "study", effect_memories=0)
    sentences = {row["sentence"]: row["tokens"] for row in table(study, "sentences")}
    changes = []
    for row in table(study, "examples"):
        tokens, at = list(sentences[row["sentence"]]), row["position"]
        target, tokens[at] = tokens[at], masking.mask_token_id
        loss = -plain.model(input_ids=torch.tensor([[BOS, *tokens]])).logits[0, at + 1].log_softmax(-1)[target]
        changes.append(plain._along_removal(plain.weight(1), loss))
    for row in table(study, "effects"):
        if row["layer"] == 1:
            assert row["effect"] == near(torch.stack(changes).mean(0)[row["memory"]], abs=1e-6)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"least": "10,x"}, "Expected percentages above 0 and below 100"),
        ({"least": "100"}, "Expected percentages above 0 and below 100"),
        ({"steps": 0}, "steps is 0. Expected 1 to 100"),
        ({"baseline": "median"}, "Expected one of zero, mean"),
        ({"exact_examples": 1}, "Expected at least 2"),
    ],
)
def test_options_out_of_range(options, message):
    with pytest.raises(InputError, match=message):
        EffectOptions(**options)


def test_the_mean_needs_every_memory(corpus, tokenizer, tmp_path):
    model = memory_model(PlainModel("gpt2"), tokenizer)
    search = SearchOptions(top=4, memories="0-9")
    study = triggers(model, CorpusOptions(str(corpus), max_tokens=10), tmp_path / "study", search=search)
    with pytest.raises(GradientError, match="this study searched 30 of 66"):
        analyse("effects", model, study.folder, baseline="mean", **OPTIONS)


def test_a_selection_is_filled_at_random():
    """Where fewer memories have an effect than a third asks for; of few, at least one is drawn at random."""
    sizes = np.zeros(20)
    sizes[[3, 5, 11, 17]] = 4, 3, 2, 1
    selection = select([sizes], 12, seed=0)
    assert Counter(selection.kinds[0]) == {"strongest": 4, "random": 8}
    assert selection.memories[0].tolist() == sorted(set(selection.memories[0].tolist()))
    assert dict(zip(selection.memories[0].tolist(), selection.kinds[0], strict=True))[3] == "strongest"
    assert Counter(select([np.arange(20.0)], 4, seed=0).kinds[0]) == {"strongest": 1, "weakest": 1, "random": 2}
    assert Counter(select([np.arange(20.0)], 99, seed=0).kinds[0]) == {"strongest": 19, "random": 1}


def test_patterns_that_come_before_a_resumed_stage_change_its_groups(corpus, tokenizer, tmp_path, monkeypatch):
    model = memory_model(PlainModel("llama"), tokenizer)
    study = triggers(model, CorpusOptions(str(corpus), max_tokens=10), tmp_path / "study", search=SearchOptions(top=4))
    write = effects_stage._write

    def stopping(study, file, columns):
        if file == "effect_groups.parquet":
            raise KeyboardInterrupt  # all shards are finished
        write(study, file, columns)

    monkeypatch.setattr(effects_stage, "_write", stopping)
    with pytest.raises(KeyboardInterrupt):
        analyse("effects", model, study.folder, **OPTIONS)
    monkeypatch.setattr(effects_stage, "_write", write)
    analyse("patterns", model, study.folder, encoder="model")
    resumed = analyse("effects", model, study.folder, **OPTIONS)
    whole = analyse("patterns", model, study_without_effects(study, tmp_path), encoder="model")
    assert table(resumed, "effect_groups") == table(analyse("effects", model, whole.folder, **OPTIONS), "effect_groups")


def study_without_effects(study, folder):
    """A copy of a study as it was after the search."""
    copied = shutil.copytree(study.folder, folder / "copied")
    for name in ("effects", "exact_effects", "effect_groups", "patterns"):
        (copied / f"{name}.parquet").unlink(missing_ok=True)
    manifest = json.loads((copied / "study.json").read_text())
    manifest["stages"] = {
        name: entry for name, entry in manifest["stages"].items() if name not in ("effects", "patterns")
    }
    (copied / "study.json").write_text(json.dumps(manifest))
    return copied
