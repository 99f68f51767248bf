"""How a worker joins a farm; without asyncio, which `plan` does not need."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Joining:
    """How a worker joins."""

    scheduler: str
    label: str
    certificates: str | None = None
    patience: float = 600.0
    """Seconds for which it looks for a scheduler that is not there."""
