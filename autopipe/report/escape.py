"""Text from model files and YAML, made safe for a terminal, and for a log that a CI reads."""

import re

LIMIT = 200

_COMMAND = re.compile(r"^(\s*):(?=:)|#(?=#\[)")
"""What GitHub takes for a command: `::` where a line begins, and `##[` anywhere in it."""


def escape_text(text: str, limit: int = LIMIT) -> str:
    r"""Return `text` on one line, without control, format or bidi characters, at most `limit` long.

    What can not be printed is written as in Python source (`\x1b`); of a long text, head and tail
    stay.
    """
    long = len(text) > limit
    half = limit // 2  # a megabyte is cut before it is looked at
    parts = [
        _escape_unprintable(part) for part in ((text[:half], text[-half:]) if long else (text,))
    ]
    if not long and len(parts[0]) <= limit:
        return parts[0]
    room = max(limit - 3, 0)
    head, tail = room - room // 2, room // 2
    return f"{parts[0][:head]}...{parts[-1][len(parts[-1]) - tail :]}"[:limit]


def escape_lines(text: str, limit: int = LIMIT) -> str:
    """Escape each line of a message of several lines."""
    return "\n".join(escape_output_line(line, limit) for line in text.split("\n"))


def escape_output_line(text: str, limit: int) -> str:
    """Return `text` as a line of output: escaped, and nothing that a CI obeys."""
    return _COMMAND.sub(_escape_ci_command, escape_text(text, limit))


def escape_json(text: str) -> str:
    """Return JSON that says the same, and in which a CI finds no command."""
    return text.replace("##[", r"#\u0023[")


def _escape_ci_command(match: re.Match[str]) -> str:
    return r"\x23" if match[0] == "#" else rf"{match[1]}\x3a"


def _escape_unprintable(text: str) -> str:
    if text.isprintable():
        return text
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in text)
