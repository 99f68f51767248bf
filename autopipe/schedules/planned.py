"""A schedule that was made without measurement, and the record that reproduces it."""

from dataclasses import dataclass

import tvm


@dataclass(frozen=True, slots=True)
class Planned:
    """A scheduled workload."""

    implementation: str
    """Name of the implementation that was scheduled."""
    schedule: str
    """The record: a trace, or a template with its knobs, as `replay` reads it."""
    module: tvm.IRModule
    """The module with `main` scheduled."""
