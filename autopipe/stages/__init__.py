"""The stages, one file each. A new one is a file and a line here."""

from pathlib import Path
from typing import Final

from autopipe.config import Pipeline
from autopipe.pipeline.stage import Stage
from autopipe.stages.benchmark import Benchmark
from autopipe.stages.build import Build
from autopipe.stages.import_model import ImportModel
from autopipe.stages.lower import Lower
from autopipe.stages.optimize import Optimize
from autopipe.stages.package import Package
from autopipe.stages.tasks import Tasks
from autopipe.stages.tune import Tune
from autopipe.stages.verify import Verify

STAGES: Final[tuple[type[Stage], ...]] = (
    ImportModel,
    Optimize,
    Lower,
    Tasks,
    Tune,
    Build,
    Verify,
    Benchmark,
    Package,
)
"""All stages, in the order of the flow."""


def stages_of(pipeline: Pipeline, base: Path) -> tuple[Stage, ...]:
    """Return the stages that a pipeline file switches on; `base` is the folder of the file."""
    made = (stage.of(pipeline, base) for stage in STAGES)
    return tuple(stage for stage in made if stage is not None)
