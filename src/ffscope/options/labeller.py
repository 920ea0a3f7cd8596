"""A language model that names patterns: where it is, and what it is asked for."""

from dataclasses import dataclass
from typing import Annotated

from ffscope.options.fields import Checked, Help


@dataclass(frozen=True)
class LabellerOptions(Checked):
    """A language model as labeller."""

    labeller: Annotated[
        str | None,
        Help(
            "Have a language model name patterns too: the address of an OpenAI-compatible server, such as "
            "http://localhost:8000/v1. Its key is read from FFSCOPE_LABELLER_KEY, else OPENAI_API_KEY.",
            metavar="URL",
        ),
    ] = None
    labeller_model: Annotated[
        str | None, Help("The model that the server is asked for; needed where it has several.")
    ] = None
    labeller_memories: Annotated[int, Help("Memories of every layer that it labels.", min=1)] = 10
    labeller_workers: Annotated[int, Help("Questions under way at once.", min=1)] = 4
    labeller_batch: Annotated[
        bool,
        Help(
            "Send its questions as batch jobs, which hosted servers answer within a day, often at half the price. "
            "Interrupted, the same command fetches the answers.",
            flag="--labeller-batch",
        ),
    ] = False
    labeller_price: Annotated[
        str | None, Help("Price of a million tokens in and out, such as 0.15,0.60: says what it costs.")
    ] = None
    labeller_timeout: Annotated[float, Help("Seconds to wait for an answer.", min=0.1)] = 300.0
    labeller_max_tokens: Annotated[int, Help("Longest answer; a model that reasons first needs more.", min=64)] = 2048
