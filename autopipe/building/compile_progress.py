"""Counts the functions that a build has compiled, while it waits for the children that do so."""

import time
from collections.abc import Mapping

from autopipe.building.prepared_checks import PreparedChecks
from autopipe.pipeline.counted import INTERVAL, Watch
from autopipe.processes.contained import Child
from autopipe.processes.link import wait_for_readable


class CompileProgress:
    """Counts kernels, and the plain loops that are compiled at the same time for their checks.

    The kernels of a module count when its child answers, plain loops when their batch is compiled.
    """

    def __init__(self, watch: Watch, checks: PreparedChecks, kernels: Mapping[str, int]) -> None:
        """Begin to count; `kernels` is their number in each module, by its label."""
        self._checks = checks
        self._kernels = kernels
        self._compiled = 0
        self._before = checks.count_compiled()
        """Plain loops that were compiled while schedules were planned: they took no time here."""
        self._reported = -1
        total = sum(kernels.values()) + checks.count_prepared() - self._before
        self._report = watch.count("functions compiled", total)

    def wait(self, label: str, child: Child) -> bool:
        """Wait until a child has compiled a module; return whether its time is over before."""
        end = time.monotonic() + child.seconds
        while not wait_for_readable([child.link], INTERVAL):
            if time.monotonic() > end:
                return True
            self._count()
        self._compiled += self._kernels[label]
        self._count()
        return False

    def _count(self) -> None:
        """Report the number of compiled functions where it has changed."""
        compiled = self._compiled + self._checks.count_compiled() - self._before
        if compiled > self._reported:
            self._reported = compiled
            self._report(compiled)
