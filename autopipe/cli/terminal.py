"""Print the output of commands, except the events of a run."""

import json
import os
import sys
import traceback
from collections.abc import Iterable
from contextlib import suppress
from typing import Final

from autopipe.errors import StoreError
from autopipe.host.refusal import to_final_error
from autopipe.report.escape import escape_json, escape_lines, escape_output_line, escape_text
from autopipe.report.output import Output

_LONGEST: Final = 10_000
"""Largest number of characters of a line for people."""


def print_lines(lines: Iterable[str]) -> None:
    """Print lines on stdout, escaped for terminals and CIs; each stays one line.

    Raises StoreError where stdout is a file that cannot be written.
    """
    _write_texts(escape_output_line(line, _LONGEST) + "\n" for line in lines)


def show_text(text: str) -> None:
    """Print a text for programs on stdout without escaping; the caller has escaped it.

    Raises StoreError where stdout is a file that cannot be written.
    """
    _write_texts([text])


def _write_texts(texts: Iterable[str]) -> None:
    out = Output(sys.stdout)
    for text in texts:
        out.write(text)
    if out.refused:
        raise StoreError(f"standard output: {out.refused}")


def show_json(value: object) -> None:
    """Print a JSON value on stdout, in ASCII."""
    show_text(escape_json(json.dumps(value, indent=2, sort_keys=True)) + "\n")


def escape_given_words(message: str, words: Iterable[str]) -> str:
    """Escape command-line arguments with line breaks wherever a message contains them."""
    for word in words:
        if "\n" in word:
            message = message.replace(word, escape_text(word))
    return message


def print_error(message: str) -> None:
    """Print a message on stderr, escaped for a terminal."""
    Output(sys.stderr).write(escape_lines(message, 2000) + "\n")


def print_warning(text: str) -> None:
    """Print a warning on stderr."""
    print_error(f"warning: {text}")


def complain_of_load(disturbance: str | None) -> None:
    """Warn on stderr of times that were measured while other programs used the processor."""
    if disturbance is not None:
        print_warning(f"profile: {disturbance}; profile again on a quiet machine")


def complain_of(error: Exception, about: str = "") -> None:
    """Print the error that ended a command: the message, or the traceback of a bug.

    Call it inside the exception handler.
    """
    failure = to_final_error(error)
    if failure is None:
        print_error(f"{traceback.format_exc()}\nerror: {about}this is a bug in autopipe")
        return
    if os.environ.get("AUTOPIPE_DEBUG"):
        traceback.print_exc()
    print_error(escape_given_words(f"error: {about}{failure}", sys.argv[1:]))


def hang_up() -> None:
    """Flush stdout so that the interpreter ends quietly without a reader or on a full disk.

    Otherwise it would flush the buffer again, and end with exit code 120 where that fails.
    """
    with suppress(OSError, ValueError, AttributeError):
        try:
            sys.stdout.flush()
        except OSError:
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
