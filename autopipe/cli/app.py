"""The command line. Each command parses, calls one function, and prints."""

import os
import sys
import traceback
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import fields
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from autopipe import report
from autopipe.cli import baseline, cache, records
from autopipe.cli.deploy import bench, export, inspect
from autopipe.cli.diff import diff
from autopipe.cli.farm import Certificates, Cluster, scheduler, worker
from autopipe.cli.init import init
from autopipe.cli.migrate import migrate
from autopipe.cli.options import (
    File,
    Identity,
    Json,
    LockTimeout,
    Reports,
    Revoked,
    Set,
    SignersFile,
    StoreRoot,
    mode_of,
    signers_of,
    warnings,
)
from autopipe.cli.packages import infer, sign
from autopipe.cli.tasks import tasks
from autopipe.cli.terminal import complain, hang_up, named, show, show_json
from autopipe.cli.verify import verify
from autopipe.errors import AutopipeError, ConfigError
from autopipe.host.refusal import final_error
from autopipe.processes.interrupt import Interrupted, exit_code, interruptible, resume

if TYPE_CHECKING:
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

Force = Annotated[
    list[str] | None,
    typer.Option("--force", metavar="STAGE", help="Run this stage again; may be repeated"),
]
Until = Annotated[str | None, typer.Option(metavar="STAGE", help="Stop after this stage")]
Locked = Annotated[
    bool, typer.Option("--locked", help="Fail with exit code 6 unless the lock is current")
]
Frozen = Annotated[
    bool,
    typer.Option(
        "--frozen", help="Build what the lock says: no tuning, no network, nothing written"
    ),
]
Update = Annotated[
    bool,
    typer.Option(
        "--update", help="Tune only the tasks that the lock does not know, and write it anew"
    ),
]
NoLock = Annotated[bool, typer.Option("--no-lock", help="Neither read nor write the lock")]
Reproducible = Annotated[
    bool, typer.Option("--check-reproducible", help="Build it twice again and compare every file")
]
Quiet = Annotated[
    bool, typer.Option("--quiet", "-q", help="Print only warnings and the path of the package")
]


@app.command()
def run(  # noqa: PLR0913 -- one for each option
    file: File,
    *,
    until: Until = None,
    force: Force = None,
    overrides: Set = None,
    store: StoreRoot = None,
    output: Annotated[Path, typer.Option(help="Where the package goes")] = Path("dist"),
    as_json: Json = False,
    quiet: Quiet = False,
    locked: Locked = False,
    frozen: Frozen = False,
    update: Update = False,
    no_lock: NoLock = False,
    reproducible: Reproducible = False,
    reports: Reports = None,
    lock_timeout: LockTimeout = None,
    signers: SignersFile = None,
    identity: Identity = None,
    revoked: Revoked = None,
) -> None:
    """Run a pipeline: from the model to the package.

    What the store has is used, and only the rest is run.
    """
    from autopipe.api import flow

    asked = {"locked": locked, "frozen": frozen, "update": update, "off": no_lock}

    trusted = signers_of(signers, identity, revoked)

    with ExitStack() as told:
        emit = told.enter_context(report.make(json=as_json, quiet=quiet))
        if reports:
            from autopipe.api.reports import reporting

            emit = told.enter_context(
                reporting(emit, reports, file, overrides=overrides or (), store=store, until=until)
            )
        flow.run(
            file, overrides=overrides or (), store=store, output=output,
            until=until, force=force or (), mode=mode_of(asked), lock_timeout=lock_timeout,
            reproducible=reproducible, signers=trusted, emit=emit,
        )  # fmt: skip


