"""How the prediction is refined from layer to layer, and which component determines each layer's output."""

from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import torch
from torch import Tensor

from ffscope.axes import Array, Float, Int
from ffscope.cases import case
from ffscope.models.lenses.base import Lens
from ffscope.models.memory_model import MemoryModel
from ffscope.models.ranking import probabilities_of, rank_of, top
from ffscope.options.analysis import ExampleOptions, LensOptions
from ffscope.search.example_pass import Observer, View
from ffscope.stages.stage import Work
from ffscope.study.folder import Study
from ffscope.study.schemas import SCHEMAS

SAMPLED = 100  # composition cases of the last layer that are sampled
_PAIRS = 10_000  # random pairs of tokens
RELATED = 0.95  # quantile of their similarity above which two tokens are related


class Refinement(Observer):
    """Computes the rows of refinement.parquet."""

    stage = "refinement"

    def __init__(self, model: MemoryModel, *, lens: str, count: int) -> None:
        self.lens = model.lens(lens)
        self.settings = {"lens": lens, "examples": count}

    def rows(self, view: View) -> dict[str, Any]:
        layers = [self._layer(view, layer) for layer in range(view.model.layers)]
        return {name: np.concatenate([columns[name] for columns in layers]) for name in layers[0]}

    def close(self, study: Study) -> dict[str, Any]:
        """Write last_layer.parquet; returns the similarity above which tokens are related, for study.json."""
        return {"related_above": write_last_layer(study, self.lens)}

    def _layer(self, view: View, layer: int) -> dict[str, Any]:
        prediction, ff_top = view.prediction, view.ff_top(layer)
        assert prediction is not None  # a model with a lens has predictions
        assert ff_top is not None
        before, probability, rank = self._residual(view.states.residual[layer], layer, prediction)
        tops = {
            "residual_top": _int_array(before),
            "ff_top": _int_array(ff_top),
            "output_top": _int_array(self.lens.state_tops(view.states.output[layer], layer)),
        }
        return {
            "example": view.examples,
            "layer": np.full(len(view.examples), layer),
            **tops,
            "residual_prob": probability.float().cpu().numpy(),
            "residual_rank": _int_array(rank),
            "case": np.array(
                [case(*tokens) for tokens in zip(*(column.tolist() for column in tops.values()), strict=True)]
            ),
        }

    def _residual(
        self, states: Float[Tensor, "n hidden"], layer: int, prediction: Int[Tensor, "n"]
    ) -> tuple[Int[Tensor, "n"], Float[Tensor, "n"], Int[Tensor, "n"]]:
        """The top tokens of a layer's residuals, and the probability and rank of the model's prediction in them."""
        chunks = []
        for chunk, predicted in zip(states.split(self.lens.chunk), prediction.split(self.lens.chunk), strict=True):
            logits = self.lens.states(chunk, layer)
            predicted = predicted.to(logits.device)
            probability = probabilities_of(predicted[:, None], logits)[:, 0]
            chunks.append((top(logits), probability, rank_of(predicted, logits)))
        tops, probabilities, ranks = map(torch.cat, zip(*chunks, strict=True))
        return tops, probabilities, ranks


def write_last_layer(study: Study, lens: Lens) -> float:
    """A sample of the last layer's composition cases, each marked related or distant: last_layer.parquet.

    Two tokens are related if the cosine similarity of their unembedding rows is above that of 95 % of random pairs; a
    random pair has the residual's token at one example and the output's token at another. Returns that bound.
    """
    last = len(study.manifest["model"]["memories"]) - 1
    rows = pq.read_table(study.path("refinement.parquet"), filters=[("layer", "==", last)])
    before, after = (rows[name].to_numpy() for name in ("residual_top", "output_top"))
    generator = np.random.default_rng([study.settings["seed"], *b"last layer"])
    first, second = (generator.choice(column, _PAIRS) for column in (before, after))
    differ = first != second  # the tokens of a composition case always differ
    bound = float(np.quantile(similarity(lens, first[differ], second[differ]), RELATED)) if differ.any() else 1.0
    composed = np.flatnonzero(rows["case"].to_numpy(zero_copy_only=False) == "composition")
    chosen = np.sort(generator.permutation(composed)[:SAMPLED])
    similarities = similarity(lens, before[chosen], after[chosen])
    columns = {
        "example": rows["example"].to_numpy()[chosen],
        "residual_top": before[chosen],
        "output_top": after[chosen],
        "similarity": similarities,
        "related": similarities > bound,
    }
    with study.table("last_layer.parquet") as writer:
        writer.write_table(pa.Table.from_pydict(columns, SCHEMAS["last_layer.parquet"]))
    return bound


@torch.no_grad()
def similarity(lens: Lens, first: Array, second: Array) -> Array:
    """The cosine similarity of the unembedding rows of pairs of tokens."""
    rows, others = (lens.unembedding.rows(torch.from_numpy(tokens).long()) for tokens in (first, second))
    return torch.nn.functional.cosine_similarity(rows, others, dim=-1).cpu().numpy()


def _int_array(tokens: Tensor) -> Any:
    return tokens.int().cpu().numpy()


def observer(work: Work) -> Refinement:
    """The observer of the stage."""
    return Refinement(work.model, lens=work.options(LensOptions).lens, count=work.options(ExampleOptions).examples)
