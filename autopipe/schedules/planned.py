"""A schedule that was made without measuring, with what it takes to make it again."""

from dataclasses import dataclass

import tvm


@dataclass(frozen=True, slots=True)
class Planned:
    """A scheduled workload."""

    implementation: str
    schedule: str
    """As `replay` reads it."""
    module: tvm.IRModule
    """The module with `main` scheduled."""
