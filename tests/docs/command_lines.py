"""Calls of autopipe in scripts and pages, and whether there are such commands and options."""

import re
from collections.abc import Iterator
from typing import Any

import typer

from autopipe.cli.app import build_app


def calls(script: str) -> Iterator[tuple[list[str], list[str]]]:
    """Yield the words and the options of each call of autopipe."""
    for line in re.sub(r"\\\n\s*", " ", script).splitlines():
        for call in re.findall(r"(?:^|[\s&|;{$])autopipe ([^;|&>#]*)", line.split(" # ")[0]):
            words = call.split()
            yield words, [word.split("=")[0] for word in words if word.startswith("-")]


def command_of(words: list[str]) -> Any:
    """Return the command that the first words name."""
    command: Any = typer.main.get_command(build_app())
    for word in words:
        if not hasattr(command, "commands"):
            break
        assert word in command.commands, f"autopipe has no command {word}"
        command = command.commands[word]
    return command


def check(script: str, name: str) -> int:
    """Assert that every call in a script is of a command with these options; count them."""
    found = list(calls(script))
    for words, options in found:
        known = {opt for parameter in command_of(words).params for opt in parameter.opts}
        assert {*options} <= known | {"--help"}, f"{name}: autopipe {' '.join(words)}"
    return len(found)
