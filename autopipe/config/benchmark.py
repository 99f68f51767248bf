"""Section `benchmark`: timing of the build against reference runtimes."""

from typing import Annotated, Literal

from pydantic import Field

from autopipe.config.frozen import Distinct, Frozen
from autopipe.config.names import Samples
from autopipe.config.quantity import Duration

CompetitorName = Literal["onnxruntime", "openvino", "mnn"]
"""Runtimes that a build is timed against."""


class Benchmark(Frozen, frozen=True):
    """Latency of the build and of reference runtimes; `benchmark: null` skips it."""

    against: Distinct[CompetitorName] = ("onnxruntime",)
    """Reference runtimes, each in a process of its own, with the threads of the build, in float32
    and otherwise in its fastest configuration. The ratio to the fastest of them counts."""
    rounds: Annotated[int, Field(ge=1, le=100)] = 3
    """Number of rounds in which the runtimes alternate. Rounds in which other programs used the
    processor do not count, if most were quiet."""
    warmup: Annotated[int, Field(ge=0, le=1000)] = 3
    """Warm-up runs of each runtime in each round; more for a fast model."""
    repeat: Annotated[int, Field(ge=1, le=10_000)] = 10
    """Timed runs of each runtime in each round; more for a fast model."""
    inputs: Annotated[Samples | None, Field(exclude=True)] = None  # as those of `verify`
    """Real inputs to time on instead of random ones: a `.npz` file, as in `verify.inputs`."""
    timeout: Duration = 300.0
    """A runtime that takes longer than this for one round is abandoned."""
