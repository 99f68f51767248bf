"""Failures of child processes: detection, serialization and messages."""

import json
import traceback
from collections.abc import Mapping
from enum import StrEnum
from signal import Signals
from typing import Any, Final, NamedTuple

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
    """It did not answer in time."""
    HUNGRY = "out of memory"
    """It was refused memory."""
    RAISED = "raised"
    """It raised an unexpected exception."""
    REFUSED = "refused"
    """It raised an AutopipeError, which is its result."""
    GARBLED = "garbled"
    """It gave an invalid answer."""
    KNOWN = "known"
    """It failed in earlier runs, and was not tried."""


class Failure(NamedTuple):
    """The failure of a child."""

    how: How
    message: str
    """Description in one line."""
    kind: str = ""
    """The class of the exception; of an AutopipeError, the one in `autopipe.errors`."""
    text: str = ""
    """The message of the exception."""
    trace: str = ""
    """The traceback of an unexpected exception."""
    status: int = 0
    """Exit status of the child, negative for a signal; 0 if it did not end."""

    @property
    def ending(self) -> str:
        """Format the signal or exit status."""
        return Signals(-self.status).name if self.status < 0 else f"status {self.status}"

    def error(
        self,
        kinds: Mapping[str, type[AutopipeError]] | None = None,
        otherwise: type[AutopipeError] = StageError,
    ) -> AutopipeError:
        """Rebuild the AutopipeError that was raised; `kinds` are the allowed classes, by name."""
        error_class: object = (vars(errors) if kinds is None else kinds).get(self.kind)
        if isinstance(error_class, type) and issubclass(error_class, AutopipeError):
            return error_class(self.message)
        return otherwise(self.message)


def describe_raised(error: BaseException) -> Failure:
    """Describe an exception, where any exception is a failure of the work.

    Called in the child, as is `describe_refused`.
    """
    kind, trace = type(error).__name__, "".join(traceback.format_exception(error))
    if missing := refusal.explain_memory_error(error):
        return Failure(How.HUNGRY, missing, kind, str(error), trace)
    line = "".join(traceback.format_exception_only(error)).strip()
    return Failure(How.RAISED, line, kind, str(error), trace)


def describe_refused(error: BaseException) -> Failure:
    """Describe an exception, where an AutopipeError is raised again in the parent."""
    if isinstance(error, StageError):
        return describe_own_error(refusal.to_refusal_error(error) or error)
    if isinstance(error, AutopipeError):
        return describe_own_error(error)
    store_error = None if refusal.explain_memory_error(error) else refusal.to_store_error(error)
    return describe_own_error(store_error) if store_error else describe_raised(error)


def describe_ended(status: int, output: str = "", usage: Used | None = None) -> Failure:
    """Describe a child that ended without an answer, by its status and the end of its output."""
    if missing := refusal.explain_memory_refusal(output):
        return Failure(How.HUNGRY, missing, status=status)
    if status < 0:
        return Failure(How.CRASHED, describe_kill(-status, usage), status=status)
    return Failure(How.ENDED, f"ended by itself, with status {status}", status=status)


def describe_hung(seconds: float) -> Failure:
    """Describe a child that exceeded its time limit."""
    return Failure(How.HUNG, f"no answer within {seconds:g} s")


def describe_garbled() -> Failure:
    """Describe a child with an invalid answer."""
    return Failure(How.GARBLED, "an answer that cannot be read")


def encode_answer(value: object) -> bytes:
    """Encode the result of a child as a line. Raises the errors of `encode_message`."""
    return encode_message({"ok": value})


def encode_failure(failure: Failure) -> bytes:
    """Encode the failure of a child as a line."""
    return encode_message({"failed": failure._asdict()})


def decode_answer(line: bytes) -> tuple[Any, Failure | None]:
    """Decode the result or the failure of a child; the line is not trusted."""
    try:
        return split_answer(json.loads(line))
    except (ValueError, RecursionError):
        return None, describe_garbled()


def split_answer(message: object) -> tuple[Any, Failure | None]:
    """Split a parsed message like `decode_answer`."""
    parts = message if isinstance(message, dict) else {}
    if "ok" in parts:
        return parts["ok"], None
    try:
        fields = parts["failed"]
        message, kind, text, trace = (str(fields[name]) for name in _TEXTS)
        return None, Failure(How(fields["how"]), message, kind, text, trace, int(fields["status"]))
    except (ValueError, TypeError, LookupError):
        return None, describe_garbled()


def describe_own_error(error: AutopipeError) -> Failure:
    """Describe an AutopipeError."""
    kind = next(
        class_.__name__ for class_ in type(error).__mro__ if hasattr(errors, class_.__name__)
    )
    return Failure(How.REFUSED, str(error), kind, str(error))
