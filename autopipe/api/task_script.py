"""Write a task as a self-contained script that tunes it, such as for a bug report."""

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from importlib.metadata import version
from pprint import pformat

from autopipe.backends import BACKENDS
from autopipe.config.pipeline import Pipeline
from autopipe.config.schedules import Rule
from autopipe.report.escape import escape_text
from autopipe.report.op_info import list_op_lines
from autopipe.report.units import format_count
from autopipe.tasks.matching import is_match
from autopipe.tasks.task import Task

_WIDTH = 96

_FIRST = """\
from __future__ import annotations  # only TVM's parser knows the sizes in them

import argparse
import sys
"""

_IMPORTS = """\
import autopipe
from autopipe.errors import AutopipeError
from autopipe.pipeline.events import Event, Warn
from autopipe.report.wording import describe_event
"""

_MAIN = '''\


def show_event(event: Event) -> None:
    """Print warnings, and in a terminal the progress of tuning."""
    if isinstance(event, Warn):
        print(describe_event(event), file=sys.stderr)
    elif sys.stderr.isatty():
        print(describe_event(event).ljust(79), end="\\r", file=sys.stderr, flush=True)


def main() -> None:
    """Tune the task, and print the engines and the winner."""
    parser = argparse.ArgumentParser(description="Tune this task alone.")
    parser.add_argument("--trials", type=int, default=64, help="candidates to measure  [64]")
    parser.add_argument("--seconds", type=float, help="time limit")
    parser.add_argument("--engine", action="append", help="a search engine; may be repeated")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--store", help="folder that keeps what was measured")
    parser.add_argument("--tir", action="store_true", help="show the scheduled TIR too")
    options = parser.parse_args()
    try:
        scheduled = autopipe.auto_schedule(
            Module,
            target=TARGET,
            trials=options.trials,
            seconds=options.seconds,
            engines=options.engine or ENGINES,
            info=INFO,
            seed=options.seed,
            fast_algorithms=FAST_ALGORITHMS,
            store=options.store,
            emit=show_event,
        )
    except AutopipeError as error:
        sys.exit(f"error: {error}")
    print(f"\\n{scheduled}" if sys.stderr.isatty() else scheduled)
    if options.tir:
        print(scheduled.module.script())


if __name__ == "__main__":
    main()
'''


@dataclass(frozen=True, slots=True)
class Loops:
    """The TIR of a task."""

    tir: str
    """The loops as TVMScript."""
    exact: bool
    """Whether parsing that text yields the same module."""
    json: str
    """The loops as TVM's JSON, which always round-trips."""


def format_file_name(task: Task) -> str:
    """Format the name of a task's script, portable across file systems."""
    return f"{task.index:03}-{re.sub(r'[^A-Za-z0-9_]+', '_', task.name)[:80]}.py"


def write_task_script(
    task: Task, loops: Loops, pipeline: Pipeline, target: Mapping[str, object]
) -> str:
    """Write the text of the script; `target` has the resolved facts of `Facet.TARGET`."""
    head = "\n".join(f"# {line}".rstrip() for line in _list_header_lines(task, pipeline, target))
    imports, module = _split_script(loops.tir) if loops.exact else _embed_json(loops.json)
    return (
        f"{head}\n\n{_FIRST}\n{imports}\n\n{_IMPORTS}\n"
        f"{''.join(_list_constants(task, pipeline, target))}\n\n{module}\n{_MAIN}"
    )


def _list_header_lines(
    task: Task, pipeline: Pipeline, target: Mapping[str, object]
) -> Iterator[str]:
    yield escape_text(
        f"Task {task.index} of {pipeline.name}: {task.name}, {task.info.kind}", _WIDTH
    )
    yield ""
    yield from (f"  {line}" for line in list_op_lines(task, _WIDTH - 2))
    yield ""
    work = f"{format_count(task.flops)} FLOPs and {format_count(task.bytes)} bytes a call"
    yield f"Called {task.calls} times an inference; {work}; {task.share:.1%} of the estimated time"
    yield f"Workload {task.workload}"
    if task.dropped is not None:
        yield escape_text(f"A run does not tune it: {task.dropped}", _WIDTH)
    machine = {k: v for k, v in target.items() if k in {"arch", "mcpu", "mtriple", "num_cores"}}
    on = ", ".join(f"{name} {value}" for name, value in machine.items())
    yield escape_text(f"Exported for {on}", _WIDTH)
    names = ("autopipe", "apache-tvm", "apache-tvm-ffi")
    yield f"with {', '.join(f'{name} {version(name)}' for name in names)}."
    yield f"Run it with: python {format_file_name(task)} --trials 64"


def _list_constants(task: Task, pipeline: Pipeline, target: Mapping[str, object]) -> Iterator[str]:
    """Yield the pipeline's options of the task as assignments.

    Fields that default to the machine are resolved, so that another machine uses the same.
    """
    stated_fields = pipeline.target.model_dump(mode="json", exclude_defaults=True)
    foreign_fields = {
        f for kind, one in BACKENDS.items() if kind != target["kind"] for f in one.fields
    }
    names = [name for name in type(pipeline.target).model_fields if name not in foreign_fields]
    resolved_fields = {name: target[name] for name in names if name in target}
    rules = pipeline.schedules.rules
    chains = (rule.engines for rule in rules if is_match(rule.match, task, task.share))
    info = task.info.model_dump(mode="json", exclude_defaults=True) if task.info.ops else None
    options = {
        "TARGET": {**stated_fields, **resolved_fields},
        "ENGINES": next(chains, ()) or Rule().engines,
        "FAST_ALGORITHMS": pipeline.numerics.fast_algorithms,
        "INFO": info,
    }
    for name, value in options.items():
        literal = pformat(value, width=_WIDTH - len(f"{name} = "), compact=True, sort_dicts=False)
        yield f"{name} = {literal}\n".replace("\n ", "\n" + " " * len(f"{name} =  "))


def _split_script(tir: str) -> tuple[str, str]:
    """Split TVMScript into the imports, which it has in comments, and the module."""
    head, _, module = tir.partition("\n\n")
    imports = [line.removeprefix("# ") for line in head.splitlines()]
    used_imports = [line for line in imports if re.search(rf"\b{line.split()[-1]}\b", module)]
    return "\n".join(used_imports), module.rstrip()


def _embed_json(text: str) -> tuple[str, str]:
    why = "# TVM's JSON: written as TVMScript, this module would not be read back as the same."
    return "import tvm", f"{why}\nModule = tvm.ir.load_json(\n    {text!r}\n)"
