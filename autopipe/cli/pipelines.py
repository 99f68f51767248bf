"""Commands on pipeline files: `run`, `plan`, `explain`, `validate` and `schema`."""

from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, NamedTuple

import typer

from autopipe.cli.options import (
    BuildName,
    File,
    Identity,
    Json,
    LockTimeout,
    Reports,
    Revoked,
    Set,
    SignersFile,
    StoreRoot,
    build_signers,
    choose_lock_mode,
    print_warnings,
)
from autopipe.cli.terminal import complain_of, print_lines, show_json
from autopipe.errors import AutopipeError, ConfigError

if TYPE_CHECKING:
    from autopipe.api.builds import PlannedBuild
    from autopipe.lock.mode import Mode
    from autopipe.pipeline.stage import Diagnostics
    from autopipe.report.document import RunReport
    from autopipe.report.reporters import Reporter
    from autopipe.signing.signers import Signers

Files = Annotated[
    list[Path],
    typer.Argument(help="Pipeline files, such as pipelines/squeezenet.yaml, or folders of them"),
]
Only = Annotated[
    list[str] | None,
    typer.Option("--build", metavar="NAME", help="One of the file's `builds`; may be repeated"),
]
Force = Annotated[
    list[str] | None,
    typer.Option("--force", metavar="STAGE", help="Run this stage again; may be repeated"),
]
DumpIr = Annotated[
    Path | None,
    typer.Option(
        "--dump-ir", metavar="DIR", help="Write the module after each pass that changes it"
    ),
]
PassTimesOption = Annotated[
    bool, typer.Option("--print-pass-times", help="Show how long each pass of the compiler took")
]
Verbose = Annotated[
    int,
    typer.Option(
        "--verbose", "-v", count=True, show_default=False,
        help="Log what is decided, such as schedules and layouts; twice, each step as well",
    ),
]  # fmt: skip
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


def run(  # noqa: PLR0913 -- one for each option
    files: Files,
    *,
    only: Only = None,
    until: Until = None,
    force: Force = None,
    overrides: Set = None,
    store: StoreRoot = None,
    output: Annotated[Path, typer.Option(help="Where packages go")] = Path("dist"),
    as_json: Json = False,
    quiet: Quiet = False,
    locked: Locked = False,
    frozen: Frozen = False,
    update: Update = False,
    no_lock: NoLock = False,
    reproducible: Reproducible = False,
    reports: Reports = None,
    lock_timeout: LockTimeout = None,
    dump_ir: DumpIr = None,
    print_pass_times: PassTimesOption = False,
    verbosity: Verbose = 0,
    signers: SignersFile = None,
    identity: Identity = None,
    revoked: Revoked = None,
) -> None:
    """Run pipelines: from the model to the package.

    Results in the store are used, and only other stages run. A failed build does not stop the
    others; the exit code is the largest of theirs.
    """
    from autopipe.pipeline.stage import Diagnostics

    lock_options = {"locked": locked, "frozen": frozen, "update": update, "off": no_lock}
    options = _RunOptions(
        overrides or (), store, output, until, force or (), choose_lock_mode(lock_options),
        lock_timeout, reproducible, build_signers(signers, identity, revoked),
        Diagnostics(dump_ir and dump_ir.absolute(), print_pass_times, verbosity),
    )  # fmt: skip
    with ExitStack() as stack:
        emit, saved_reports = _open_reports(stack, reports, json=as_json, quiet=quiet)
        code = options.run_files(files, only or (), emit, saved_reports)
    if code:
        raise typer.Exit(code)


def _open_reports(
    stack: ExitStack, reports: Sequence[Path] | None, *, json: bool, quiet: bool
) -> "tuple[Reporter, list[RunReport] | None]":
    """Open the reporter, and the list of reports to save; None without `--report`."""
    from autopipe.report.reporters import open_reporter

    emit = stack.enter_context(open_reporter(json=json, quiet=quiet))
    if not reports:
        return emit, None
    from autopipe.api.reports import save_reports_at_end

    return emit, stack.enter_context(save_reports_at_end(emit, reports))


