"""Write the reports of a run's builds, whether it succeeds or fails."""

import os
import secrets
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import replace
from functools import partial
from importlib.metadata import version
from pathlib import Path
from typing import Final

from autopipe.api.last_build import find_origin
from autopipe.backends import BACKENDS
from autopipe.config.load import load
from autopipe.config.pipeline import Pipeline
from autopipe.environment.environment import describe_device
from autopipe.errors import AutopipeError, ConfigError, StoreError, convert_os_errors
from autopipe.lock.outline import DECISIVE
from autopipe.pipeline.events import Emit, Warn
from autopipe.pipeline.plan import build_plan
from autopipe.processes.interrupt import find_exit_code
from autopipe.records.record import Record
from autopipe.records.store import RecordStore
from autopipe.report.document import RunReport, as_json
from autopipe.report.html.page import build_page
from autopipe.report.junit import format_junit
from autopipe.report.markdown import format_markdown
from autopipe.report.recorder import Recorder, RunInfo, replace_places
from autopipe.stages import stages_of
from autopipe.store.store import find_default_root, find_records

FORMS: Final[Mapping[str, Callable[..., str]]] = {
    ".json": as_json,
    ".xml": format_junit,
    ".md": format_markdown,
    ".html": build_page,
}
"""Functions that format the reports of all builds of a run, by file suffix."""


@contextmanager
def save_reports_at_end(emit: Emit, paths: Sequence[Path]) -> Iterator[list[RunReport]]:
    """Yield the list that collects the builds' reports; at the end, write it to each of `paths`.

    Raises ConfigError, before the run, for a path with an unknown suffix; StoreError for a report
    that cannot be written, or warns of it where the run itself failed.
    """
    for path in paths:
        if path.suffix not in FORMS:
            forms = ", ".join(FORMS)
            raise ConfigError(f"--report {path}: the suffix says the form; it is one of {forms}")
    reports: list[RunReport] = []
    try:
        yield reports
    except BaseException as error:
        try:
            _write_reports(reports or [_report_unstarted_run(error)], paths)
        except StoreError as second:
            emit(Warn(stage="report", message=str(second)))
        raise
    _write_reports(reports, paths)


@contextmanager
def record_run(  # noqa: PLR0913 -- what `flow.run` takes, too
    emit: Emit,
    reports: list[RunReport],
    file: Path,
    *,
    build: str | None = None,
    overrides: Sequence[str] = (),
    store: Path | None = None,
    until: str | None = None,
) -> Iterator[Emit]:
    """Yield the reporter of a run of `file`; at its end, even by an error, add its report."""
    root = store or find_default_root()
    about = describe_run(file, overrides, until, root, build)

    def finish(code: int, error: BaseException | None) -> RunReport:
        return attach_origin(recorder.report(about, code, error), root, file, build, about.places)

    recorder = Recorder(emit, lambda digest: root / "objects" / digest, partial(find_trials, root))
    try:
        yield recorder
    except BaseException as error:
        try:
            reports.append(finish(find_exit_code(error), error))
        except StoreError as second:
            emit(Warn(stage="report", message=str(second)))
        raise
    reports.append(finish(0, None))


def attach_origin(
    report: RunReport, root: Path, file: Path, build: str | None, places: Mapping[str, str]
) -> RunReport:
    """Add the sources of a build, and its differences from the previous one, to a report."""
    digests = {one.stage: one.digest for one in report.stages if one.digest is not None}
    origin = find_origin(root, file, build, digests)
    since = replace_places(
        None if origin.since is None else origin.since.model_dump(mode="json"), places
    )
    origin_fields = {"sources": dict(origin.sources), "since": since}
    return RunReport.model_validate({**report.model_dump(mode="json"), **origin_fields})


def find_trials(root: Path, session: str) -> list[Record]:
    """Read the trials of a session from a store's records; none if it has no records.

    Raises StoreError.
    """
    records = find_records(root)
    if not records.exists():
        return []
    with RecordStore.view(records) as store:
        trials = store.every("session = ? AND here", (session,))
    return [details.believed for details in trials]


def _report_unstarted_run(error: BaseException) -> RunReport:
    """Build the report of a run that ended before its first build."""
    recorder = Recorder(lambda _: None, Path)
    return recorder.report(_describe_any_run(find_default_root()), find_exit_code(error), error)


def write_whole_file(path: Path, text: str) -> None:
    """Write a file so that a reader, or a crash, sees the old text or the new one.

    Folders on the way are made. Raises StoreError.
    """
    temporary = path.with_name(f".{path.name}.{secrets.token_hex(4)}.part")
    with convert_os_errors(StoreError, path):
        path.parent.mkdir(parents=True, exist_ok=True)
        try:
            with temporary.open("x", encoding="utf-8") as file:
                file.write(text)
                file.flush()
                os.fsync(file.fileno())
            temporary.replace(path)
        finally:
            with suppress(OSError):
                temporary.unlink(missing_ok=True)


def _write_reports(reports: Sequence[RunReport], paths: Sequence[Path]) -> None:
    errors = []
    for path in paths:
        try:
            write_whole_file(path, FORMS[path.suffix](*reports))
        except StoreError as error:  # the others are written all the same
            errors.append(error)
    if errors:
        raise errors[0]


def describe_run(
    file: Path, overrides: Sequence[str], until: str | None, root: Path, build: str | None
) -> RunInfo:
    """Collect the facts of a run before it starts; errors are left to the run."""
    with suppress(AutopipeError):
        return describe_pipeline(load(file, overrides, build), file, until, root)
    return _describe_any_run(root)


def describe_pipeline(pipeline: Pipeline, file: Path, until: str | None, root: Path) -> RunInfo:
    """Collect the facts of a run of a pipeline; facts that raise errors are omitted."""
    about = _describe_any_run(root)
    with suppress(AutopipeError):
        configuration = pipeline.model_dump(mode="json", include=set(DECISIVE))
        about = replace(about, pipeline=pipeline, configuration=configuration)
        steps = build_plan(stages_of(pipeline, file.absolute().parent), until=until)
        about = replace(about, stages=[step.name for step in steps])
        machine = {**describe_device(), **BACKENDS[pipeline.target.kind].describe_device()}
        about = replace(about, machine=machine)
    return about


def _describe_any_run(root: Path) -> RunInfo:
    """Collect the facts that do not depend on the pipeline."""
    places = {
        str(root.absolute()): "$STORE",
        sys.prefix: "$PYTHON",
        str(Path.cwd()): ".",
        str(Path.home()): "~",
    }
    return RunInfo(
        pipeline=None,
        configuration=None,
        stages=[],
        machine=None,
        versions={"autopipe": version("autopipe")},
        places={place: name for place, name in places.items() if place != os.sep},
    )
