"""Settings of a worker; a module without asyncio, which `plan` does not need."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Joining:
    """The settings with which a worker joins a farm."""

    scheduler: str
    label: str
    certificates: str | None = None
    patience: float = 600.0
    """Seconds for which it retries to reach a scheduler."""
