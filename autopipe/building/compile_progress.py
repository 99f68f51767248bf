"""Progress of compilation: the number of functions that child processes have compiled."""

from collections.abc import Mapping

from autopipe.building.prepared_checks import PreparedChecks
from autopipe.pipeline.counted import Watch


class CompileProgress:
    """Counts compiled kernels, and compiled reference loops of their checks.

    The kernels of a module count when a part of them is compiled, reference loops when their batch
    is.
    """

    def __init__(self, watch: Watch, checks: PreparedChecks, kernels: Mapping[str, int]) -> None:
        """Begin to count; `kernels` is their number in each module, by its label."""
        self._checks = checks
        self._kernels = kernels
        self._before = checks.count_compiled()
        """Reference loops that were compiled during planning, which are not counted."""
        self._reported = -1
        total = sum(kernels.values()) + checks.count_prepared() - self._before
        self._report = watch.count("functions compiled", total)

    def count(self, answers: Mapping[str, object]) -> None:
        """Report the number of compiled functions where it has changed.

        `answers` are those of children by label: the share that is done of kernels, or the result.
        """
        count = self._checks.count_compiled() - self._before
        for label, answer in answers.items():
            share = answer if isinstance(answer, float) else 1.0
            count += int(share * self._kernels[label])
        if count > self._reported:
            self._reported = count
            self._report(count)
