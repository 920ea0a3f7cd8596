"""Compares two models memory by memory: `diff`, on two studies, or on two models of which studies are made first."""

from pathlib import Path
from typing import Any

from ffscope.analysis.diff import compare
from ffscope.engines.local import LocalEngine
from ffscope.errors import InputError
from ffscope.models.loading import load
from ffscope.models.memory_model import MemoryModel
from ffscope.options.corpus import CorpusOptions
from ffscope.options.search import SearchOptions
from ffscope.pipeline import analyse, open_for_stage, options_of, triggers
from ffscope.progress import ProgressCallback, no_progress
from ffscope.stages.registry import stages
from ffscope.stages.stage import Work
from ffscope.study.folder import Study
from ffscope.study.status import noting

Source = Path | str | MemoryModel


def diff(
    before: Source,
    after: Source,
    *,
    model_before: Source | None = None,
    model_after: Source | None = None,
    corpus: CorpusOptions | None = None,
    out: Path | str | None = None,
    search: SearchOptions | None = None,
    device: str = "auto",
    progress: ProgressCallback = no_progress,
    **options: Any,
) -> Study:
    """Compare the memories of two studies, made over the same text: the results are added to the study `after`, which is returned.

    The models are loaded from where the studies record them, unless they are given. With a `corpus` and a folder `out`, `before`
    and `after` are models instead: their studies are made first, in OUT/a and OUT/b. `options` are those of the stage: match,
    diff_tokens, diff_prefixes, universal_above.
    """
    if corpus is None:
        studies = [_study(source) for source in (before, after)]
        sources = zip(studies, (model_before, model_after), strict=True)
        models = [_model_of(study, source, device) for study, source in sources]
    else:
        if out is None:
            raise InputError("Expected a folder for the studies of the two models: name one with out=DIR (--out).")
        models = [_loaded(source, device) for source in (before, after)]
        studies = [
            make_study(model, corpus, Path(out) / name, search, progress)
            for model, name in zip(models, ("a", "b"), strict=True)
        ]
    return diff_studies(studies[0], models[0], studies[1], models[1], progress=progress, **options)


def diff_studies(
    before: Study,
    model_before: MemoryModel,
    after: Study,
    model_after: MemoryModel,
    *,
    progress: ProgressCallback = no_progress,
    **options: Any,
) -> Study:
    """The same, with two studies and their loaded models. The first study is only read."""
    engine = LocalEngine(model_after)
    with open_for_stage(after.folder, engine, stages()["diff"]) as study, noting(study, progress) as noted:
        compare(before, model_before, Work(study, options_of(study, options), engine, noted))
    return study


def make_study(
    model: MemoryModel,
    corpus: CorpusOptions,
    folder: Path,
    search: SearchOptions | None = None,
    progress: ProgressCallback = no_progress,
) -> Study:
    """The study that a comparison needs: triggers and values. Finished work is not repeated."""
    folder.parent.mkdir(parents=True, exist_ok=True)
    triggers(model, corpus, folder, search=search, progress=progress)
    return analyse("values", model, folder, progress=progress)


def is_study(source: Path | str) -> bool:
    """Whether a path is that of a study."""
    return (Path(source) / "study.json").is_file()


def _study(source: Source) -> Study:
    if isinstance(source, MemoryModel):
        raise InputError(
            "Expected the folders of two studies. To compare two models, also pass corpus=CorpusOptions(…) and out=DIR."
        )
    return Study.open(source)


def _loaded(source: Source, device: str) -> MemoryModel:
    return source if isinstance(source, MemoryModel) else load(source, device=device)


def _model_of(study: Study, source: Source | None, device: str) -> MemoryModel:
    """A study's model: as given, or from where the study records it, in the precision that it records."""
    if isinstance(source, MemoryModel):
        return source
    recorded = study.manifest["model"]
    return load(
        source or recorded["source"], device=device, dtype=recorded["dtype"], model_type=recorded.get("model_type")
    )
