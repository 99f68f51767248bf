"""The stages of a pipeline, one file each, registered in `STAGES`."""

from pathlib import Path
from typing import Final

from autopipe.config.pipeline import Pipeline
from autopipe.pipeline.stage import Stage
from autopipe.stages.benchmark import BenchmarkStage
from autopipe.stages.build import BuildStage
from autopipe.stages.import_model import ImportStage
from autopipe.stages.lower import LowerStage
from autopipe.stages.optimize import OptimizeStage
from autopipe.stages.package import PackageStage
from autopipe.stages.tasks import TasksStage
from autopipe.stages.tune import TuneStage
from autopipe.stages.verify import VerifyStage

STAGES: Final[tuple[type[Stage], ...]] = (
    ImportStage,
    OptimizeStage,
    LowerStage,
    TasksStage,
    TuneStage,
    BuildStage,
    VerifyStage,
    BenchmarkStage,
    PackageStage,
)
"""All stages, in the order of the flow."""

PRELOADED: Final = (
    "autopipe.compiler.import_tvm", "autopipe.stages", "autopipe.compiler.labels.op_info", "yaml",
)  # fmt: skip
"""The modules that most stages need: they are imported once, before a child is forked for each."""


def stages_of(pipeline: Pipeline, base: Path) -> tuple[Stage, ...]:
    """Create the stages that a pipeline file enables; `base` is the folder of the file."""
    stages = (stage.of(pipeline, base) for stage in STAGES)
    return tuple(stage for stage in stages if stage is not None)
