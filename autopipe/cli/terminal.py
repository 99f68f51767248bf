"""What commands print besides the events of a run."""

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
"""Characters of a line for people."""


def print_lines(lines: Iterable[str]) -> None:
    """Print lines on stdout, harmless to a terminal and to a CI; each stays one line.

    Raises StoreError where it is a file that can not take them.
    """
    _write_texts(escape_output_line(line, _LONGEST) + "\n" for line in lines)


def show_text(text: str) -> None:
    """Print a text for programs on stdout as it is: whoever wrote it has made it harmless.

    Raises StoreError where it is a file that can not take it.
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


def escape_given_words(message: str, given: Iterable[str]) -> str:
    """Keep what the command line names on one line, wherever a message names it again."""
    for word in given:
        if "\n" in word:
            message = message.replace(word, escape_text(word))
    return message


def print_error(message: str) -> None:
    """Print a message on stderr, harmless to a terminal."""
    Output(sys.stderr).write(escape_lines(message, 2000) + "\n")


def complain_of_load(disturbed: str | None) -> None:
    """Warn, on stderr, of times that were measured while something took the processor."""
    if disturbed is not None:
        print_error(f"warning: profile: {disturbed}; profile again on a quiet machine")


def complain_of(error: Exception, about: str = "") -> None:
    """Print what ended a command: the message, or the traceback of a bug.

    It is called where the error is handled.
    """
    failure = to_final_error(error)
    if failure is None:
        print_error(f"{traceback.format_exc()}\nerror: {about}this is a bug in autopipe")
        return
    if os.environ.get("AUTOPIPE_DEBUG"):
        traceback.print_exc()
    print_error(escape_given_words(f"error: {about}{failure}", sys.argv[1:]))


def hang_up() -> None:
    """Let the interpreter end quietly where nobody reads our output any more, or nothing takes it.

    It would try to write once more what is left in the buffer, and end in 120 where that fails.
    """
    with suppress(OSError, ValueError, AttributeError):
        try:
            sys.stdout.flush()
        except OSError:
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
