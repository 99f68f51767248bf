"""Section `benchmark`: what the build is timed against."""

from typing import Annotated, Literal

from pydantic import Field

from autopipe.config.distinct import Distinct
from autopipe.config.frozen import Frozen
from autopipe.config.quantity import Duration
from autopipe.config.samples import Samples

RivalName = Literal["onnxruntime", "openvino", "mnn"]
"""Runtimes that a build is timed against."""


class Benchmark(Frozen, frozen=True):
    """Latency of the build and its rivals, anew for each build. `benchmark: null` skips it."""

    against: Distinct[RivalName] = ("onnxruntime",)
    """Rivals, each in a process of its own, with the threads of the build, in float32 and otherwise
    at its fastest. The ratio that counts is the one to the fastest of them."""
    rounds: Annotated[int, Field(ge=1, le=100)] = 3
    """How often the contenders take turns. Rounds in which other programs took the processor do not
    count, if most were quiet."""
    warmup: Annotated[int, Field(ge=0, le=1000)] = 3
    """Runs of each contender in each round that are not counted; more of a model that is quick."""
    repeat: Annotated[int, Field(ge=1, le=10_000)] = 10
    """Counted runs of each contender in each round; more of a model that is quick."""
    inputs: Annotated[Samples | None, Field(exclude=True)] = None  # as those of `verify`
    """Real inputs to time on instead of random ones: a `.npz` file, as in `verify.inputs`."""
    timeout: Duration = 300.0
    """A contender that takes longer than this for one round is given up."""
