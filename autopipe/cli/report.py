"""Command `autopipe report`: a page about what was built."""

from pathlib import Path
from typing import Annotated

import typer

from autopipe.cli.options import BuildName, Set, StoreRoot
from autopipe.cli.terminal import show
from autopipe.errors import ConfigError

_PIPELINE = (".yaml", ".yml")

Target = Annotated[
    Path,
    typer.Argument(
        metavar="RUN|FILE|LOCK|PACKAGE",
        help="The JSON report of a run, a pipeline file for its last build, a lock, or a package",
        show_default=False,
    ),
]
Output = Annotated[
    Path | None,
    typer.Option("--output", "-o", metavar="FILE.html", help="[NAME.html, in this folder]"),
]


def report(
    target: Target,
    *,
    output: Output = None,
    build: BuildName = None,
    overrides: Set = None,
    store: StoreRoot = None,
) -> None:
    """Write a page about a build: one HTML file, which opens without network.

    It shows what the file tells. Nothing is run or measured.
    """
    from autopipe.api.reports import whole
    from autopipe.api.saved_builds import read_last_builds, read_reports
    from autopipe.report.html.page import html

    page = output or Path(f"{target.stem}.html")
    if page.suffix != ".html":
        raise ConfigError(f"--output {page}: it is a page, so its name ends in .html")
    if target.suffix in _PIPELINE:
        reports = read_last_builds(target, store=store, overrides=overrides or (), build=build)
    elif build is not None or overrides:
        raise ConfigError(f"{target}: --build and --set are for pipeline files")
    else:
        reports = read_reports(target)
    whole(page, html(*reports))
    show([f"wrote {page}"])
