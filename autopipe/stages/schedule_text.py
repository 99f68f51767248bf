"""Writes the scheduled TIR of a build's kernels, as the main program of a child process.

Each schedule is rebuilt as in *build*, from the same artifacts; nothing is compiled or run.
"""

import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any

from autopipe.artifacts.library import BuiltLibrary, LibraryTask
from autopipe.environment.facet import Facet
from autopipe.pipeline.stage import Context
from autopipe.processes import call
from autopipe.safety.verdict import Finding, Verdict
from autopipe.stages.build import BuildStage
from autopipe.tasks.op_info import ATTRIBUTE

if TYPE_CHECKING:
    from autopipe.building.choice import Choices


def write_schedules(request: Mapping[str, Any]) -> dict[str, Any]:
    """Return the TVMScript of each task's schedule by its workload.

    The request has the `action` of *build* and the folders of its `artifacts`. Tasks whose schedule
    cannot be rebuilt are omitted.
    """
    action = request["action"]
    inputs = {stage: Path(folder) for stage, folder in request["artifacts"].items()}
    library = BuiltLibrary.read(inputs.pop("build"))
    stage = BuildStage.model_validate_json(json.dumps(action["params"]))
    with TemporaryDirectory(prefix="autopipe-") as scratch:
        work = Path(scratch)
        context = Context(
            inputs=inputs, facts={Facet(name): known for name, known in action["facts"].items()},
            out=work, work=work, records=work / "records.sqlite", emit=lambda _: None,
        )  # fmt: skip
        with stage.plan(context) as (choices, *_):
            return {
                "tir": dict(_list_scripts(choices, {one.workload: one for one in library.tasks}))
            }


def _list_scripts(
    choices: "Choices", library_tasks: Mapping[str, LibraryTask]
) -> Iterator[tuple[str, str]]:
    from autopipe.errors import StageError

    for place, request in enumerate(choices.asked):
        library_task = library_tasks.get(request.task.workload)
        try:
            while library_task is not None and not _is_built_with(choices, place, library_task):
                choices.drop(place, Verdict(Finding.FAILED, "the build has another one"))
        except StageError:
            continue
        if library_task is not None:
            function = choices.chosen[place].module["main"].without_attr(ATTRIBUTE)
            yield request.task.workload, function.script()


def _is_built_with(choices: "Choices", place: int, library_task: LibraryTask) -> bool:
    choice = choices.chosen[place]
    return (choice.engine, choice.implementation, choice.seconds) == (
        library_task.engine, library_task.implementation, library_task.seconds,
    )  # fmt: skip


if __name__ == "__main__":
    call.serve_request(write_schedules)
