"""This machine as a resolved target, and the tasks of an artifact: what benchmarks share."""

import json
import os
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from autopipe.tasks.task import Task


def target() -> Mapping[str, object]:
    """Return the facts of a target that is this machine."""
    from tvm.target.codegen import llvm_get_system_cpu, llvm_get_system_triple

    return {
        "kind": "llvm",
        "mcpu": str(llvm_get_system_cpu()),
        "mattr": [],
        "mtriple": str(llvm_get_system_triple()),
        "num_cores": len(os.sched_getaffinity(0)),
    }


def workloads(tasks: Path) -> Iterator[tuple[Task, Any]]:
    """Yield each task of an artifact of the stage `tasks`, with its module."""
    import tvm

    for document in json.loads((tasks / "tasks.json").read_text(encoding="utf-8")):
        task = Task.model_validate(document)
        text = (tasks / "workloads" / f"{task.workload}.json").read_text(encoding="utf-8")
        yield task, tvm.ir.load_json(text)
