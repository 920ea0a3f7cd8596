"""A loaded model, as a web explorer asks it: one object, answers made of plain Python."""

from collections.abc import Sequence

from ffscope.cancellation import Stop, never
from ffscope.errors import LensError
from ffscope.live.generate import can_generate, generate_text, refuse_too_long, refuse_without_words
from ffscope.live.interventions import Interventions, known
from ffscope.live.prompt import Asked, ask, between, coefficients_in, read_prompt
from ffscope.live.responses import (
    About,
    By,
    Generated,
    Promoters,
    PromptReading,
    RankedMemories,
    Similar,
    TextCoefficients,
    Why,
)
from ffscope.live.why import explain, rank_memories, rank_promoters, similar_to
from ffscope.memory_name import Memory
from ffscope.models.inputs import bos_token
from ffscope.models.memory_model import MemoryModel
from ffscope.tokens import spelling

_NONE = Interventions()
_MEMORIES = 1000  # most that one answer names


class Live:
    """What is asked of a loaded model. Every method can be called from any thread, and ends with `Stopped` when `stop` says so."""

    def __init__(
        self, model: MemoryModel, *, bos: bool, lens: str = "norm", tokens: int = 512, new_tokens: int = 100
    ) -> None:
        self.model = model
        self.bos = bos_token(model.tokenizer) if bos and model.tokenizer is not None else None
        self.lens = lens
        self.tokens = tokens if model.positions is None else min(tokens, model.positions)
        self.new_tokens = new_tokens
        if model.top is not None:
            model.lens(lens)  # a lens that is not there is refused now

    def about(self) -> About:
        """The model in words and numbers."""
        return About(
            model=self.model.source or self.model.model_type,
            family=self.model.model_type,
            device=str(self.model.device),
            dtype=str(self.model.dtype).removeprefix("torch."),
            layers=self.model.layers,
            memories=list(self.model.memories),
            can_generate=can_generate(self.model),
            causal=self.model.causal,
            lens=None if self.model.top is None else self.lens,
            bos=self.bos is not None,
            tokens=self.tokens,
            new_tokens=self.new_tokens,
        )

    def spell(self, ids: Sequence[int]) -> list[str]:
        """Tokens as a person may safely see them."""
        return [spelling(self.model.tokenizer, token) for token in ids]

    def coefficients(
        self, memory: Memory, sentences: Sequence[Sequence[int]], *, stop: Stop = never
    ) -> list[list[float]]:
        """Of each sentence (token ids, as a study holds them) the memory's coefficient at every token."""
        memory = self.model.memory(memory)
        return coefficients_in(self.model, memory, sentences=sentences, bos=self.bos, stop=stop)

    def text_coefficients(self, memory: Memory, text: str, *, stop: Stop = never) -> TextCoefficients:
        """The memory's coefficient at every token of a text."""
        asked = self._ask(text)
        (found,) = self.coefficients(memory, [asked.sentence], stop=stop)
        return TextCoefficients(self.spell(asked.sentence), found)

    def similar(self, memory: Memory, *, count: int = 10, stop: Stop = never) -> list[Similar]:
        """The memories of any layer whose values point most nearly where this one's does."""
        between("memories", count, most=_MEMORIES)
        return similar_to(self.model, self.model.memory(memory), count=count, stop=stop)

    def promoters(
        self, token: str, *, layers: Sequence[int] | None = None, count: int = 50, stop: Stop = never
    ) -> Promoters:
        """The memories of all layers, or of some, whose values promote a token most, read by the study's lens."""
        between("memories", count, most=_MEMORIES)
        chosen = range(self.model.layers) if layers is None else layers
        return rank_promoters(self.model, token, lens=self.lens, layers=chosen, count=count, stop=stop)

    def prompt(
        self,
        text: str,
        *,
        interventions: Interventions = _NONE,
        position: int = -1,
        lens: str | None = None,
        of: str = "output",
        memories: int = 5,
        stop: Stop = never,
    ) -> PromptReading:
        """What every layer predicts at every position, who makes it so at one, and what interventions change there."""
        asked = self._ask(text)
        return read_prompt(
            self.model,
            asked,
            interventions=known(self.model, interventions, length=len(asked.ids)),
            position=position,
            lens=lens or self.lens,
            of=of,
            memories=between("memories", memories, most=_MEMORIES),
            stop=stop,
        )

    def why(
        self,
        text: str,
        *,
        a: str,
        b: str,
        interventions: Interventions = _NONE,
        position: int = -1,
        lens: str | None = None,
        count: int = 20,
        stop: Stop = never,
    ) -> Why:
        """Why the model gives token A rather than B: what each memory and each layer adds to the difference of their logits."""
        if lens not in (None, "norm"):
            raise LensError(
                f"Pushes are on the model's own logits, so they are read with the norm lens; found {lens!r}."
            )
        asked = self._ask(text)
        return explain(
            self.model,
            asked,
            interventions=known(self.model, interventions, length=len(asked.ids)),
            a=a,
            b=b,
            position=position,
            count=between("memories", count, most=_MEMORIES),
            stop=stop,
        )

    def memories(
        self,
        text: str,
        *,
        interventions: Interventions = _NONE,
        position: int = -1,
        target: str | None = None,
        by: By | None = None,
        count: int = 20,
        stop: Stop = never,
    ) -> RankedMemories:
        """The memories of all layers that push a token's logit most, the predicted token's by default, or that write most.

        Without `by` they are ranked by their push where the model has one, and by their size elsewhere.
        """
        asked = self._ask(text)
        return rank_memories(
            self.model,
            asked,
            interventions=known(self.model, interventions, length=len(asked.ids)),
            position=position,
            target=target,
            by=by,
            count=between("memories", count, most=_MEMORIES),
            stop=stop,
        )

    def generate(
        self,
        text: str,
        *,
        interventions: Interventions = _NONE,
        new_tokens: int = 20,
        stop: Stop = never,
    ) -> Generated:
        """Greedy text, without the interventions and with them."""
        refuse_without_words(self.model)
        between("new tokens", new_tokens, most=self.new_tokens)
        asked = self._ask(text)
        refuse_too_long(self.model, asked, new_tokens=new_tokens)
        known(self.model, interventions, length=len(asked.ids))
        return generate_text(self.model, asked, interventions=interventions, new_tokens=new_tokens, stop=stop)

    def _ask(self, text: str) -> Asked:
        return ask(self.model, text, bos=self.bos, most=self.tokens)
