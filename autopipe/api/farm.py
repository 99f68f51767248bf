"""What a user asks of a farm: to schedule, to work, certificates, and who is there."""

from collections.abc import Callable
from pathlib import Path

from pydantic import TypeAdapter, ValidationError

from autopipe.config import tuning
from autopipe.errors import ConfigError
from autopipe.farm import certificates
from autopipe.farm.worker import Joining

__all__ = ["Joining", "address", "checked_label", "make_certificates", "schedule", "work"]


def address(text: str) -> str:
    """Return the address of a scheduler as it is. Raises ConfigError."""
    try:
        return tuning.scheduler(text)
    except ValueError as error:
        raise ConfigError(f"{text} {error}") from None


def checked_label(text: str) -> str:
    """Return the label of a kind of machines as it is. Raises ConfigError."""
    try:
        return TypeAdapter(tuning.Label).validate_python(text)
    except ValidationError:
        raise ConfigError(f"{text!r} is no label; letters, digits, `.`, `_` and `-`") from None


def schedule(listen: str, folder: Path | None, tell: Callable[[str], None]) -> None:
    """Be the scheduler of a farm until SIGTERM. Raises ConfigError and SetupError."""
    from autopipe.farm import scheduler

    scheduler.serve(address(listen), None if folder is None else str(folder), tell)


def work(joining: Joining, tell: Callable[[str], None]) -> None:
    """Be a worker of a farm until SIGTERM. Raises SetupError."""
    from autopipe.farm import worker

    worker.serve(joining, tell)


def make_certificates(folder: Path) -> list[str]:
    """Make the certificates of a new farm; return lines that say so. Raises SetupError."""
    made = certificates.make(folder)
    told = f"copy {folder} to the scheduler, every worker and whoever tunes"
    return [*(f"wrote {path}" for path in made), f"{told}; they end in {certificates.DAYS} days"]
