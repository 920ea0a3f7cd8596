"""The effects of memories, compared with plain transformers models whose value rows are set to zero or differentiated."""

import numpy as np
import pyarrow.parquet as pq
import pytest
import torch

import tiny
from ffscope.effects.ablation import Ablation, Chosen
from ffscope.effects.baseline import Baselines
from ffscope.effects.estimate import Estimator
from ffscope.effects.texts import Batch
from ffscope.models.loading import make_memory_model
from ffscope.options.corpus import CorpusOptions
from ffscope.options.search import SearchOptions
from ffscope.pipeline import analyse, triggers
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
        """The derivative of each loss along the removal of every value row: example × memory."""
        weight = self.weight(layer)
        return torch.stack([self._along_removal(weight, loss) for loss in self.losses()])

    def _along_removal(self, weight, loss):
        (gradient,) = torch.autograd.grad(loss, weight, retain_graph=True)
        rows = zip(self.value_rows(weight.detach()), self.value_rows(gradient), strict=True)
        return torch.stack([-(value * row).sum() for value, row in rows])


def memory_model(plain, tokenizer):
    return make_memory_model(plain.model, tokenizer)


def estimates(model, baselines=None, **options):
    rows = {}

    def add(quantity, layer, memories, numbers):
        rows.setdefault((quantity, layer), {})[memories.start] = numbers

    Estimator(model, baselines or Baselines(), bos=BOS, **options).run(BATCH, add)
    return {at: torch.cat([parts[start] for start in sorted(parts)], 1) for at, parts in rows.items()}


@pytest.mark.parametrize("name", FAMILIES)
def test_exact_effects_are_those_of_a_plain_model_without_the_value_row(name, tokenizer):
    plain = PlainModel(name)
    model = memory_model(plain, tokenizer)
    chosen = {
        layer: Chosen(torch.tensor([0, 3, model.memories[layer] - 1]), torch.zeros(3)) for layer in range(model.layers)
    }
    ablation = Ablation(model, BATCH.inputs(model, BOS), BATCH.places(model), chosen)
    for layer, (memories, _) in chosen.items():
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
        torch.testing.assert_close(rows["effect", layer], plain.first_order(layer), rtol=1e-4, atol=1e-6)


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
        assert row["effect_square"] == near(np.mean(np.square(changes)), abs=1e-7)
        assert row["estimate"] == near(by_layer[place[0]][sample, place[1]].mean(), abs=1e-6)


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
            chosen = {layer: Chosen(torch.tensor([memory]), torch.from_numpy(means[layer][[memory]]))}
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
