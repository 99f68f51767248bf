"""Command `autopipe report`: a page about a build."""

from pathlib import Path
from typing import Annotated

import typer

from autopipe.cli.options import BuildName, Set, StoreRoot
from autopipe.cli.terminal import complain_of_load, print_lines
from autopipe.config import PIPELINE_SUFFIXES
from autopipe.errors import ConfigError

_RUNNABLE = (*PIPELINE_SUFFIXES, ".tar")

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

Profile = Annotated[
    bool, typer.Option("--profile", help="Run the build, and time each kernel against its bound")
]

Tir = Annotated[
    bool, typer.Option("--tir", help="Add the scheduled TIR of each kernel; the page needs script")
]


def report(  # noqa: PLR0913 -- one for each option
    target: Target,
    *,
    output: Output = None,
    build: BuildName = None,
    overrides: Set = None,
    store: StoreRoot = None,
    profile: Profile = False,
    tir: Tir = False,
) -> None:
    """Write a page about a build: one HTML file, which opens without network.

    It shows the contents of the file. Nothing is run or measured without `--profile`.
    """
    from autopipe.api.reports import write_whole_file
    from autopipe.api.saved_builds import read_last_builds, read_reports
    from autopipe.report.html.page import build_page

    page = output or Path(f"{target.stem}.html")
    _check_options(target, page, profile=profile, tir=tir)
    if target.suffix in PIPELINE_SUFFIXES:
        reports = read_last_builds(target, store=store, overrides=overrides or (), build=build)
    elif build is not None or overrides:
        raise ConfigError(f"{target}: --build and --set are for pipeline files")
    else:
        reports = read_reports(target)
    if (profile or tir) and len(reports) > 1:
        option = "--profile" if profile else "--tir"
        raise ConfigError(
            f"{target}: {option} takes one build, and here are {len(reports)}; --build chooses one"
        )
    if tir:
        from autopipe.api.report_details import attach_tir

        reports = (attach_tir(reports[0], target, store=store, build=build),)
    if profile:
        from autopipe.api.profile import find_target, profile_build
        from autopipe.api.report_details import attach_profile

        profile_target = find_target(target, store=store, overrides=overrides or (), build=build)
        build_profile = profile_build(profile_target)
        complain_of_load(build_profile.disturbed)
        reports = (attach_profile(reports[0], build_profile),)
    write_whole_file(page, build_page(*reports))
    print_lines([f"wrote {page}"])


def _check_options(target: Path, page: Path, *, profile: bool, tir: bool) -> None:
    """Raise ConfigError for invalid file names and combinations of options."""
    if page.suffix != ".html":
        raise ConfigError(f"--output {page}: it is a page, so its name ends in .html")
    if profile and target.suffix not in _RUNNABLE:
        raise ConfigError("--profile runs a build: name a pipeline file or a package, NAME.tar")
    if tir and target.suffix not in PIPELINE_SUFFIXES:
        raise ConfigError("--tir makes schedules again from the store: name a pipeline file")
