"""The pipeline file: one frozen model a section."""

from typing import Annotated, Literal

from pydantic import Field, StringConstraints

from autopipe.config.benchmark import Benchmark
from autopipe.config.frozen import Frozen
from autopipe.config.gates import Gates
from autopipe.config.layout import Layout
from autopipe.config.model import Model
from autopipe.config.package import Package
from autopipe.config.schedules import Schedules
from autopipe.config.target import Target
from autopipe.config.tasks import Tasks
from autopipe.config.tuning import Tuning
from autopipe.config.verify import Verify

__all__ = [
    "Benchmark", "Frozen", "Gates", "Layout", "Model", "Package", "Pipeline", "Schedules",
    "Target", "Tasks", "Tuning", "Verify",
]  # fmt: skip


class Pipeline(Frozen, frozen=True):
    """A whole pipeline file, version 1."""

    version: Literal[1]
    """Version of this grammar."""
    name: Annotated[str, StringConstraints(pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]{0,99}$")]
    """Name of the pipeline; the package is called `<name>.tar`."""
    model: Model
    """Where the model comes from."""
    target: Target = Target()
    """The hardware that is compiled for."""
    layout: Layout | None = None
    """Desired layouts by Relax op, such as `conv2d: [NHWC, HWIO]`; null keeps the model's."""
    tasks: Tasks = Field(default_factory=Tasks)
    """Which of the extracted tasks are tuned."""
    tuning: Tuning | None = Field(default_factory=Tuning)
    """The search for schedules; null skips it."""
    schedules: Schedules = Field(default_factory=Schedules)
    """Which engine may schedule which task."""
    verify: Verify | None = Field(default_factory=Verify)
    """Comparison with a reference; null skips it."""
    benchmark: Benchmark | None = Field(default_factory=Benchmark)
    """Latency against rivals; null skips it."""
    gates: Gates = Gates()
    """What a build must reach to be published."""
    package: Package | None = Field(default_factory=Package)
    """The file that is shipped; null skips it."""
