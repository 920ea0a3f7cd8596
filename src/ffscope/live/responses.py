"""What a live model answers, made of plain Python. No torch."""

from dataclasses import dataclass
from typing import Literal

from ffscope.tokens import Token
from ffscope.trace_types import Step

By = Literal["logit", "size"]
Kind = Literal["zero", "scale", "set"]


@dataclass(frozen=True)
class About:
    """Which model it is, and what can be asked of it."""

    model: str
    family: str
    device: str
    dtype: str
    layers: int
    memories: list[int]  # of each layer
    can_generate: bool
    causal: bool
    lens: str | None  # None where the model has no unembedding
    bos: bool  # whether one is put before every text
    tokens: int  # most of a text, BOS included
    new_tokens: int  # most that are generated


@dataclass(frozen=True)
class TextCoefficients:
    """A memory's coefficient at every token of a text; the BOS before it is not shown."""

    tokens: list[str]
    coefficients: list[float]


@dataclass(frozen=True)
class Similar:
    """A memory, and the cosine of its value with the one that was asked about, both as written to the residual."""

    memory: str
    cosine: float


@dataclass(frozen=True)
class Grid:
    """Layer × position: the highest tokens, their probabilities, the rank of what the model predicts there, entropy in bits."""

    layers: list[int]
    top: list[list[list[int]]]
    probability: list[list[list[float]]]
    rank: list[list[int]]
    entropy: list[list[float]]


@dataclass(frozen=True)
class Choice:
    """A token with its probability and rank in the model's own prediction, without the interventions and with them."""

    id: int
    token: str
    before: float
    after: float | None
    before_rank: int
    after_rank: int | None


@dataclass(frozen=True)
class Applied:
    """What was done to a memory or to a whole layer, and the coefficient that a memory had before, at the position that is read.

    The coefficient is None for a layer, and where the memory's stack has no such position: an encoder without BOS has no token
    beside its decoder's start.
    """

    name: str
    change: Kind
    number: float | None
    coefficient: float | None


@dataclass(frozen=True)
class PromptReading:
    """A prompt as the layers that predict see it: a decoder's, where there is an encoder too.

    Grid and steps are of the run with the interventions. The grid is of the residual, the output or none.
    """

    text: str
    ids: list[int]
    tokens: list[str]
    position: int
    lens: str
    of: str
    grid: Grid | None
    spellings: dict[str, str]  # of every id that is mentioned
    steps: list[Step]
    distribution: list[Choice]
    interventions: list[Applied]
    positions: list[int] | None  # where the interventions hold, counted from 0; None: at every position


@dataclass(frozen=True)
class Promoter:
    """A memory, and a token's place in its value: its rank, its probability, and its logit above the mean of all tokens'."""

    memory: str
    logit: float
    rank: int
    probability: float


@dataclass(frozen=True)
class Promoters:
    """The memories that promote a token most, of how many, and how many tokens the ranks are among."""

    token: Token
    memories: int
    vocabulary: int
    rows: list[Promoter]


@dataclass(frozen=True)
class LayerPush:
    """What a layer's update adds (its biases are in it), and what all else adds that its block wrote: attention, say."""

    layer: int
    ff: float
    rest: float


@dataclass(frozen=True)
class Push:
    """What one memory adds to A's logit minus B's, and the tokens that it promotes with its coefficient."""

    memory: str
    coefficient: float
    push: float
    promotes: list[str]


@dataclass(frozen=True)
class Why:
    """A's logit minus B's, as the model has it, and its parts: start + every layer's ff and rest + bias = total.

    The total is the difference itself, or where the model caps its logits the difference before that, as the note says.
    """

    text: str
    ids: list[int]
    tokens: list[str]
    position: int
    a: Token
    b: Token
    difference: float
    total: float
    start: float  # of what enters the first block: the embedding
    bias: float  # of the final norm and the unembedding
    layers: list[LayerPush]
    memories: list[Push]
    note: str | None


@dataclass(frozen=True)
class Ranked:
    """A memory at one position: what it writes to the residual, what it adds to a token's logit, and what it promotes.

    Its size is |coefficient| × ‖value‖, the value as it is written to the residual. Its push is what it adds to the logit directly,
    with the final norm's scale held; None where the model has no such sum.
    """

    memory: str
    coefficient: float
    size: float
    share_of_layer: float  # of the sizes of its layer
    share_of_all: float  # of the sizes of all layers
    push: float | None
    promotes: list[str]


@dataclass(frozen=True)
class RankedMemories:
    """The memories of all layers that push a token's logit most, in either direction, or that write most."""

    text: str
    ids: list[int]
    tokens: list[str]
    position: int
    by: By
    target: Token  # the predicted token where none was asked for
    logit: (
        float | None
    )  # the sum of all pushes: those of memories, of attention and the rest, and of the embedding and biases
    memories: list[Ranked]
    note: str | None


@dataclass(frozen=True)
class Generated:
    """The new tokens, at most so many, without the interventions and with them; None where there are none. EOS ends them."""

    before: list[str]
    after: list[str] | None
    new_tokens: int
