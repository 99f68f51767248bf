"""The command line. Each command parses, calls one function, and prints."""

import sys
from collections.abc import Iterator
from dataclasses import fields
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from autopipe.cli import baseline, cache, records
from autopipe.cli.bisect import bisect
from autopipe.cli.deploy import bench, export, inspect
from autopipe.cli.diff import diff
from autopipe.cli.farm import Certificates, Cluster, scheduler, worker
from autopipe.cli.init import init
from autopipe.cli.options import BuildName, Json
from autopipe.cli.packages import combine, infer, sign
from autopipe.cli.pipelines import explain, plan, run, validate
from autopipe.cli.profile import profile
from autopipe.cli.report import report
from autopipe.cli.tasks import tasks
from autopipe.cli.terminal import complain, complain_of, hang_up, show, show_json
from autopipe.cli.verify import verify
from autopipe.processes.interrupt import Interrupted, exit_code, interruptible, resume

if TYPE_CHECKING:
    from _typeshed import DataclassInstance

    from autopipe.api.doctor import Diagnosis

app = typer.Typer(
    no_args_is_help=True,
    context_settings={"help_option_names": ["-h", "--help"]},
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
    help="Compile, tune, verify and package a machine-learning model from one YAML file.",
)
app.add_typer(baseline.app, name="baseline")
app.add_typer(cache.app, name="cache")
app.add_typer(records.app, name="records")

app.command()(run)
app.command()(plan)
app.command()(explain)
app.command()(validate)
app.command()(tasks)
app.command()(verify)
app.command()(sign)
app.command()(infer)
app.command()(combine)
app.command()(inspect)
app.command()(export)
app.command()(bench)
app.command()(profile)
app.command()(bisect)
app.command()(report)
app.command()(diff)


@app.command()
def schema() -> None:
    """Print the JSON schema of a pipeline file."""
    from autopipe.config.schema import json_schema

    show_json(json_schema())


@app.command()
def doctor(  # noqa: PLR0913 -- one for each option
    file: Annotated[
        Path | None, typer.Argument(help="A pipeline file, whose linker and tracker are tried, too")
    ] = None,
    *,
    build: BuildName = None,
    cluster: Cluster = None,
    certificates: Certificates = None,
    machine: Annotated[
        bool,
        typer.Option(
            "--machine",
            help="Measure this machine instead, beside the numbers that schedules are planned with",
        ),
    ] = False,
    as_json: Json = False,
) -> None:
    """Check the installation, or a farm.

    Where something does not work here, it says what to do.
    """
    if machine:
        _measure_machine(as_json=as_json, alone=file is None and cluster is None)
        return
    findings = []
    for finding in _findings(file, build, cluster, certificates):
        findings.append(finding)
        if not as_json:
            show(str(finding).split("\n"))
    if as_json:
        show_json([_fields(finding) for finding in findings])
    if any(finding.state == "fail" for finding in findings):
        raise typer.Exit(5)


def _measure_machine(*, as_json: bool, alone: bool) -> None:
    if not alone:
        raise typer.BadParameter("--machine takes neither a pipeline file nor --cluster")
    from autopipe.api.machine_report import measure_here

    report = measure_here()
    if as_json:
        show_json(report.fields())
    else:
        show(report.lines())


def _findings(
    file: Path | None, build: str | None, cluster: str | None, certificates: Path | None
) -> "Iterator[Diagnosis]":
    if cluster is not None:
        from autopipe.api import farm

        return farm.diagnose(cluster, certificates)
    from autopipe.api.doctor import diagnose
    from autopipe.config.load import load

    return diagnose(pipeline=load(file, build=build) if file is not None else None)


app.command()(init)
app.command()(scheduler)
app.command()(worker)


@app.command()
def version() -> None:
    """Print the versions of autopipe and TVM."""
    from importlib.metadata import version as installed

    show(f"{name} {installed(name)}" for name in ("autopipe", "apache-tvm", "apache-tvm-ffi"))


def _print_version(asked: bool) -> None:  # noqa: FBT001 -- as typer calls it
    if asked:
        version()
        raise typer.Exit


@app.callback()
def _options(
    *,
    _version: Annotated[
        bool,
        typer.Option("--version", callback=_print_version, is_eager=True, help="As `version`"),
    ] = False,
) -> None: ...


def main() -> None:
    """Run a command; an expected failure ends in one message and its exit code."""
    code = 0
    try:
        with interruptible():
            app()
    except SystemExit as error:
        code = error.code if isinstance(error.code, int) else 1
    except Interrupted as error:
        code = error.exit_code
        complain(f"{error}; {resume(sys.argv[1:])}")
    except Exception as error:  # noqa: BLE001 -- a bug keeps its traceback
        code = exit_code(error)
        complain_of(error)
    hang_up()
    sys.exit(code)


def _fields(value: "DataclassInstance") -> dict[str, object]:
    return {field.name: getattr(value, field.name) for field in fields(value)}
