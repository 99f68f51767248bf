"""`autopipe baseline`: commands about the times that gate `gates.regression` compares with."""

from pathlib import Path
from typing import Annotated, Literal

import typer

from autopipe.cli.terminal import print_lines, print_warning
from autopipe.errors import GateError

app = typer.Typer(no_args_is_help=True, help="Write and compare checked-in times.")

Report = Annotated[Path, typer.Argument(help="What `autopipe run --report PATH.json` wrote")]
File = Annotated[Path, typer.Argument(metavar="BASELINE", help="Such as mlp.baseline.json")]


@app.command("write")
def baseline_write(report: Report, file: File) -> None:
    """Keep the times of a run, to compare later runs with."""
    from autopipe.api.reports import write_whole_file
    from autopipe.config.problem import format_value
    from autopipe.report.document import read_report

    times = read_report(report).times()
    if times.disturbed:
        print_warning(
            f"{format_value(report)}: other programs ran while these times were measured; "
            "gates.regression says inconclusive of every build that is compared with them"
        )
    write_whole_file(file, times.text())
    print_lines([f"wrote {file}; name it in `gates.regression.baseline`, and check it in"])


@app.command("compare")
def baseline_compare(
    report: Report,
    file: File,
    *,
    limit: Annotated[
        float,
        typer.Option("--max", min=0.01, max=100, help="Largest time relative to the baseline"),
    ] = 1.05,
    inconclusive: Annotated[
        Literal["warn", "fail"], typer.Option("--on-inconclusive", help="What it ends in")
    ] = "warn",
) -> None:
    """Report whether a run was slower than the baseline.

    Decides like gate `gates.regression`.
    """
    from autopipe.artifacts.benchmark import Outcome
    from autopipe.benchmarking import baseline
    from autopipe.benchmarking.regression import check_regression
    from autopipe.config.gates import Regression
    from autopipe.report.document import read_report

    times = read_report(report).times()
    gate = Regression(baseline=file.name, max=limit, on_inconclusive=inconclusive)
    result = check_regression(times, baseline.read_baseline(file, times.pipeline), gate)
    if result.outcome is Outcome.FAILED:
        raise GateError(result.found)
    print_lines([f"{result.outcome}: {result.found}"])
