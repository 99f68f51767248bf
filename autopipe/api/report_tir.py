"""Add the scheduled TIR of kernels to a report; a child process with TVM replays the schedules."""

from pathlib import Path

from autopipe.api.built_artifacts import find_artifacts
from autopipe.api.last_build import load_last
from autopipe.errors import ConfigError
from autopipe.pipeline.history import History
from autopipe.processes import call
from autopipe.report.document import RunReport
from autopipe.store.locks import FOR_EVER
from autopipe.store.store import find_default_root, open_store

_PROGRAM = "autopipe.stages.schedule_text"


def attach_tir(
    report: RunReport, file: Path, *, store: Path | None = None, build: str | None = None
) -> RunReport:
    """Add the TIR of its kernels to the report of the last build of a pipeline file.

    Raises ConfigError for a file that was not built, StageError, SetupError.
    """
    artifacts = find_artifacts(load_last(file, (), build, store), file, store, build)
    with open_store(store or find_default_root(), FOR_EVER) as opened_store:
        action = History.of(opened_store, file, "", build).last_action("build")
    if not action:
        raise ConfigError(f"{file} has no build in the store; run `autopipe run {file}` first")
    folders = {stage: str(folder) for stage, folder in artifacts.items()}
    texts = call.run_module(_PROGRAM, {"action": action, "artifacts": folders})["tir"]
    tasks = [task.model_copy(update={"tir": texts.get(task.workload)}) for task in report.tasks]
    return report.model_copy(update={"tasks": tuple(tasks)})
