"""The lock mode of a run, set by its options."""

from enum import StrEnum

from autopipe.errors import ConfigError


class Mode(StrEnum):
    """How a run treats the lock beside its pipeline file."""

    AUTO = "auto"
    """A current lock is replayed; otherwise everything is tuned, and the lock written."""
    UPDATE = "update"
    """Tasks in the lock keep their schedules; the others are tuned, and the lock written."""
    LOCKED = "locked"
    """It must be current."""
    FROZEN = "frozen"
    """It must be current for the target it names, and nothing is measured."""
    OFF = "off"
    """It is neither read nor written."""

    @property
    def strict(self) -> bool:
        """Whether a lock that is not current ends the run."""
        return self in {Mode.LOCKED, Mode.FROZEN}


def check_mode(mode: Mode, *, partial: bool, signed: bool = False) -> None:
    """Raise ConfigError for `--update` of a partial run, or signers in a mode that may write."""
    if signed and not mode.strict:
        raise ConfigError("--signers is for runs that follow the lock: add --frozen or --locked")
    if partial and mode is Mode.UPDATE:
        raise ConfigError("--update writes the lock of the whole file: leave out --set and --until")
