"""The protocol of implementations: equivalent PrimFuncs with the same parameters.

The preparation of weights (packing, the transform of a Winograd kernel) is in blocks with TVM's
annotation `meta_schedule.layout_rewrite_preproc`. The build extracts these and runs them once.
"""

from collections.abc import Iterator, Mapping
from types import MappingProxyType
from typing import Final, Protocol

import tvm

from autopipe.schedules.conditions import Conditions
from autopipe.schedules.hardware import HardwareParams

DIRECT: Final = "direct"
"""Name of the implementation that is the workload itself, as it was lowered."""


class Implementation(Protocol):
    """An alternative algorithm for a family of functions; a module or an object."""

    @property
    def NAME(self) -> str:  # noqa: N802 - a constant of a module
        """Name in YAML, records and reports."""

    @property
    def FAST(self) -> bool:  # noqa: N802 - a constant of a module
        """Whether it rounds differently, so that `numerics.fast_algorithms: false` forbids it."""

    def rewrite(self, workload: tvm.IRModule) -> tvm.IRModule | None:
        """Return the rewritten workload as `main`, or None if it does not support the workload."""

    def gain(self, workload: tvm.IRModule, hardware: HardwareParams) -> float:
        """Return the estimated speed relative to `direct`, by which engine `static` selects."""


def build_implementations(
    workload: tvm.IRModule, conditions: Conditions
) -> Mapping[str, tvm.IRModule]:
    """Build every implementation of a workload, by name, `direct` first."""
    modules = {DIRECT: workload}
    for implementation in list_allowed(conditions):
        module = implementation.rewrite(workload)
        if module is not None:
            modules[implementation.NAME] = module
    return MappingProxyType(modules)


def list_allowed_names(conditions: Conditions) -> tuple[str, ...]:
    """Return the names of all allowed implementations, without `direct`."""
    return tuple(implementation.NAME for implementation in list_allowed(conditions))


def build_implementation(
    workload: tvm.IRModule, name: str, conditions: Conditions
) -> tvm.IRModule | None:
    """Build an implementation of a workload by name, or return None if there is none here."""
    if name == DIRECT:
        return workload
    candidates = (candidate for candidate in list_allowed(conditions) if name == candidate.NAME)
    return next((implementation.rewrite(workload) for implementation in candidates), None)


def list_allowed(conditions: Conditions) -> Iterator[Implementation]:
    """Yield the allowed implementations, libraries last.

    On a GPU only libraries are allowed: the rewritten loops are designed for a CPU's caches.
    """
    # Imported late: these modules import this one.
    from autopipe.schedules.implementations.dispatch import list_available
    from autopipe.schedules.implementations.library import LibraryCall

    for implementation in conditions.hardware.backend.implementations():
        if conditions.fast_algorithms or not implementation.FAST:
            yield implementation
    for library in list_available(conditions):
        yield LibraryCall(library, conditions.hardware.cores)
