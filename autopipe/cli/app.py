"""The command line. Each command parses, calls one function, and prints."""

import sys
from importlib import import_module
from typing import Annotated, Final, NoReturn

import typer

from autopipe.cli.terminal import complain_of, hang_up, print_error, print_lines
from autopipe.processes.interrupt import (
    Interrupted,
    find_exit_code,
    format_resume_command,
    raise_on_signals,
)

COMMANDS: Final = {
    "run": "pipelines",
    "plan": "pipelines",
    "explain": "pipelines",
    "validate": "pipelines",
    "tasks": "tasks",
    "verify": "verify",
    "sign": "packages",
    "infer": "packages",
    "combine": "packages",
    "inspect": "deploy",
    "export": "deploy",
    "bench": "deploy",
    "profile": "profile",
    "bisect": "bisect",
    "report": "report",
    "diff": "diff",
    "schema": "pipelines",
    "doctor": "doctor",
    "init": "init",
    "scheduler": "farm",
    "worker": "farm",
    "version": "app",
}
"""The commands in the order of the help, with the module of the function of that name."""

GROUPS: Final = ("baseline", "cache", "records")
"""Modules with a group of commands, `app`, by the name of the group."""


def build_app(command: str | None = None) -> typer.Typer:
    """Build the command line, or only the part for one command or group.

    The module of a command is imported here, so that a command does not import the others.
    """
    app = typer.Typer(
        no_args_is_help=True,
        context_settings={"help_option_names": ["-h", "--help"]},
        pretty_exceptions_enable=False,
        rich_markup_mode=None,
        help="Compile, tune, verify and package a machine-learning model from one YAML file.",
    )
    app.callback()(_options)
    for name, module in COMMANDS.items():
        if command in {None, name}:
            app.command()(getattr(import_module(f"autopipe.cli.{module}"), name))
    for name in GROUPS:
        if command in {None, name}:
            app.add_typer(import_module(f"autopipe.cli.{name}").app, name=name)
    return app


def version() -> None:
    """Print the versions of autopipe and TVM."""
    from importlib.metadata import version as installed

    print_lines(
        f"{name} {installed(name)}" for name in ("autopipe", "apache-tvm", "apache-tvm-ffi")
    )


def _print_version(value: bool) -> None:  # noqa: FBT001 -- as typer calls it
    if value:
        version()
        raise typer.Exit


def _options(
    *,
    _version: Annotated[
        bool,
        typer.Option("--version", callback=_print_version, is_eager=True, help="As `version`"),
    ] = False,
) -> None: ...


def main() -> NoReturn:
    """Run a command; an expected failure ends in one message and its exit code."""
    code = 0
    try:
        with raise_on_signals():
            build_app(_named_command())()
    except SystemExit as error:
        code = error.code if isinstance(error.code, int) else 1
    except Interrupted as error:
        code = error.exit_code
        print_error(f"{error}; {format_resume_command(sys.argv[1:])}")
    except Exception as error:  # noqa: BLE001 -- a bug keeps its traceback
        code = find_exit_code(error)
        complain_of(error)
    hang_up()
    sys.exit(code)


def _named_command() -> str | None:
    """Return the command in the first argument; None for an option or an unknown word."""
    first = sys.argv[1] if len(sys.argv) > 1 else ""
    return first if first in COMMANDS or first in GROUPS else None
