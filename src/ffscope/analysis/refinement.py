"""How the prediction is refined from layer to layer, and which component determines each layer's output."""

from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import torch
from torch import Tensor

from ffscope.axes import Array, Float, Int
from ffscope.cases import case
from ffscope.models.info import ModelInfo
from ffscope.models.lenses import ChosenLens
from ffscope.models.lenses.base import Lens
from ffscope.models.memory_model import MemoryModel
from ffscope.models.ranking import probabilities_of, rank_of, top
from ffscope.options.analysis import ExampleOptions
from ffscope.search.example_pass import Observer, View
from ffscope.stages.stage import Work
from ffscope.study.schemas import SCHEMAS

SAMPLED = 100  # composition cases of the last layer that are sampled
_PAIRS = 10_000  # random pairs of tokens
RELATED = 0.95  # quantile of their similarity above which two tokens are related


class Refinement(Observer):
    """Computes the rows of refinement.parquet."""

    stage = "refinement"

    def __init__(self, model: ModelInfo, *, lens: ChosenLens, count: int) -> None:
        model.check_lens(*lens)
        self.settings = {"lens": lens.name, "examples": count}

    def rows(self, view: View) -> dict[str, Any]:
        layers = [self._layer(view, layer) for layer in range(view.model.layers)]
        return {name: np.concatenate([columns[name] for columns in layers]) for name in layers[0]}

    def close(self, work: Work) -> dict[str, Any]:
        """Write last_layer.parquet; returns the similarity above which tokens are related, for study.json."""
        return {"related_above": write_last_layer(work)}

    def _layer(self, view: View, layer: int) -> dict[str, Any]:
        prediction, ff_top, lens = view.prediction, view.ff_top(layer), view.lens
        assert prediction is not None  # a model with a lens has predictions
        assert ff_top is not None
        assert lens is not None
        before, probability, rank = _residual(lens, view.states.residual[layer], layer, prediction)
        tops = {
            "residual_top": _int_array(before),
            "ff_top": _int_array(ff_top),
            "output_top": _int_array(lens.state_tops(view.states.output[layer], layer, "output")),
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
    lens: Lens, states: Float[Tensor, "n hidden"], layer: int, prediction: Int[Tensor, "n"]
) -> tuple[Int[Tensor, "n"], Float[Tensor, "n"], Int[Tensor, "n"]]:
    """The top tokens of a layer's residuals, and the probability and rank of the model's prediction in them."""
    chunks = []
    for chunk, predicted in zip(states.split(lens.chunk), prediction.split(lens.chunk), strict=True):
        logits = lens.states(chunk, layer)
        predicted = predicted.to(logits.device)
        probability = probabilities_of(predicted[:, None], logits)[:, 0]
        chunks.append((top(logits), probability, rank_of(predicted, logits)))
    tops, probabilities, ranks = map(torch.cat, zip(*chunks, strict=True))
    return tops, probabilities, ranks


def write_last_layer(work: Work) -> float:
    """A sample of the last layer's composition cases, each marked related or distant: last_layer.parquet.

    Two tokens are related if the cosine similarity of their unembedding rows is above that of 95 % of random pairs; a
    random pair has the residual's token at one example and the output's token at another. Returns that bound.
    """
    study, last = work.study, work.info.layers - 1
    rows = pq.read_table(study.path("refinement.parquet"), filters=[("layer", "==", last)])
    before, after = (rows[name].to_numpy() for name in ("residual_top", "output_top"))
    generator = np.random.default_rng([study.settings["seed"], *b"last layer"])
    first, second = (generator.choice(column, _PAIRS) for column in (before, after))
    differ = first != second  # the tokens of a composition case always differ
    composed = np.flatnonzero(rows["case"].to_numpy(zero_copy_only=False) == "composition")
    chosen = np.sort(generator.permutation(composed)[:SAMPLED])
    pairs = [(0, (first[differ], second[differ])), (1, (before[chosen], after[chosen]))]
    by_number = dict(work.engine.map("refinement", similarity, pairs))
    random, similarities = by_number[0], by_number[1]
    bound = float(np.quantile(random, RELATED)) if len(random) else 1.0
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
def similarity(model: MemoryModel, pairs: tuple[Array, Array]) -> Array:
    """The cosine similarity of the unembedding rows of pairs of tokens."""
    unembedding = model.lens().unembedding
    rows, others = (unembedding.rows(torch.from_numpy(tokens).long()) for tokens in pairs)
    return torch.nn.functional.cosine_similarity(rows, others, dim=-1).cpu().numpy()


def _int_array(tokens: Tensor) -> Any:
    return tokens.int().cpu().numpy()


def observer(work: Work) -> Refinement:
    """The observer of the stage."""
    return Refinement(work.info, lens=work.lens, count=work.options(ExampleOptions).examples)
