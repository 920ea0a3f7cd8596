"""A language model that labels patterns: the server it runs on, and how much it labels."""

from dataclasses import dataclass
from typing import Annotated

from ffscope.options.fields import Checked, Help


@dataclass(frozen=True)
class LabellerOptions(Checked):
    """A language model that labels patterns."""

    labeller: Annotated[
        str | None,
        Help(
            "Have a language model label patterns too: the URL of an OpenAI-compatible server, such as "
            "http://localhost:8000/v1. The API key is read from FFSCOPE_LABELLER_KEY, else OPENAI_API_KEY.",
            metavar="URL",
        ),
    ] = None
    labeller_model: Annotated[str | None, Help("Name of the model to use; required if the server offers several.")] = (
        None
    )
    labeller_memories: Annotated[int, Help("Number of memories per layer to label.", min=1)] = 10
    labeller_workers: Annotated[int, Help("Number of concurrent requests.", min=1)] = 4
    labeller_batch: Annotated[
        bool,
        Help(
            "Send the requests as batch jobs, which hosted servers answer within a day, often at half the price. "
            "If it is interrupted, run the same command to fetch the answers.",
            flag="--labeller-batch",
        ),
    ] = False
    labeller_price: Annotated[
        str | None, Help("Price per million input and output tokens, such as 0.15,0.60, to report the cost.")
    ] = None
    labeller_timeout: Annotated[float, Help("Timeout of a request in seconds.", min=0.1)] = 300.0
    labeller_max_tokens: Annotated[
        int, Help("Maximum number of tokens per answer; reasoning models need more.", min=64)
    ] = 2048
