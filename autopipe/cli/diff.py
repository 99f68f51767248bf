"""`autopipe diff`: the differences between two builds."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from autopipe.cli.terminal import print_lines, show_text
from autopipe.errors import ConfigError

if TYPE_CHECKING:
    from autopipe.comparison.difference import Difference


Format = Literal["text", "json", "markdown", "html", "comment"]

Build = Annotated[
    Path, typer.Argument(help="A lock, a package, or the JSON report of a run", show_default=False)
]


def diff(
    old: Build,
    new: Build,
    *,
    form: Annotated[
        Format,
        typer.Option("--format", help="A comment says it in words; HTML is a page"),
    ] = "text",
    run: Annotated[
        Path | None,
        typer.Option(metavar="REPORT.json", help="The run that a comment begins with  [NEW]"),
    ] = None,
    exit_code: Annotated[
        bool, typer.Option("--exit-code", help="End with 1 if they differ, like git")
    ] = False,
) -> None:
    """Compare two locks, packages or run reports.

    Nothing of a package is run.
    """
    from autopipe.comparison.difference import compare_builds
    from autopipe.comparison.reading import read_build

    difference = compare_builds(read_build(old), read_build(new))
    if run is not None and form != "comment":
        raise ConfigError("--run needs --format comment")
    if form == "text":
        from autopipe.comparison.text import list_lines
        from autopipe.report.tasks import choose_table_width

        print_lines(list_lines(difference, choose_table_width()))
    else:
        show_text(_format_document(difference, form, run, new))
    if exit_code and not difference.same:
        raise typer.Exit(1)


def _format_document(difference: "Difference", form: Format, run: Path | None, new: Path) -> str:
    """Format differences; only the module of the format is imported."""
    if form == "json":
        from autopipe.comparison import document

        return document.format_json(difference)
    if form == "html":
        from autopipe.comparison import page

        return page.format_page(difference)
    if form == "markdown":
        from autopipe.comparison import markdown

        return markdown.format_difference(difference)
    from autopipe.comparison import comment
    from autopipe.lock.recognize import FileKind
    from autopipe.report.document import read_report

    file = new if run is None and difference.new.kind is FileKind.REPORT else run
    return comment.format_comment(difference, None if file is None else read_report(file))
