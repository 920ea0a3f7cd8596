"""Which models complete text."""

from ffscope.effects.texts import is_masked
from ffscope.errors import GradientError, LensError
from ffscope.models.info import ModelInfo


def check_completes(model: ModelInfo) -> None:
    """Raise for a model that does not continue a text token by token."""
    if model.no_lens is not None:
        raise LensError(
            f"{model.no_lens} Without logits it completes no text, so nothing leaks from it that could be measured. Expected a "
            "model with an unembedding."
        )
    if is_masked(model):
        raise GradientError(
            "This model predicts masked tokens, so it does not complete a text from its beginning. Expected a causal language "
            "model."
        )
    if model.has_start_token:
        raise GradientError(
            "This is an encoder–decoder: its encoder reads the sentence that its decoder would complete, so that copying looks "
            "like memory. Expected a decoder alone, a causal language model."
        )
