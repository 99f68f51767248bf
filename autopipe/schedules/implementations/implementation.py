"""What an implementation is: another PrimFunc that computes the same, with the same parameters.

Work on weights (a packed layout, a Winograd kernel) is in blocks marked with TVM's annotation
`meta_schedule.layout_rewrite_preproc`; the build takes them out and runs them once.
"""

from collections.abc import Iterator, Mapping
from types import MappingProxyType
from typing import Final, Protocol

import tvm

from autopipe.schedules.conditions import Conditions
from autopipe.schedules.hardware import Hardware

DIRECT: Final = "direct"
"""The implementation that is the workload itself."""


class Implementation(Protocol):
    """A module that knows another way to compute a family of functions."""

    @property
    def NAME(self) -> str:  # noqa: N802 - a constant of a module
        """Name in YAML, records and reports."""

    @property
    def FAST(self) -> bool:  # noqa: N802 - a constant of a module
        """Whether it rounds differently, so that `numerics.fast_algorithms: false` forbids it."""

    def rewrite(self, workload: tvm.IRModule) -> tvm.IRModule | None:
        """Return the implementation as `main`, or None if it does not serve the workload."""

    def gain(self, workload: tvm.IRModule, hardware: Hardware) -> float:
        """Estimate how many times faster than `direct` it is: what engine `static` goes by."""


def implementations(workload: tvm.IRModule, conditions: Conditions) -> Mapping[str, tvm.IRModule]:
    """Return every implementation of a workload, by name, `direct` first."""
    found = {DIRECT: workload}
    for implementation in allowed(conditions):
        module = implementation.rewrite(workload)
        if module is not None:
            found[implementation.NAME] = module
    return MappingProxyType(found)


def names(conditions: Conditions) -> tuple[str, ...]:
    """Return the names of all implementations that may be used, but for `direct`."""
    return tuple(each.NAME for each in allowed(conditions))


def implement(workload: tvm.IRModule, name: str, conditions: Conditions) -> tvm.IRModule | None:
    """Return one implementation of a workload, or None if it has none of that name here."""
    if name == DIRECT:
        return workload
    named = (each for each in allowed(conditions) if name == each.NAME)
    return next((each.rewrite(workload) for each in named), None)


def allowed(conditions: Conditions) -> Iterator[Implementation]:
    """Yield those that may be used: libraries last.

    Rewritten loops are none on a GPU: they are made for a processor's caches.
    """
    from autopipe.schedules.implementations import rewrites
    from autopipe.schedules.implementations.dispatch import available
    from autopipe.schedules.implementations.library import LibraryCall

    for implementation in () if conditions.hardware.gpu else rewrites():
        if conditions.fast_algorithms or not implementation.FAST:
            yield implementation
    for library in available(conditions):
        yield LibraryCall(library, conditions.hardware.cores)
