"""This machine as a resolved target, and the tasks of an artifact: what benchmarks share."""

import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from autopipe.tasks.task import Task


def target() -> Mapping[str, object]:
    """Return the facts of a target that is this machine, as a pipeline resolves them."""
    from autopipe.compiler.tvm_probe import examine_tvm
    from autopipe.config.target import Target
    from autopipe.environment.environment import resolve_target

    return resolve_target(Target(), examine_tvm({}, lambda _: None))


def workloads(tasks: Path) -> Iterator[tuple[Task, Any]]:
    """Yield each task of an artifact of the stage `tasks`, with its module."""
    import tvm

    for document in json.loads((tasks / "tasks.json").read_text(encoding="utf-8")):
        task = Task.model_validate(document)
        text = (tasks / "workloads" / f"{task.workload}.json").read_text(encoding="utf-8")
        yield task, tvm.ir.load_json(text)
