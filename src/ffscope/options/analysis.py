"""How the stages after the search look at a study. The defaults are the paper's numbers."""

from dataclasses import dataclass
from typing import Annotated

from ffscope.models.lenses import check_lens_name, lens_names
from ffscope.options.fields import Help, StudyOptions


@dataclass(frozen=True)
class LensOptions(StudyOptions):
    """How vectors are read over the vocabulary."""

    lens: Annotated[
        str, Help("How vectors are read: as the model itself does, or as h·E; norm by default.", choices=lens_names)
    ] = "norm"

    def __post_init__(self) -> None:
        check_lens_name(self.lens)


@dataclass(frozen=True)
class ExampleOptions(StudyOptions):
    """Which examples are looked at."""

    examples: Annotated[int, Help("Held-out prefixes that are looked at; 4000 by default.", min=1)] = 4000
