"""A loaded model as one object for the web explorer; all its results are plain Python."""

from collections.abc import Sequence
from pathlib import Path

from ffscope.cancellation import Stop, never
from ffscope.errors import LensError
from ffscope.live.generate import can_generate, generate_text, refuse_if_not_generative, refuse_too_long
from ffscope.live.interventions import Interventions, check_interventions
from ffscope.live.prompt import Prompt, check_count, coefficients_in, encode_prompt, read_prompt
from ffscope.live.ranking import rank_memories
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
from ffscope.live.why import explain, rank_promoters, similar_to
from ffscope.memory_name import Memory
from ffscope.models.inputs import bos_token
from ffscope.models.lenses.base import Lens
from ffscope.models.memory_model import MemoryModel
from ffscope.tokens import spelling

_NONE = Interventions()
_MEMORIES = 1000  # at most in one result


class Live:
    """Queries to a loaded model. Every method can be called from any thread, and raises `Stopped` once `stop` returns True."""

    def __init__(
        self,
        model: MemoryModel,
        *,
        bos: bool,
        lens: str = "norm",
        study: Path | None = None,
        tokens: int = 512,
        new_tokens: int = 100,
    ) -> None:
        """`study` is the folder of the study that learned lenses are saved with."""
        self.model = model
        self.bos = bos_token(model.tokenizer) if bos and model.tokenizer is not None else None
        self.lens, self.study = lens, study
        self.tokens = tokens if model.positions is None else min(tokens, model.positions)
        self.new_tokens = new_tokens
        if model.top is not None:
            model.lens(lens, study)  # raises now if there is no such lens

    def about(self) -> About:
        """A description of the model."""
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
        """The spellings of tokens, safe to display."""
        return [spelling(self.model.tokenizer, token) for token in ids]

    def coefficients(
        self, memory: Memory, sentences: Sequence[Sequence[int]], *, stop: Stop = never
    ) -> list[list[float]]:
        """The memory's coefficient at every token of each sentence (token ids, as in a study)."""
        memory = self.model.memory(memory)
        return coefficients_in(self.model, memory, sentences=sentences, bos=self.bos, stop=stop)

    def text_coefficients(self, memory: Memory, text: str, *, stop: Stop = never) -> TextCoefficients:
        """The memory's coefficient at every token of a text."""
        prompt = self._encode(text)
        (coefficients,) = self.coefficients(memory, [prompt.sentence], stop=stop)
        return TextCoefficients(self.spell(prompt.sentence), coefficients)

    def similar(self, memory: Memory, *, count: int = 10, stop: Stop = never) -> list[Similar]:
        """The memories of any layer whose values have the highest cosine similarity with this one's."""
        check_count("memories", count, limit=_MEMORIES)
        return similar_to(self.model, self.model.memory(memory), count=count, stop=stop)

    def promoters(
        self, token: str, *, layers: Sequence[int] | None = None, count: int = 50, stop: Stop = never
    ) -> Promoters:
        """The memories of all or some layers whose values promote a token most, read with the study's lens."""
        check_count("memories", count, limit=_MEMORIES)
        chosen = range(self.model.layers) if layers is None else layers
        return rank_promoters(self.model, token, lens=self._lens(), layers=chosen, count=count, stop=stop)

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
        """What every layer predicts at every position; at one position, also which memories determine it and what interventions
        change."""
        prompt = self._encode(text)
        return read_prompt(
            self.model,
            prompt,
            interventions=check_interventions(self.model, interventions, length=len(prompt.ids)),
            position=position,
            lens=self._lens(lens),
            of=of,
            memories=check_count("memories", memories, limit=_MEMORIES),
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
        """Why the model prefers token A to B: what each memory and each layer adds to the difference of their logits."""
        if lens not in (None, "norm"):
            raise LensError(
                f"Expected the norm lens, since pushes act on the model's own logits; found {lens!r}. Leave the lens out."
            )
        prompt = self._encode(text)
        return explain(
            self.model,
            prompt,
            interventions=check_interventions(self.model, interventions, length=len(prompt.ids)),
            a=a,
            b=b,
            position=position,
            count=check_count("memories", count, limit=_MEMORIES),
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
        """The memories of all layers that push a token's logit most (by default the predicted token's), or that write most.

        Without `by` they are ranked by their push, or by their size in models where a push is not defined. `by="effect"` ranks
        them by the change of the token's log-probability without each, in all models that can be differentiated: an estimate
        from the gradient, for which the model runs once more, forward and backward.
        """
        prompt = self._encode(text)
        return rank_memories(
            self.model,
            prompt,
            interventions=check_interventions(self.model, interventions, length=len(prompt.ids)),
            position=position,
            target=target,
            by=by,
            count=check_count("memories", count, limit=_MEMORIES),
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
        """Greedy generation, without and with the interventions."""
        refuse_if_not_generative(self.model)
        check_count("new tokens", new_tokens, limit=self.new_tokens)
        prompt = self._encode(text)
        refuse_too_long(self.model, prompt, new_tokens=new_tokens)
        check_interventions(self.model, interventions, length=len(prompt.ids))
        return generate_text(self.model, prompt, interventions=interventions, new_tokens=new_tokens, stop=stop)

    def _lens(self, name: str | None = None) -> Lens:
        """The lens of that name, by default the study's."""
        return self.model.lens(name or self.lens, self.study)

    def _encode(self, text: str) -> Prompt:
        return encode_prompt(self.model, text, bos=self.bos, limit=self.tokens)
