"""Create and check the stages of a pipeline without a store."""

from collections.abc import Collection
from pathlib import Path

from autopipe.api import cross
from autopipe.config.pipeline import Pipeline
from autopipe.pipeline.plan import Plan, build_plan, check_forced
from autopipe.pipeline.stage import Stage
from autopipe.stages import stages_of


def wire_stages(
    file: Path, pipeline: Pipeline, *, until: str | None = None, force: Collection[str] = ()
) -> tuple[tuple[Stage, ...], Plan]:
    """Create the stages of a pipeline, and plan the requested ones.

    Raises ConfigError for mistakes that can be detected without the store.
    """
    stages = stages_of(pipeline, file.absolute().parent)
    plan = build_plan(stages, until=until)
    check_forced(force, stages, plan)
    cross.check_linker(pipeline.target, plan, pipeline.target.mtriple)
    return stages, plan
