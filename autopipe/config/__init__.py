"""The pipeline file: one frozen model a section."""

from autopipe.config.benchmark import Benchmark
from autopipe.config.frozen import Frozen
from autopipe.config.fusion import Fusion
from autopipe.config.gates import Gates
from autopipe.config.layout import Layout
from autopipe.config.model import Model
from autopipe.config.package import Package
from autopipe.config.pipeline import Pipeline
from autopipe.config.schedules import Schedules
from autopipe.config.target import Target
from autopipe.config.tasks import Tasks
from autopipe.config.tuning import Tuning
from autopipe.config.verify import Verify

__all__ = [
    "Benchmark", "Frozen", "Fusion", "Gates", "Layout", "Model", "Package", "Pipeline", "Schedules",
    "Target", "Tasks", "Tuning", "Verify",
]  # fmt: skip
