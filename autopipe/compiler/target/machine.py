"""Check that the host can run code for a target."""

from collections.abc import Mapping

from autopipe.backends import find_backend
from autopipe.compiler.target import cpu
from autopipe.errors import TargetError


def check(target: Mapping[str, object], stage: str | None = None) -> None:
    """Raise TargetError if the host cannot run code for a target, with advice for a stage.

    `target` is the resolved facts of `Facet.TARGET`.
    """
    try:
        _check_target(target)
    except TargetError as error:
        if stage is None:
            raise
        advice = f"run {stage} on a machine that has it, or set `{stage}: null`"
        raise TargetError(f"{error}; {advice}") from None


def _check_target(target: Mapping[str, object]) -> None:
    cpu.check_features(
        cpu.find_architecture(target), str(target["mcpu"]), cpu.list_required_features(target)
    )
    find_backend(target).check_device(target)
