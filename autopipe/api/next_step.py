"""Append the command that finds the cause of a wrong build to the error of its run."""

import shlex
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from autopipe.backends import BACKENDS
from autopipe.config.target import Target
from autopipe.errors import WrongBuildError


@contextmanager
def name_bisect(
    file: Path, target: Target, *, build: str | None, store: Path | None
) -> Iterator[None]:
    """Add a line with `autopipe bisect` to the error of a wrong build, if it can be bisected."""
    try:
        yield
    except WrongBuildError as error:
        if not BACKENDS[target.kind].runs_on_host:
            raise
        options = [*(["--build", build] if build else []),
                   *(["--store", str(store)] if store else [])]  # fmt: skip
        command = shlex.join(["autopipe", "bisect", str(file), *options])
        raise WrongBuildError(f"{error}\nnext: {command}") from error
