"""The results of a live model, as plain Python. No torch."""

from dataclasses import dataclass
from typing import Literal

from ffscope.tokens import Token
from ffscope.trace_types import Step

By = Literal["logit", "size", "effect"]
Kind = Literal["zero", "scale", "set"]


@dataclass(frozen=True)
class About:
    """A description of the model and of what it supports."""

    model: str
    family: str
    device: str
    dtype: str
    layers: int
    memories: list[int]  # number in each layer
    can_generate: bool
    causal: bool
    lens: str | None  # None if the model has no unembedding
    bos: bool  # whether BOS is put before every text
    tokens: int  # maximum length of a text, BOS included
    new_tokens: int  # maximum number of generated tokens


@dataclass(frozen=True)
class TextCoefficients:
    """A memory's coefficient at every token of a text, without BOS."""

    tokens: list[str]
    coefficients: list[float]


@dataclass(frozen=True)
class Similar:
    """A memory, and the cosine of its value with that of the queried memory, both as added to the residual."""

    memory: str
    cosine: float


@dataclass(frozen=True)
class Grid:
    """Layer × position: the top tokens, their probabilities, the rank of the model's prediction there, and the entropy in bits."""

    layers: list[int]
    top: list[list[list[int]]]
    probability: list[list[list[float]]]
    rank: list[list[int]]
    entropy: list[list[float]]


@dataclass(frozen=True)
class Choice:
    """A token with its probability and rank in the model's own prediction, without and with the interventions."""

    id: int
    token: str
    before: float
    after: float | None
    before_rank: int
    after_rank: int | None


@dataclass(frozen=True)
class Applied:
    """A change to a memory or a whole layer, and the memory's coefficient at the chosen position without it.

    The coefficient is None for a layer, and where the memory's stack has no such position: an encoder without BOS has no token
    at the position of the decoder's start token.
    """

    name: str
    change: Kind
    number: float | None
    coefficient: float | None


@dataclass(frozen=True)
class WriteEdit:
    """The command that writes the interventions into the model's weights, or why they cannot be written."""

    command: str | None
    why: str | None


@dataclass(frozen=True)
class PromptReading:
    """A prompt as read by the predicting layers; in an encoder–decoder, those of the decoder.

    Grid and steps are of the run with the interventions. The grid reads the residual or the output, or there is none.
    """

    text: str
    ids: list[int]
    tokens: list[str]
    position: int
    lens: str
    of: str
    grid: Grid | None
    spellings: dict[str, str]  # of every token id in the reading
    steps: list[Step]
    distribution: list[Choice]
    interventions: list[Applied]
    positions: list[int] | None  # where the interventions apply, counted from 0; None: at every position
    write: WriteEdit | None  # None without interventions


@dataclass(frozen=True)
class Promoter:
    """A memory, and the rank, the probability and the logit of a token in its value; the logit is relative to the mean logit."""

    memory: str
    logit: float
    rank: int
    probability: float


@dataclass(frozen=True)
class Promoters:
    """The memories that promote a token most, the number of memories searched, and the size of the vocabulary."""

    token: Token
    memories: int
    vocabulary: int
    rows: list[Promoter]


@dataclass(frozen=True)
class LayerPush:
    """What a layer's update adds, biases included, and what the rest of its block adds, such as attention."""

    layer: int
    ff: float
    rest: float


@dataclass(frozen=True)
class Push:
    """What one memory adds to A's logit minus B's, and the tokens that coefficient × value promotes."""

    memory: str
    coefficient: float
    push: float
    promotes: list[str]


@dataclass(frozen=True)
class Why:
    """A's logit minus B's, as the model computes it, and its parts: start + every layer's ff and rest + bias = total.

    The total is the difference itself, or the difference before the cap or the normalisers of the logits, as the note says.
    """

    text: str
    ids: list[int]
    tokens: list[str]
    position: int
    a: Token
    b: Token
    difference: float
    total: float
    start: float  # from the input of the first block: the embedding
    bias: float  # from the final norm and the unembedding
    layers: list[LayerPush]
    memories: list[Push]
    note: str | None


@dataclass(frozen=True)
class Ranked:
    """A memory at one position: the size of what it adds to the residual, what it adds to a token's logit, and what it promotes.

    Its size is |coefficient| × ‖value‖, with the value as added to the residual. Its push is what it adds to the logit directly,
    with the scale of the final norm frozen; None if the model's logits are no such sum, and in an encoder. Its effect is the
    change of the token's log-probability, in nats, if its coefficient were 0 at every token of the text, estimated to first order
    from the gradient: negative if it supports the token. None unless the memories are ranked by it.
    """

    memory: str
    coefficient: float | None  # None in an encoder that has no token at the position
    size: float
    share_of_layer: float  # of the sizes of its layer
    share_of_all: float  # of the sizes of all listed layers
    push: float | None
    effect: float | None
    promotes: list[str]


@dataclass(frozen=True)
class RankedMemories:
    """The memories of all layers that push a token's logit most, or affect it most, in either direction, or that write most.

    In an encoder–decoder those of the decoder; ranked by effect, those of both stacks.
    """

    text: str
    ids: list[int]
    tokens: list[str]
    position: int
    by: By
    target: Token  # by default the predicted token
    # The sum of all pushes: of memories, of attention and the rest of each block, and of the embedding and biases.
    logit: float | None
    memories: list[Ranked]
    note: str | None


@dataclass(frozen=True)
class Generated:
    """At most `new_tokens` tokens, up to EOS, without and with the interventions; `after` is None if there are none."""

    before: list[str]
    after: list[str] | None
    new_tokens: int
