"""What memories add to the residual, over a sample of the searched text: the mean size of it, and the mean of its square."""

from contextlib import ExitStack, suppress
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from ffscope.axes import Array
from ffscope.corpus.prefixes import chunks, tokens_of
from ffscope.models.linear_parts import norms_in_residual
from ffscope.models.memory_model import MemoryModel, StopPass
from ffscope.models.parts import Part
from ffscope.search.passes import by_length, sentence_inputs
from ffscope.study.folder import Study

State = dict[str, Tensor]


class TextBatch(NamedTuple):
    """Sentences of one length, batch × pos."""

    tokens: Array


def sampled_text(study: Study, count: int) -> list[TextBatch]:
    """A random sample of the searched sentences, in batches of one length."""
    path, searched = study.path("sentences.parquet"), study.manifest["stages"]["triggers"]["sentences"]
    numbers = np.concatenate([chunk.sentences for chunk in chunks(path, first=searched)])
    generator = np.random.default_rng([study.settings["seed"], *b"contributions"])
    drawn = np.sort(generator.permutation(numbers)[:count])
    tokens = tokens_of(path, drawn)
    sentences = [tokens[number] for number in drawn.tolist() if len(tokens[number])]
    lengths = np.array([len(sentence) for sentence in sentences], dtype=np.int64)
    batches = by_length(lengths, tokens=study.settings["batch_tokens"])
    return [TextBatch(np.stack([sentences[number] for number in batch])) for batch in batches]


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
        waiting = set(places)

        def observe(part: Part, coefficients: Tensor, _past: int) -> None:
            # From the end: BOS or a decoder's start token comes before the sentence, in each stack of an encoder–decoder.
            sizes = coefficients[:, -batch.tokens.shape[1] :].flatten(0, 1).float().abs()
            sums["contribution"][places[part]] += sizes.sum(0).cpu().double()
            sums["squared"][places[part]] += sizes.square().sum(0).cpu().double()
            waiting.discard(part)
            if not waiting:
                raise StopPass

        with ExitStack() as stack, suppress(StopPass):
            for part in places:
                stack.enter_context(part.tap(observe))
            model.forward(sentence_inputs(model, batch.tokens, self.bos))
