"""Escape text from model files and YAML for terminals, and for logs that a CI parses."""

import re

LIMIT = 200

_COMMAND = re.compile(r"^(\s*):(?=:)|#(?=#\[)")
"""Workflow commands of GitHub: `::` at the start of a line, and `##[` anywhere in it."""


def escape_text(text: str, limit: int = LIMIT) -> str:
    r"""Escape `text` to one line without control, format or bidi characters, at most `limit` long.

    Unprintable characters are written as in Python source (`\x1b`); a long text keeps its head and
    tail.
    """
    long = len(text) > limit
    half = limit // 2  # a megabyte is cut before it is escaped
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
    """Escape `text` as a line of output, including the commands of a CI."""
    return _COMMAND.sub(_escape_ci_command, escape_text(text, limit))


def escape_json(text: str) -> str:
    """Escape the commands of a CI in JSON without changing its value."""
    return text.replace("##[", r"#\u0023[")


def _escape_ci_command(match: re.Match[str]) -> str:
    return r"\x23" if match[0] == "#" else rf"{match[1]}\x3a"


def _escape_unprintable(text: str) -> str:
    if text.isprintable():
        return text
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in text)
