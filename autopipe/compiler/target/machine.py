"""Whether code for a target runs on this machine."""

from collections.abc import Callable, Mapping

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
    backend = of_target(target)
    if backend.processor:
        return
    if backend.check is None:
        raise TargetError(f"built for {backend}, which does not run here: there is no runtime")
    backend.piece("check")(needed(target))


def needed(target: Mapping[str, object]) -> str | None:
    """Return what code for a target needs of a device, null where it needs none."""
    needs: Callable[[Mapping[str, object]], str] | None
    needs = of_target(target).piece("needs")
    return None if needs is None else needs(target)
