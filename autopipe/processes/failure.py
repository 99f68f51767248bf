"""How a child failed: found out, told across processes and worded here, and nowhere else."""

import json
import traceback
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from enum import StrEnum
from signal import Signals
from typing import Any, Final

from autopipe import errors
from autopipe.errors import AutopipeError, StageError
from autopipe.host import refusal
from autopipe.host.memory import Used, describe_kill
from autopipe.processes.link import encode_message

_TEXTS: Final = ("message", "kind", "text", "trace")


class How(StrEnum):
    """How a child failed."""

    CRASHED = "crashed"
    """A signal ended it."""
    ENDED = "ended"
    """It ended by itself, and owed an answer."""
    HUNG = "hung"
    """It gave no answer in time."""
    HUNGRY = "out of memory"
    """It was refused memory."""
    RAISED = "raised"
    """It raised what nobody expected."""
    REFUSED = "refused"
    """It raised an error of ours: this is what was to be found out."""
    GARBLED = "garbled"
    """It gave an answer that is none."""
    KNOWN = "known"
    """It failed in earlier runs, and was not tried."""


@dataclass(frozen=True, slots=True)
class Failure:
    """How a child failed, and what else is known of it."""

    how: How
    message: str
    """In a line, for people."""
    kind: str = ""
    """The class of what was raised; of an error of ours, the one in `autopipe.errors`."""
    text: str = ""
    """What it said of itself."""
    trace: str = ""
    """The traceback of what nobody expected."""
    status: int = 0
    """With which the child ended, negative for a signal; 0 where it did not."""

    @property
    def ending(self) -> str:
        """Say with what the child ended."""
        return Signals(-self.status).name if self.status < 0 else f"status {self.status}"

    def error(
        self,
        kinds: Mapping[str, type[AutopipeError]] | None = None,
        otherwise: type[AutopipeError] = StageError,
    ) -> AutopipeError:
        """Return the error of ours that was raised; `kinds` are those it may be, by name."""
        known: object = (vars(errors) if kinds is None else kinds).get(self.kind)
        if isinstance(known, type) and issubclass(known, AutopipeError):
            return known(self.message)
        return otherwise(self.message)


def describe_raised(error: BaseException) -> Failure:
    """Return what was raised, for those to whom anything that is raised is a failure of the work.

    Called in the child, as is `describe_refused`.
    """
    kind, trace = type(error).__name__, "".join(traceback.format_exception(error))
    if missing := refusal.explain_memory_error(error):
        return Failure(How.HUNGRY, missing, kind, str(error), trace)
    line = "".join(traceback.format_exception_only(error)).strip()
    return Failure(How.RAISED, line, kind, str(error), trace)


def describe_refused(error: BaseException) -> Failure:
    """Return what was raised, for those who raise errors of ours again."""
    if isinstance(error, StageError):
        return describe_own_error(refusal.to_refusal_error(error) or error)
    if isinstance(error, AutopipeError):
        return describe_own_error(error)
    found = None if refusal.explain_memory_error(error) else refusal.to_store_error(error)
    return describe_own_error(found) if found else describe_raised(error)


def describe_ended(status: int, printed: str = "", used: Used | None = None) -> Failure:
    """Return how a child failed that has ended without an answer, after the last it printed."""
    if missing := refusal.explain_memory_refusal(printed):
        return Failure(How.HUNGRY, missing, status=status)
    if status < 0:
        return Failure(How.CRASHED, describe_kill(-status, used), status=status)
    return Failure(How.ENDED, f"ended by itself, with status {status}", status=status)


def describe_hung(seconds: float) -> Failure:
    """Return the failure of a child that was given so many seconds."""
    return Failure(How.HUNG, f"no answer within {seconds:g} s")


def describe_garbled() -> Failure:
    """Return the failure of a child whose answer makes no sense."""
    return Failure(How.GARBLED, "an answer that cannot be read")


def encode_answer(value: object) -> bytes:
    """Return the line that says what a child has found. Raises as `encode_message`."""
    return encode_message({"ok": value})


def encode_failure(failure: Failure) -> bytes:
    """Return the line that says how a child has failed."""
    return encode_message({"failed": asdict(failure)})


def decode_answer(line: bytes) -> tuple[Any, Failure | None]:
    """Return what a child has found, or how it has failed; its work may have it say anything."""
    try:
        return split_answer(json.loads(line))
    except (ValueError, RecursionError):
        return None, describe_garbled()


def split_answer(message: object) -> tuple[Any, Failure | None]:
    """Return what `decode_answer` does, of a message that was read already."""
    said = message if isinstance(message, dict) else {}
    if "ok" in said:
        return said["ok"], None
    try:
        found = said["failed"]
        message, kind, text, trace = (str(found[name]) for name in _TEXTS)
        return None, Failure(How(found["how"]), message, kind, text, trace, int(found["status"]))
    except (ValueError, TypeError, LookupError):
        return None, describe_garbled()


def describe_own_error(error: AutopipeError) -> Failure:
    """Return an error of ours as it is told."""
    kind = next(
        class_.__name__ for class_ in type(error).__mro__ if hasattr(errors, class_.__name__)
    )
    return Failure(How.REFUSED, str(error), kind, str(error))
