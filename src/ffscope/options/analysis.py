"""Options that several stages after the search share. The defaults are the paper's."""

from dataclasses import dataclass
from typing import Annotated

from ffscope.models.lenses import check_lens_name, lens_names
from ffscope.options.fields import Help, StudyOptions


@dataclass(frozen=True)
class LensOptions(StudyOptions):
    """How vectors are projected to the vocabulary."""

    lens: Annotated[
        str,
        Help(
            "How vectors are projected to the vocabulary: norm, as the model itself does, through the final norm and the "
            "unembedding; raw, through the unembedding alone, as in the paper; tuned and jacobian, as learned by `ffscope lens`; "
            "norm by default.",
            choices=lens_names,
        ),
    ] = "norm"

    def __post_init__(self) -> None:
        check_lens_name(self.lens)


@dataclass(frozen=True)
class ExampleOptions(StudyOptions):
    """How many examples are analysed."""

    examples: Annotated[int, Help("Number of held-out prefixes to analyse; 4000 by default.", min=1)] = 4000
