"""What memories add to the residual, over a sample of the searched text: the mean size of it, and the mean of its square."""

from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from ffscope.corpus.prefixes import chunks, tokens_of
from ffscope.models.linear_parts import norms_in_residual
from ffscope.models.memory_model import MemoryModel
from ffscope.models.parts import Part
from ffscope.search.text_pass import TextBatch, read_coefficients, text_batches
from ffscope.study.folder import Study

State = dict[str, Tensor]


def sampled_text(study: Study, count: int) -> list[TextBatch]:
    """A random sample of the searched sentences, in batches of one length."""
    path, searched = study.path("sentences.parquet"), study.manifest["stages"]["triggers"]["sentences"]
    numbers = np.concatenate([chunk.sentences for chunk in chunks(path, first=searched)])
    generator = np.random.default_rng([study.settings["seed"], *b"contributions"])
    drawn = np.sort(generator.permutation(numbers)[:count])
    tokens = tokens_of(path, drawn)
    return text_batches([tokens[number] for number in drawn.tolist()], tokens=study.settings["batch_tokens"])


@dataclass(frozen=True)
class Contributions:
    """f(model, batches) returns sums over their prefixes, for every memory of the model."""

    bos: int | None

    @torch.no_grad()
    def __call__(self, model: MemoryModel, batches: list[TextBatch]) -> State:
        """The sums of |coefficient| × ‖value‖ and of its square, and the number of prefixes."""
        sums = {name: torch.zeros(sum(model.memories), dtype=torch.float64) for name in ("contribution", "squared")}
        starts = np.cumsum([0, *model.memories])
        places = {
            part: slice(start := int(starts[layer]) + part.offset, start + part.memories)
            for layer in range(model.layers)
            for part in model.layer(layer).parts
        }
        for batch in batches:
            self._add(model, batch, places, sums)
        for layer in range(model.layers):
            for part in model.layer(layer).parts:
                norms = norms_in_residual(model.layer(layer), part.values()).cpu().double()
                sums["contribution"][places[part]] *= norms
                sums["squared"][places[part]] *= norms.square()
        return {**sums, "count": torch.tensor(sum(batch.tokens.size for batch in batches))}

    def _add(self, model: MemoryModel, batch: TextBatch, places: dict[Part, slice], sums: State) -> None:
        def add(part: Part, coefficients: Tensor) -> None:
            sizes = coefficients.float().abs()
            sums["contribution"][places[part]] += sizes.sum(0).cpu().double()
            sums["squared"][places[part]] += sizes.square().sum(0).cpu().double()

        read_coefficients(model, batch.tokens, self.bos, places, add)
