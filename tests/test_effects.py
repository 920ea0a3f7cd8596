"""The effects of memories, compared with plain transformers models whose value rows are set to zero or differentiated."""

import numpy as np
import pytest
import torch

import tiny
from ffscope.effects.ablation import Ablation, Chosen
from ffscope.effects.baseline import Baselines
from ffscope.effects.estimate import Estimator
from ffscope.effects.texts import Batch
from ffscope.models.loading import make_memory_model
from plain import DECODER_START, make

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
        rows.setdefault((quantity, layer), []).append((memories.start, numbers))

    Estimator(model, baselines or Baselines(), bos=BOS, **options).run(BATCH, add)
    return {at: torch.cat([numbers for _, numbers in sorted(parts)], 1) for at, parts in rows.items()}


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
