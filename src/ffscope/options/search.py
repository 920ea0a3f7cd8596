"""Which memories are searched, and which prefixes are kept as triggers."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Annotated, Literal

from ffscope.memory_name import parse_layers, parse_numbers
from ffscope.options.fields import Checked, Help

Prefixes = Literal["best", "all"]


@dataclass(frozen=True)
class SearchOptions(Checked):
    """The memories to search, and the triggers to keep. `layers` and `memories` are lists of numbers or a string like "0,24-29"."""

    top: Annotated[int, Help("Number of triggers to keep per memory.", min=1)] = 50
    prefixes: Annotated[Prefixes, Help("Prefixes of a sentence that can be triggers: the best one, or all.")] = "best"
    bos: Annotated[bool, Help("Prepend the BOS token.", flag="--bos/--no-bos")] = True
    layers: Annotated[list[int] | str | None, Help("Layers to search, such as 0,24-29; all by default.")] = None
    memories: Annotated[
        list[int] | str | None, Help("Memories of each layer to search, such as 0-99; all by default.")
    ] = None
    negative: Annotated[bool, Help("Also keep the lowest coefficients, for gated layers.", flag="--negative")] = False
    seed: Annotated[int, Help("Seed of all random samples.", min=0)] = 0
    batch_tokens: Annotated[
        int | None, Help("Number of tokens per batch; by default depends on the device.", min=1)
    ] = None
    minutes: Annotated[
        float | None,
        Help("Search only as many sentences as fit into this time, estimated from a short trial.", min=0.01),
    ] = None

    def resolved(self, memories: Sequence[int]) -> "SearchOptions":
        """The same with strings like "0,24-29" parsed into numbers. `memories` has the number of memories of each layer."""
        layers, chosen = self.layers, self.memories
        return replace(
            self,
            layers=parse_layers(layers, len(memories)) if isinstance(layers, str) else layers,
            memories=parse_numbers(chosen, max(memories), "memories") if isinstance(chosen, str) else chosen,
        )
