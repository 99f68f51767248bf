"""Report earlier builds from a report, the store, a lock or a package.

Nothing is run, and TVM is not imported. Facts that a file does not have are omitted.
"""

import json
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any, Final

from autopipe.api.last_build import build_missing_error, load_last, look_up_build
from autopipe.api.reports import attach_origin, describe_pipeline, find_trials
from autopipe.artifacts.tuning import TuningResult
from autopipe.config.load import load_builds
from autopipe.config.pipeline import Pipeline
from autopipe.errors import StoreError
from autopipe.lock import file as lock_files
from autopipe.lock import records as lock_records
from autopipe.lock.document import Lock, LockedTask
from autopipe.lock.recognize import FileKind, find_records_path, recognize_file
from autopipe.packaging.contents import PackageContents, opened
from autopipe.packaging.manifest import Needs
from autopipe.packaging.node_map import read_node_map
from autopipe.packaging.variants import list_builds
from autopipe.pipeline.events import StageCached
from autopipe.pipeline.history import History
from autopipe.pipeline.plan import require_stages
from autopipe.report import document
from autopipe.report.document import KernelGraph, PackageReport, RunReport, TaskReport
from autopipe.report.recorder import Recorder
from autopipe.report.records import list_schedule_lines
from autopipe.report.task_reports import draw_graphs, find_nodes, label_libraries
from autopipe.store.canonical import Document
from autopipe.store.files import sha256
from autopipe.store.locks import FOR_EVER
from autopipe.store.store import Store, find_default_root, open_store

_FINISHED: Final[Mapping[str, Any]] = {
    "configuration": None, "exit_code": 0, "outcome": "finished", "error": None, "seconds": 0.0,
    "stages": (), "warnings": (), "verification": None, "benchmark": None,
    "gates": (), "package": None, "machine": None,
}  # fmt: skip
"""Fields of a report that no file of a build has."""


def read_reports(path: Path) -> tuple[RunReport, ...]:
    """Read the reports of a file: a report, a lock, or a package with all its builds.

    Raises ConfigError for any other file, LockError, PackageError.
    """
    kind = recognize_file(path)
    if kind is FileKind.REPORT:
        report = document.load_builds(path)
        return (report,) if isinstance(report, RunReport) else report.builds
    return (_report_lock(path),) if kind is FileKind.LOCK else _report_package(path)


def read_last_builds(
    file: Path, *, store: Path | None = None, overrides: Sequence[str] = (),
    build: str | None = None,
) -> tuple[RunReport, ...]:  # fmt: skip
    """Report the last run of each build of a pipeline file from the store.

    Benchmark times are never taken from the store. Raises ConfigError where nothing was built.
    """
    root = store or find_default_root()
    pipelines = load_builds(file, overrides)
    require_stages([] if build is None else [build], [name or "" for name in pipelines], "--build")
    names = pipelines if build is None else [build]
    with open_store(root, FOR_EVER) as opened_store:
        last_reports = [
            _report_last_build(opened_store, file, name, load_last(file, overrides, name, root))
            for name in names
        ]
    reports = tuple(report for report in last_reports if report is not None)
    if not reports:
        raise build_missing_error(file)
    return reports


def _report_last_build(
    store: Store, file: Path, build: str | None, pipeline: Pipeline
) -> RunReport | None:
    """Report the last build with its inputs, and its verification if that is of the same build."""
    history = History.of(store, file, pipeline.name, build)
    built = look_up_build(history)
    if built is None:
        return None
    digest, action = built[0].digest, built[1].action
    stages = {**action["inputs"], "build": digest}
    verify_key = history.last_key("verify")
    verify_entry = None if verify_key is None else store.entry(verify_key)
    if verify_entry is not None and _is_of(verify_entry.action, digest, pipeline):
        stages["verify"] = verify_entry.digest
    recorder = Recorder(lambda _: None, store.object, partial(find_trials, store.root))
    try:
        for stage, name in stages.items():
            recorder(StageCached(stage=stage, digest=name))
    except ValueError as error:  # a file of an earlier release
        raise StoreError(f"the store's last build of {file} cannot be read: {error}") from None
    about = describe_pipeline(pipeline, file, None, store.root)
    report = recorder.report(replace(about, stages=[], machine=None), 0, None)
    report = attach_origin(report, store.root, file, build, about.places)
    return report.model_copy(update={"origin": "build"})


