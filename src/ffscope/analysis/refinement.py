"""How the prediction changes from layer to layer: what the residual says before each update, and whose word the output is."""

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

SAMPLED = 100  # composition cases of the last layer
_PAIRS = 10_000  # pairs of tokens that have nothing to do with each other
RELATED = 0.95  # more alike than so many of those


class Refinement(Observer):
    """Makes refinement.parquet."""

    stage = "refinement"

    def __init__(self, model: MemoryModel, *, lens: str, count: int) -> None:
        self.lens = model.lens(lens)
        self.settings = {"lens": lens, "examples": count}

    def rows(self, view: View) -> dict[str, Any]:
        layers = [self._layer(view, layer) for layer in range(view.model.layers)]
        return {name: np.concatenate([columns[name] for columns in layers]) for name in layers[0]}

    def close(self, study: Study) -> dict[str, Any]:
        """Note how alike two tokens must be to be called related."""
        return {"related_above": write_last_layer(study, self.lens)}

    def _layer(self, view: View, layer: int) -> dict[str, Any]:
        prediction, ff_top = view.prediction, view.ff_top(layer)
        assert prediction is not None  # a model with a lens predicts
        assert ff_top is not None
        before, probability, rank = self._residual(view.states.residual[layer], layer, prediction)
        tops = {
            "residual_top": _whole(before),
            "ff_top": _whole(ff_top),
            "output_top": _whole(self.lens.state_tops(view.states.output[layer], layer)),
        }
        return {
            "example": view.examples,
            "layer": np.full(len(view.examples), layer),
            **tops,
            "residual_prob": probability.float().cpu().numpy(),
            "residual_rank": _whole(rank),
            "case": np.array([case(*three) for three in zip(*(t.tolist() for t in tops.values()), strict=True)]),
        }

    def _residual(
        self, states: Float[Tensor, "n hidden"], layer: int, prediction: Int[Tensor, "n"]
    ) -> tuple[Int[Tensor, "n"], Float[Tensor, "n"], Int[Tensor, "n"]]:
        """What residuals of a layer predict, and how likely the model's prediction is to them and where it ranks."""
        read = []
        for some, wanted in zip(states.split(self.lens.chunk), prediction.split(self.lens.chunk), strict=True):
            logits = self.lens.states(some, layer)
            read.append((top(logits), probabilities_of(wanted[:, None], logits)[:, 0], rank_of(wanted, logits)))
        tops, probabilities, ranks = map(torch.cat, zip(*read, strict=True))
        return tops, probabilities, ranks


def write_last_layer(study: Study, lens: Lens) -> float:
    """A sample of the last layer's composition cases, each marked related or distant: last_layer.parquet.

    Two tokens are related where their unembedding rows are more alike (by cosine) than 95 % of random pairs: the residual's
    token at one example and the output's at another. Gives that bound.
    """
    last = len(study.manifest["model"]["memories"]) - 1
    rows = pq.read_table(study.path("refinement.parquet"), filters=[("layer", "==", last)])
    before, after = (rows[name].to_numpy() for name in ("residual_top", "output_top"))
    generator = np.random.default_rng([study.settings["seed"], *b"last layer"])
    one, other = (generator.choice(column, _PAIRS) for column in (before, after))
    apart = one != other  # a composition case is never a token and itself
    bound = float(np.quantile(similarity(lens, one[apart], other[apart]), RELATED)) if apart.any() else 1.0
    composed = np.flatnonzero(rows["case"].to_numpy(zero_copy_only=False) == "composition")
    chosen = np.sort(generator.permutation(composed)[:SAMPLED])
    alike = similarity(lens, before[chosen], after[chosen])
    columns = {
        "example": rows["example"].to_numpy()[chosen],
        "residual_top": before[chosen],
        "output_top": after[chosen],
        "similarity": alike,
        "related": alike > bound,
    }
    with study.table("last_layer.parquet") as writer:
        writer.write_table(pa.Table.from_pydict(columns, SCHEMAS["last_layer.parquet"]))
    return bound


@torch.no_grad()
def similarity(lens: Lens, one: Array, other: Array) -> Array:
    """The cosine of tokens' unembedding rows."""
    rows, others = (lens.unembedding.rows(torch.from_numpy(tokens).long()) for tokens in (one, other))
    return torch.nn.functional.cosine_similarity(rows, others, dim=-1).cpu().numpy()


def _whole(tokens: Tensor) -> Any:
    return tokens.int().cpu().numpy()


def observer(work: Work) -> Refinement:
    """The stage."""
    return Refinement(work.model, lens=work.options(LensOptions).lens, count=work.options(ExampleOptions).examples)
