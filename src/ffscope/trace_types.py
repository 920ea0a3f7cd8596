"""The types of a traced prediction. No torch."""

from dataclasses import dataclass

from ffscope.cases import Case


@dataclass(frozen=True)
class Prediction:
    """A token with its probability under the lens."""

    token: str
    id: int
    probability: float


@dataclass(frozen=True)
class Contribution:
    """A memory with its coefficient, its share of the layer's Σ |coefficient| × ‖value‖, and the tokens it promotes here.

    With a negative coefficient, a memory promotes the tokens that its value suppresses.
    """

    memory: str
    coefficient: float
    share: float
    promotes: list[str]


@dataclass(frozen=True)
class Step:
    """One layer: what the residual, the feed-forward layer and their sum predict; how many memories are active."""

    layer: int
    before: Prediction
    ff: Prediction
    after: Prediction
    case: Case
    active: int
    memories: list[Contribution]


@dataclass(frozen=True)
class PredictionTrace:
    """The prediction at one position, layer by layer."""

    model: str
    lens: str
    text: str
    ids: list[int]
    tokens: list[str]
    position: int
    steps: list[Step]
    prediction: list[Prediction]
