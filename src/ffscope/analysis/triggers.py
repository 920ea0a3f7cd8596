"""For every memory the prefixes of a study's sentences with the highest coefficients, in one pass over all layers."""

from ffscope.models.memory_model import MemoryModel
from ffscope.options.search import SearchOptions
from ffscope.progress import ProgressCallback, no_progress
from ffscope.search import checkpoint
from ffscope.search.engines import engine
from ffscope.search.plan import given_settings, make_plan
from ffscope.search.write import write_tables
from ffscope.study.folder import Study


def find_triggers(
    study: Study,
    model: MemoryModel,
    options: SearchOptions,
    *,
    checkpoint_every: float = 60.0,
    progress: ProgressCallback = no_progress,
) -> None:
    """Search the study's sentences: triggers.parquet, memories.parquet, and negative_triggers.parquet if wanted.

    An interrupted search resumes from its last checkpoint, and ends with the same files as one that was not interrupted.
    """
    if study.done("triggers", given_settings(options)):
        checkpoint.discard(study)
        return
    plan = make_plan(study, model, options)
    result = engine("local").run(study, model, plan, checkpoint_every=checkpoint_every, progress=progress)
    write_tables(study, plan.groups(model), result.state)
    study.finish("triggers", plan.settings, seconds=result.seconds, tokens=plan.prefixes, **plan.total)
    checkpoint.discard(study)