def _is_of(verify_action: Document, build: str, pipeline: Pipeline) -> bool:
    """Whether a verification has a build and the options of a pipeline; it may have failed."""
    options = pipeline.verify and pipeline.verify.model_dump(mode="json")
    verified_build = verify_action["inputs"].get("build"), verify_action["params"].get("options")
    return verified_build == (build, options)


def _report_lock(path: Path) -> RunReport:
    """Report a lock, with its records where their digest matches."""
    lock = lock_files.read_lock(path)
    tuning = _read_records(lock, path)
    versions = {
        name: version for facet in lock.versions.values() for name, version in facet.items()
    }
    return RunReport(**{
        **_FINISHED, "origin": "lock", "pipeline": lock.pipeline, "versions": versions,
        "configuration": lock.configuration, "target": lock.target, "sources": lock.sources,
        "tasks": tuple(_describe_locked_task(task, tuning) for task in lock.tasks),
    })  # fmt: skip


def _read_records(lock: Lock, path: Path) -> TuningResult:
    records = find_records_path(path)
    data = lock_files.read_records(path, lock) if records.is_file() else None
    return (
        TuningResult.untuned()
        if data is None
        else lock_records.read_records(data.decode(), records)
    )


def _describe_locked_task(task: LockedTask, tuning: TuningResult) -> TaskReport:
    report, record = tuning.tasks.get(task.workload), tuning.records.get(task.workload)
    template = json.dumps(task.schedule) if isinstance(task.schedule, dict) else None
    schedule = record.schedule if record is not None and task.schedule is not None else template
    return TaskReport(
        name=task.name, workload=task.workload, calls=task.calls, engine=task.engine,
        implementation=task.implementation, reason="",
        seconds=None if task.microseconds is None else task.microseconds[1] / 1e6,
        share=report.share if report else None, trials=task.trials,
        failed=report.failed if report else 0, ops=task.ops, computes=task.ops,
        schedule=tuple(list_schedule_lines(schedule)) if schedule is not None else (),
    )  # fmt: skip


def _report_package(path: Path) -> tuple[RunReport, ...]:
    """Report each build in the manifest of a package."""
    with opened(path) as contents:
        builds = list(list_builds(contents.manifest.needs))
        package = PackageReport(path=str(path), size=path.stat().st_size, sha256=sha256(path))
        return tuple(
            _report_build(contents, needs, prefix, package, several=len(builds) > 1)
            for prefix, needs in builds
        )


def _report_build(
    contents: PackageContents, needs: Needs, prefix: str, package: PackageReport, *, several: bool
) -> RunReport:
    manifest, processor = contents.manifest, needs.processor
    name = f"{manifest.name} for {processor.mcpu}" if several else manifest.name
    signature = needs.signature
    target = {**processor.model_dump(mode="json"), "num_cores": signature.threads}
    node_map = read_node_map(contents, prefix)
    order = [node.name for node in node_map.nodes]
    places: dict[str, int | None] = {task.name: at for at, task in enumerate(needs.tasks)}
    graphs = draw_graphs(node_map, places, label_libraries(signature.entries))
    return RunReport(**{
        **_FINISHED, "origin": "package", "pipeline": name, "target": target,
        "configuration": _read_configuration(contents),
        "versions": dict(_list_versions(contents, needs)),
        "tasks": tuple(_list_packaged_tasks(needs, graphs, order)), "graphs": graphs,
        "verified": needs.verification, "package": package,
        "inputs": signature.inputs, "outputs": signature.outputs,
    })  # fmt: skip


def _read_configuration(contents: PackageContents) -> dict[str, Any] | None:
    manifest = contents.manifest
    return manifest.predicate.build_definition.external_parameters.configuration


def _list_versions(contents: PackageContents, needs: Needs) -> Iterator[tuple[str, str]]:
    yield from needs.runtime.items()
    yield from needs.libraries.items()
    yield from contents.manifest.predicate.run_details.builder.version.items()


def _list_packaged_tasks(
    needs: Needs, graphs: Sequence[KernelGraph], order: Sequence[str]
) -> Iterator[TaskReport]:
    """Yield the tasks, with nodes where all calls of a task are of its named function.

    A package does not list the other functions of a task.
    """
    nodes = find_nodes(graphs, order)
    counts = Counter(call.task for graph in graphs for call in graph.calls)
    for at, task in enumerate(needs.tasks):
        yield TaskReport(
            name=task.name, workload=task.workload, calls=task.calls, engine=task.engine,
            implementation=task.implementation, seconds=None, reason="",
            nodes=nodes[at] if counts[at] == task.calls else (),
        )  # fmt: skip
