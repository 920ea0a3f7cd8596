"""One step of annotating, as `ffscope annotate` takes it: write a sheet, read it back, or look at who agrees."""

from dataclasses import dataclass
from pathlib import Path

from ffscope.annotating.annotator_agreement import Concord, concord
from ffscope.annotating.sheets import ReadBack, Sheet, choose, read_sheet, write_sheet
from ffscope.errors import InputError
from ffscope.study.folder import Study


@dataclass(frozen=True)
class Step:
    """What came of a step: a sheet, or what one held and how far its annotator agrees, or the latter alone."""

    sheet: Sheet | None = None
    read: ReadBack | None = None
    concord: Concord | None = None


def annotate(
    folder: Path | str,
    annotator: str | None = None,
    *,
    sample: int | None = None,
    names: str | None = None,
    seed: int | None = None,
    read: Path | None = None,
) -> Step:
    """Write an annotator's sheet; or read it back; or, where nobody is named, see who did what and how far they agree."""
    study = Study.open(folder)
    study.need("triggers")
    choosing = any(given is not None for given in (sample, names, seed))
    if annotator is None:
        if choosing or read is not None:
            raise InputError("Whose sheet is it? Name who annotates with --annotator.")
        return Step(concord=concord(study))
    if read is None:
        return Step(sheet=write_sheet(study, annotator, choose(study, sample=sample, names=names, seed=seed)))
    if choosing:
        raise InputError(
            "A sheet that is read back has its memories already. Leave out --sample, --memories and --seed."
        )
    return Step(read=read_sheet(study, annotator, read), concord=concord(study))
