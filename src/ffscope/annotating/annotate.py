"""What `ffscope annotate` does: write a sheet, read it back, or measure agreement."""

from dataclasses import dataclass
from pathlib import Path

from ffscope.annotating.annotator_agreement import AgreementSummary, measure_agreement
from ffscope.annotating.sheets import Sheet, SheetContent, choose_memories, read_sheet, write_sheet
from ffscope.errors import InputError
from ffscope.study.folder import Study


@dataclass(frozen=True)
class AnnotateResult:
    """The sheet that was written, or the content of the one that was read and the agreement, or the agreement alone."""

    sheet: Sheet | None = None
    read: SheetContent | None = None
    concord: AgreementSummary | None = None


def annotate(
    folder: Path | str,
    annotator: str | None = None,
    *,
    sample: int | None = None,
    names: str | None = None,
    seed: int | None = None,
    read: Path | None = None,
) -> AnnotateResult:
    """Write an annotator's sheet, or read it back; without an annotator, report who annotated and how far they agree."""
    study = Study.open(folder)
    study.need("triggers")
    selects_memories = any(option is not None for option in (sample, names, seed))
    if annotator is None:
        if selects_memories or read is not None:
            raise InputError("A sheet needs an annotator. Name the person with --annotator.")
        return AnnotateResult(concord=measure_agreement(study))
    if read is None:
        return AnnotateResult(
            sheet=write_sheet(study, annotator, choose_memories(study, sample=sample, names=names, seed=seed))
        )
    if selects_memories:
        raise InputError(
            "A sheet that is read back already names its memories. Leave out --sample, --memories and --seed."
        )
    return AnnotateResult(read=read_sheet(study, annotator, read), concord=measure_agreement(study))
