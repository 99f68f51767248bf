"""The command `autopipe doctor`."""

from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from autopipe.cli.farm import Certificates, Cluster
from autopipe.cli.options import BuildName, Json
from autopipe.cli.terminal import print_lines, show_json

if TYPE_CHECKING:
    from autopipe.api.doctor import Diagnosis


def doctor(  # noqa: PLR0913 -- one for each option
    file: Annotated[
        Path | None, typer.Argument(help="A pipeline file; its linker and tracker are tried, too")
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

    Failures are reported with a remedy.
    """
    if machine:
        _measure_machine(as_json=as_json, is_alone=file is None and cluster is None)
        return
    findings = []
    for finding in _list_findings(file, build, cluster, certificates):
        findings.append(finding)
        if not as_json:
            print_lines(str(finding).split("\n"))
    if as_json:
        show_json([asdict(finding) for finding in findings])
    if any(finding.state == "fail" for finding in findings):
        raise typer.Exit(5)


def _measure_machine(*, as_json: bool, is_alone: bool) -> None:
    if not is_alone:
        raise typer.BadParameter("--machine takes neither a pipeline file nor --cluster")
    from autopipe.api.machine_report import measure_here

    report = measure_here()
    if as_json:
        show_json(report.fields())
    else:
        print_lines(report.lines())


def _list_findings(
    file: Path | None, build: str | None, cluster: str | None, certificates: Path | None
) -> "Iterator[Diagnosis]":
    if cluster is not None:
        from autopipe.api import farm

        return farm.diagnose_farm(cluster, certificates)
    from autopipe.api.doctor import diagnose_machine
    from autopipe.config.load import load

    return diagnose_machine(pipeline=load(file, build=build) if file is not None else None)
