"""Tells whether a function can be scheduled at all, before it becomes a task.

Engine `default` decides: no engine can schedule what it cannot, and it needs no extension.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager

import tvm

from autopipe.compiler import module_io
from autopipe.processes.contained import Child, Failed
from autopipe.schedules.conditions import Conditions
from autopipe.schedules.engines import default


@contextmanager
def open_refusal_check(conditions: Conditions) -> Iterator[Callable[[tvm.IRModule], str | None]]:
    """Yield a function that returns why a workload module has no schedule, or None if it has one.

    It schedules in a child process, as a schedule may crash TVM.
    """

    def plan(module: str) -> bool:
        return default.plan(module_io.parse_json(module), conditions) is not None

    def refusal(module: tvm.IRModule) -> str | None:
        try:
            is_schedulable = child.twice(tvm.ir.save_json(module))
        except Failed as error:
            return f"scheduling failed twice: {error}"
        return None if is_schedulable else "no engine has a schedule for it"

    with Child(lambda: plan) as child:
        yield refusal
