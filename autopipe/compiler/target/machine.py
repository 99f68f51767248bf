"""Whether code for a target runs on this machine."""

from collections.abc import Mapping

from autopipe.backends import of_target
from autopipe.compiler.target import cpu
from autopipe.errors import TargetError


def check(target: Mapping[str, object], stage: str | None = None) -> None:
    """Raise TargetError if it does not; the message says how to leave a stage out that is named.

    `target` is the resolved facts of `Facet.TARGET`.
    """
    try:
        _check(target)
    except TargetError as error:
        if stage is None:
            raise
        advice = f"run {stage} on a machine that has it, or set `{stage}: null`"
        raise TargetError(f"{error}; {advice}") from None


def _check(target: Mapping[str, object]) -> None:
    cpu.check(cpu.machine_of(target), str(target["mcpu"]), cpu.required(target))
    of_target(target).check_device(target)
