"""Parse plain YAML scalars: the core schema of YAML 1.2 where YAML 1.1 agrees.

Ambiguous words (`no`, `010`, `12:30:00`, `1_000`, a date) are refused, so that a file has the same
meaning to autopipe, to an editor and to a person.
"""

import math
import re

from autopipe.config.problem import format_value

Scalar = str | int | float | bool | None

_WORDS: dict[str, Scalar] = {"null": None, "~": None, "true": True, "false": False}
_INTEGER = re.compile(r"[-+]?(0|[1-9][0-9]*)")
_FLOAT = re.compile(r"[-+]?(\.[0-9]+|(0|[1-9][0-9]*)(\.[0-9]*)?)([eE][-+]?[0-9]+)?")
_NOT_TEXT = re.compile("[\0\ud800-\udfff]")
_LONGEST_NUMBER = 40
_TRAPS = (
    (
        re.compile(r"yes|no|on|off", re.IGNORECASE),
        "is a truth value to some YAML readers; write true or false, or put it in quotes",
    ),
    (re.compile(r"[-+]?\.inf|\.nan", re.IGNORECASE), "is not a finite number"),
    (
        re.compile(r"[-+]?[0-9][0-9_]*(:[0-5]?[0-9])+(\.[0-9_]*)?"),
        "is a number of base 60 to some YAML readers; put it in quotes",
    ),
    (
        re.compile(r"[0-9]{4}-[0-9]{1,2}-[0-9]{1,2}([Tt\s].*)?"),
        "is a date to some YAML readers; put it in quotes",
    ),
    (
        re.compile(r"[-+]?0[xXoObB][0-9a-fA-F_]+|[-+]?0[0-9_]+(\.[0-9_]*)?([eE][-+]?[0-9]+)?"),
        "is not the same number to all YAML readers; write it in decimal, or put it in quotes",
    ),
    (
        re.compile(r"[-+]?[0-9]+_[0-9_]*(\.[0-9_]*)?([eE][-+]?[0-9]+)?"),
        "is a number to some YAML readers; leave out the underscores, or put it in quotes",
    ),
    (re.compile(r"="), "means something else to some YAML readers; put it in quotes"),
    (re.compile(r"<<"), "is a merge key; write the fields out"),
)


def parse_plain_scalar(text: str) -> Scalar:
    """Parse a plain scalar. Raises ValueError for an ambiguous or invalid one."""
    if not text:
        raise ValueError("no value; write null if that is meant")
    word = text.lower()
    if word in _WORDS and text in (word, word.capitalize(), word.upper()):
        return _WORDS[word]
    if _FLOAT.fullmatch(text):
        return _parse_number(text)
    for trap, message in _TRAPS:
        if trap.fullmatch(text):
            raise ValueError(f"{format_value(text)} {message}")
    return text


def check_quoted_scalar(text: str) -> str:
    """Return the text of a quoted scalar; raise ValueError for NUL or lone surrogates."""
    if _NOT_TEXT.search(text):
        raise ValueError("holds a NUL or half a character; leave that out")
    return text


def _parse_number(text: str) -> int | float:
    if len(text) > _LONGEST_NUMBER:
        raise ValueError(
            f"a number of {len(text)} characters; write it shorter, or put it in quotes"
        )
    if _INTEGER.fullmatch(text):
        return int(text)
    number = float(text)
    if not math.isfinite(number):
        raise ValueError(f"{text} is too large for a number")
    return number
