"""Lists the implementations of a task and the template that serves each of them."""

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from autopipe.compiler.labels.op_info import annotate_workload
from autopipe.compiler.module_io import load_module
from autopipe.schedules.conditions import Conditions
from autopipe.schedules.implementations.implementation import build_implementations
from autopipe.schedules.templates.serve import serve
from autopipe.tasks.task import Task


def find_templates(
    argument: Mapping[str, Any], _emit: Callable[[Any], None]
) -> dict[str, str | None]:
    """Return the template of each implementation, None where none serves it. Runs in a child.

    Takes the task, the `module` file of its workload, the resolved facts of `Facet.TARGET` and
    whether `fast_algorithms` are allowed.
    """
    task = Task.model_validate(argument["task"])
    conditions = Conditions.of(argument["target"], fast_algorithms=argument["fast_algorithms"])
    workload = annotate_workload(load_module(Path(argument["module"])), task.info)
    by_name = {
        name: serve(body, conditions.hardware)
        for name, body in build_implementations(workload, conditions).items()
    }
    return {name: served.template.name if served else None for name, served in by_name.items()}
