"""Progress of compilation: the number of functions that child processes have compiled."""

import time
from collections.abc import Mapping

from autopipe.building.prepared_checks import PreparedChecks
from autopipe.pipeline.counted import INTERVAL, Watch
from autopipe.processes.contained import Child
from autopipe.processes.link import wait_for_readable


class CompileProgress:
    """Counts compiled kernels, and compiled reference loops of their checks.

    The kernels of a module count when its child answers, reference loops when their batch ends.
    """

    def __init__(self, watch: Watch, checks: PreparedChecks, kernels: Mapping[str, int]) -> None:
        """Begin to count; `kernels` is their number in each module, by its label."""
        self._checks = checks
        self._kernels = kernels
        self._compiled = 0
        self._before = checks.count_compiled()
        """Reference loops that were compiled during planning, which are not counted."""
        self._reported = -1
        total = sum(kernels.values()) + checks.count_prepared() - self._before
        self._report = watch.count("functions compiled", total)

    def wait(self, label: str, child: Child) -> bool:
        """Wait until a child has compiled a module; return whether its time limit passed."""
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
        count = self._compiled + self._checks.count_compiled() - self._before
        if count > self._reported:
            self._reported = count
            self._report(count)