class _RunOptions(NamedTuple):
    """The options of `run` for each build."""

    overrides: Sequence[str]
    store: Path | None
    output: Path
    until: str | None
    force: Sequence[str]
    mode: "Mode"
    lock_timeout: float | None
    reproducible: bool
    signers: "Signers | None"
    diagnostics: "Diagnostics"

    def run_files(
        self,
        files: Sequence[Path],
        only: Sequence[str],
        emit: "Reporter",
        saved_reports: "list[RunReport] | None",
    ) -> int:
        """Run the builds of files; return the exit code. Raises the error of a single build."""
        from autopipe.api import builds
        from autopipe.lock.mode import check_mode

        planned_builds = builds.find_builds(files, overrides=self.overrides, only=only)
        if len(planned_builds) == 1:
            self._run_build(planned_builds[0], emit, saved_reports)
            return 0
        from autopipe.api.run_builds import run_builds

        partial = bool(self.overrides) or self.until is not None
        check_mode(self.mode, partial=partial, signed=self.signers is not None)
        builds.check_builds(planned_builds, self.output, until=self.until, force=self.force)
        return run_builds(
            planned_builds,
            lambda build, labelled: self._run_build(build, labelled, saved_reports),
            emit,
            lambda build, error: complain_of(error, f"{build.label}: "),
        )

    def _run_build(
        self, build: "PlannedBuild", emit: "Reporter", saved_reports: "list[RunReport] | None"
    ) -> None:
        from autopipe.api import flow

        with ExitStack() as stack:
            if saved_reports is not None:
                from autopipe.api.reports import record_run

                emit = stack.enter_context(
                    record_run(
                        emit, saved_reports, build.file, build=build.name, overrides=self.overrides,
                        store=self.store, until=self.until,
                    )
                )  # fmt: skip
            options = self._replace(diagnostics=self.diagnostics.of_build(build.name))
            flow.run(build.file, build=build.name, emit=emit, **options._asdict())


def plan(  # noqa: PLR0913 -- one for each option
    files: Files,
    *,
    only: Only = None,
    until: Until = None,
    force: Force = None,
    overrides: Set = None,
    store: StoreRoot = None,
    as_json: Json = False,
) -> None:
    """Show the action of a run for each stage with its reason.

    Nothing is run.
    """
    from autopipe.api import builds, flow
    from autopipe.report.outlook import plan_row
    from autopipe.report.tasks import choose_table_width

    planned_builds = builds.find_builds(files, overrides=overrides or (), only=only or ())
    outlooks = [
        flow.plan(
            build.file, build=build.name, overrides=overrides or (), store=store, until=until,
            force=force or (), emit=print_warnings,
        )
        for build in planned_builds
    ]  # fmt: skip
    if as_json:
        stages = [[one._asdict() for one in each] for each in outlooks]
        show_json(_label_stages(planned_builds, stages) if len(planned_builds) > 1 else stages[0])
        return
    for build, build_outlooks in zip(planned_builds, outlooks, strict=True):
        print_lines(
            [f"== {build.label}  {build.target}  {build.file}"] if len(planned_builds) > 1 else []
        )
        print_lines(plan_row(outlook, choose_table_width()) for outlook in build_outlooks)
        if any((o.stage, o.state) == ("tune", "run") for o in build_outlooks):
            from autopipe.api import farm

            present = farm.describe_workers(build.file, overrides or (), build.name)
            print_lines([] if present is None else [f"{'farm':<10} {present}"])


def _label_stages(
    builds: "Sequence[PlannedBuild]", stages: Sequence[object]
) -> list[dict[str, object]]:
    """Label the stages of a plan with their build, file and target."""
    return [
        {"build": build.label, "file": str(build.file), "target": build.target, "stages": each}
        for build, each in zip(builds, stages, strict=True)
    ]


def explain(  # noqa: PLR0913 -- one for each option
    file: File,
    stage: Annotated[str, typer.Argument(help="A stage of the pipeline")],
    *,
    build: BuildName = None,
    overrides: Set = None,
    store: StoreRoot = None,
    as_json: Json = False,
) -> None:
    """Show why a stage would run, or the inputs of its result."""
    from autopipe.api import flow
    from autopipe.pipeline.plan import require_stages
    from autopipe.report.outlook import list_sentences
    from autopipe.store.canonical import pretty

    outlooks = flow.plan(
        file, build=build, overrides=overrides or (), store=store, emit=print_warnings
    )
    require_stages([stage], [outlook.stage for outlook in outlooks], "explain")
    outlook = next(outlook for outlook in outlooks if outlook.stage == stage)
    if as_json:
        show_json(outlook._asdict())
    else:
        action = pretty(outlook.action).split("\n")[:-1] if outlook.state == "cached" else []
        print_lines([*list_sentences(outlook), *action])


def validate(files: Files) -> None:
    """Check pipeline files.

    All mistakes of a file are reported at once.
    """
    from autopipe.api import builds

    problems = []
    for file in builds.list_files(files):
        try:
            builds.check_file(file)
            print_lines([f"{file}: ok"])
        except AutopipeError as error:
            problems.append(str(error))
    if problems:
        raise ConfigError("\n".join(problems))


def schema() -> None:
    """Print the JSON schema of a pipeline file."""
    from autopipe.config.schema import build_json_schema

    show_json(build_json_schema())
