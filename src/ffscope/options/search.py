"""What is searched, and what is kept of it."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Annotated, Literal

from ffscope.memory_name import parse_layers, parse_numbers
from ffscope.options.fields import Checked, Help

Prefixes = Literal["best", "all"]


@dataclass(frozen=True)
class SearchOptions(Checked):
    """What is searched, and what is kept. `layers` and `memories` are numbers, or a text such as "0,24-29"."""

    top: Annotated[int, Help("Triggers kept for every memory.", min=1)] = 50
    prefixes: Annotated[Prefixes, Help("Of each sentence the best prefix, or every one.")] = "best"
    bos: Annotated[bool, Help("Put the BOS token in front of the text.", flag="--bos/--no-bos")] = True
    layers: Annotated[list[int] | str | None, Help("Layers, such as 0,24-29; all by default.")] = None
    memories: Annotated[list[int] | str | None, Help("Memories of each layer, such as 0-99; all by default.")] = None
    negative: Annotated[bool, Help("Keep the lowest coefficients too.", flag="--negative")] = False
    seed: Annotated[int, Help("Chooses what is sampled.", min=0)] = 0
    batch_tokens: Annotated[int | None, Help("Tokens in a batch; by default what suits the device.", min=1)] = None
    minutes: Annotated[
        float | None,
        Help("Search no more sentences than this time allows, at a pace that is measured first.", min=0.01),
    ] = None

    def resolved(self, memories: Sequence[int]) -> "SearchOptions":
        """The same with numbers where a text names layers or memories, for a model with so many memories in each layer."""
        layers, chosen = self.layers, self.memories
        return replace(
            self,
            layers=parse_layers(layers, len(memories)) if isinstance(layers, str) else layers,
            memories=parse_numbers(chosen, max(memories), "memories") if isinstance(chosen, str) else chosen,
        )
