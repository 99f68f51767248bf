"""`autopipe migrate`: brings files of earlier releases up to date."""

from pathlib import Path
from typing import Annotated, Final

import typer

from autopipe.cli.terminal import show
from autopipe.errors import AutopipeError, GateError
from autopipe.report import escape
from autopipe.report.units import plural

_LONG: Final = 1000
"""Characters of a line of a diff."""


def migrate(
    files: Annotated[list[Path], typer.Argument(help="Pipeline files and locks")],
    *,
    check: Annotated[
        bool, typer.Option("--check", help="Only say what would change; exit code 1 if anything")
    ] = False,
) -> None:
    """Bring pipeline files and locks to the current version.

    They are changed in place, and comments stay.

    Nothing is written unless all of them can be read.
    """
    from autopipe.api import migrate

    migrations, errors = [], []
    for path in files:
        try:
            migrations.append(migrate.migrate(path))
        except AutopipeError as error:
            errors.append(error)
    if errors:
        raise type(errors[0])("\n".join(map(str, errors)))
    for migration in migrations:
        if not migration.changed:
            show([f"{migration.path}: version {migration.version}, current"])
            continue
        if check:
            show([f"{migration.path}: version {migration.version}, would be {migration.current}"])
            show(escape(line, _LONG) for line in migration.difference())
            continue
        migration.write()
        show([f"{migration.path}: version {migration.version} -> {migration.current}"])
    older = sum(migration.changed for migration in migrations)
    if check and older:
        raise GateError(f"{plural(older, 'file')} to migrate; `autopipe migrate` does it")
