"""Finds the prefixes with the highest coefficients for every memory, in one pass over the study's sentences."""

from ffscope.corpus.reading import Reading
from ffscope.engines.base import Engine
from ffscope.options.search import SearchOptions
from ffscope.progress import ProgressCallback, no_progress
from ffscope.search.plan import make_plan, requested_settings
from ffscope.search.write import write_tables


def find_triggers(
    reading: Reading,
    engine: Engine,
    options: SearchOptions,
    *,
    checkpoint_every: float = 60.0,
    progress: ProgressCallback = no_progress,
) -> None:
    """Search the sentences of a study: triggers.parquet, memories.parquet, and optionally negative_triggers.parquet.

    The last of the sentences may still be read.

    An interrupted search resumes from its last checkpoint, and ends with the same files as one that was not interrupted.
    """
    study = reading.study
    if study.done("triggers", requested_settings(options)):
        engine.discard_search(study)
        return
    result = None
    while result is None:
        plan = make_plan(engine, options, reading)
        result = engine.search(reading, plan, checkpoint_every=checkpoint_every, progress=progress)
    reading.wait()
    total = plan.total or study.manifest["corpus"]["searched"]
    write_tables(study, plan.names(engine.info), result.state)
    study.finish("triggers", plan.settings, seconds=result.seconds, tokens=total["prefixes"], **total)
    engine.discard_search(study)
