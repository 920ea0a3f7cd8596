"""How the stages after the search look at a study. The defaults are the paper's numbers."""

from dataclasses import dataclass
from typing import Annotated

from ffscope.errors import LensError
from ffscope.options.fields import Help, StudyOptions


def lens_names() -> tuple[str, ...]:
    """The lenses that there are."""
    return ("norm", "raw")


@dataclass(frozen=True)
class LensOptions(StudyOptions):
    """How vectors are read over the vocabulary."""

    lens: Annotated[
        str, Help("How vectors are read: as the model itself does, or as h·E; norm by default.", choices=lens_names)
    ] = "norm"

    def __post_init__(self) -> None:
        if self.lens not in lens_names():
            raise LensError(f"There is no lens {self.lens!r}. Choose one of: {', '.join(lens_names())}.")


@dataclass(frozen=True)
class ExampleOptions(StudyOptions):
    """Which examples are looked at."""

    examples: Annotated[int, Help("Held-out prefixes that are looked at; 4000 by default.", min=1)] = 4000