@app.command()
def plan(  # noqa: PLR0913 -- one for each option
    file: File,
    *,
    until: Until = None,
    force: Force = None,
    overrides: Set = None,
    store: StoreRoot = None,
    as_json: Json = False,
) -> None:
    """Say what a run would do with each stage, and why.

    Nothing is run.
    """
    from autopipe.api import flow

    outlooks = flow.plan(
        file, overrides=overrides or (), store=store, until=until, force=force or (), emit=warnings
    )
    if as_json:
        show_json([_fields(outlook) for outlook in outlooks])
    else:
        show(f"{o.stage:<10} {o.state:<7} {'; '.join(o.why)}".rstrip() for o in outlooks)
        if any((o.stage, o.state) == ("tune", "run") for o in outlooks):
            from autopipe.api import farm

            present = farm.present(file, overrides or ())
            show([] if present is None else [f"{'farm':<10} {present}"])


@app.command()
def explain(
    file: File,
    stage: Annotated[str, typer.Argument(help="A stage of the pipeline")],
    *,
    overrides: Set = None,
    store: StoreRoot = None,
    as_json: Json = False,
) -> None:
    """Say why a stage would run, or what its result depends on."""
    from autopipe.api import flow
    from autopipe.pipeline.plan import require
    from autopipe.store.canonical import pretty

    outlooks = flow.plan(file, overrides=overrides or (), store=store, emit=warnings)
    require([stage], [outlook.stage for outlook in outlooks], "explain")
    outlook = next(outlook for outlook in outlooks if outlook.stage == stage)
    if as_json:
        show_json(_fields(outlook))
    else:
        reasons = (f"  {reason}" for reason in outlook.why)
        action = pretty(outlook.action).split("\n")[:-1] if outlook.state == "cached" else []
        show([f"{stage}: {outlook.state}", *reasons, *action])


@app.command()
def validate(files: Annotated[list[Path], typer.Argument(help="Pipeline files")]) -> None:
    """Check pipeline files.

    All mistakes of a file are told at once.
    """
    from autopipe.api import flow

    problems = []
    for file in files:
        try:
            flow.check(file)
            show([f"{file}: ok"])
        except AutopipeError as error:
            problems.append(str(error))
    if problems:
        raise ConfigError("\n".join(problems))


app.command()(tasks)
app.command()(verify)
app.command()(sign)
app.command()(infer)
app.command()(inspect)
app.command()(export)
app.command()(bench)
app.command()(diff)
app.command()(migrate)


@app.command()
def schema() -> None:
    """Print the JSON schema of a pipeline file."""
    from autopipe.config.schema import json_schema

    show_json(json_schema())


@app.command()
def doctor(
    file: Annotated[
        Path | None, typer.Argument(help="A pipeline file, whose linker and tracker are tried, too")
    ] = None,
    *,
    cluster: Cluster = None,
    certificates: Certificates = None,
    as_json: Json = False,
) -> None:
    """Check the installation, or a farm.

    Where something does not work here, it says what to do.
    """
    findings = []
    for finding in _findings(file, cluster, certificates):
        findings.append(finding)
        if not as_json:
            show(str(finding).split("\n"))
    if as_json:
        show_json([_fields(finding) for finding in findings])
    if any(finding.state == "fail" for finding in findings):
        raise typer.Exit(5)


def _findings(
    file: Path | None, cluster: str | None, certificates: Path | None
) -> "Iterator[Diagnosis]":
    if cluster is not None:
        from autopipe.api import farm

        return farm.diagnose(cluster, certificates)
    from autopipe.api.doctor import diagnose
    from autopipe.config.load import load

    return diagnose(pipeline=load(file) if file is not None else None)


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
        code, failure = exit_code(error), final_error(error)
        if failure is None:
            complain(f"{traceback.format_exc()}\nerror: this is a bug in autopipe")
        else:
            if os.environ.get("AUTOPIPE_DEBUG"):
                traceback.print_exc()
            complain(named(f"error: {failure}", sys.argv[1:]))
    hang_up()
    sys.exit(code)


def _fields(value: Any) -> dict[str, object]:  # noqa: ANN401 -- any dataclass
    return {field.name: getattr(value, field.name) for field in fields(value)}
