"""Lists the schedules that are put aside: `python benchmarks/put_aside.py pipelines/*.yaml`.

A schedule that its check finds wrong, that fails, or whose template raises, is a bug of ours, even
where another one takes its place. This checks the schedules that an untuned build begins with, each
distinct function once: of pipelines, of models as `published.py` takes them (files, `pkg:` paths,
wheels, with `@input=SHAPE`), and with `--operators` of the tests of the onnx package. `--settings`
checks as many other settings of each template besides, which tuning may find. One line for each
schedule that is put aside; the exit status is 1 if there is one.
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, Final

from machine import target, workloads
from operator_cases import OperatorCase, cases
from published import models

import autopipe
from autopipe.environment.facet import Facet
from autopipe.errors import AutopipeError, StageError
from autopipe.processes.contained import Child, Failed
from autopipe.tasks.task import Task

_OPERATOR_SECONDS: Final = 60.0
_TOGETHER: Final = 16
"""Functions whose schedules are made, then checked."""

Function = tuple[Task, Any]
"""A task, and the module of its workload."""


@dataclass
class Inspection:
    """Checks schedules, and counts."""

    conditions: Any
    settings: int
    """Further settings of each template."""
    folder: Path
    """Where what is put aside is kept, with a script each that shows it."""
    known: set[int] = field(default_factory=set)
    """Structural hashes of the functions that were seen."""
    checked: int = 0
    unchecked: int = 0
    aside: int = 0

    def inspect(self, source: str, functions: Sequence[Function]) -> None:
        """Check the schedules of functions that were not seen yet."""
        fresh = []
        for task, module in functions:
            identity = _identity(module)
            if identity not in self.known:
                self.known.add(identity)
                fresh.append((task, module))
        for at in range(0, len(fresh), _TOGETHER):
            self._inspect(source, fresh[at : at + _TOGETHER])

    def _report(self, source: str, text: str) -> None:
        """Print a line for what is put aside."""
        self.aside += 1
        print(f"{source}: {' '.join(text.split())}", flush=True)

    def _inspect(self, source: str, functions: Sequence[Function]) -> None:
        from autopipe.compiler.op_info import described
        from autopipe.safety.checking import Checker
        from autopipe.safety.failures import Failures
        from autopipe.safety.inspection import Inspector
        from autopipe.safety.maker import Maker
        from autopipe.safety.quarantine import Quarantine
        from autopipe.safety.verdict import Finding

        report = partial(self._report, source)
        failures = Failures(Quarantine(self.folder / "failed", target()), self.conditions, report)
        named = {task.name: described(module, task.info) for task, module in functions}
        with Maker(named, failures) as maker:
            suspects = [one for name in named for one in self._suspects(name, named[name], maker)]
        self.folder.mkdir(parents=True, exist_ok=True)
        facts = {Facet.TARGET: target()}
        inspector = Inspector(self.folder, facts, Checker(self.conditions), failures)
        try:
            verdicts = inspector.judge(suspects)
        except StageError as error:  # the plain loops themselves are broken
            report(str(error))
            return
        self.checked += len(verdicts)
        self.unchecked += sum(verdict.finding is Finding.UNCHECKED for verdict in verdicts)

    def _suspects(self, name: str, module: Any, maker: Any) -> Iterator[Any]:  # noqa: ANN401
        """Yield the schedules of a function: those of `static`, else that of `default`."""
        from autopipe.safety.quarantine import Suspect

        engine, plans = "static", list(maker.plans(name, "static"))
        if not plans:
            engine, plans = "default", list(maker.plans(name, "default"))
        for planned in plans:
            by = engine, planned.implementation
            yield Suspect(name, *by, planned.schedule, module, planned.module)
            implemented = maker.implementations(name)[planned.implementation]
            for schedule in self._others(implemented) if engine == "static" else ():
                scheduled = maker.replay(name, by, schedule)
                yield Suspect(name, *by, schedule, module, scheduled)

    def _others(self, module: Any) -> Iterator[str]:  # noqa: ANN401
        """Yield further settings of the template of a function, drawn at random."""
        from autopipe.schedules.engines.knobs.space import Space
        from autopipe.schedules.templates.serve import serve

        served = serve(module, self.conditions.hardware) if self.settings else None
        if served is not None:
            space = Space.of(served, self.conditions.hardware, len(self.known))
            yield from map(space.document, range(1, min(len(space.settings), self.settings + 1)))


def main() -> None:
    """Inspect what is asked for; exit with 1 if a schedule is put aside."""
    parser = argparse.ArgumentParser(description=str(__doc__).partition("\n")[0])
    parser.add_argument("models", nargs="*", help="pipeline files, models, or wheels of models")
    parser.add_argument("--operators", nargs="?", const="", help="the onnx package's tests")
    parser.add_argument("--share", default="0/1", help="of the tests: 1/2 is the second half")
    parser.add_argument("--settings", type=int, default=0, help="others of each template")
    parser.add_argument("--keep", type=Path, help="folder for what is put aside")
    options = parser.parse_args()
    from autopipe.schedules.conditions import Conditions

    with tempfile.TemporaryDirectory() as scratch:
        conditions = Conditions.of(target(), fast_algorithms=True)
        kept = options.keep or Path(scratch, "aside")
        inspection = Inspection(conditions, options.settings, kept)
        for source, functions in _sources(options, Path(scratch), inspection):
            if sys.stderr.isatty():
                print(f"{source}: {len(functions)} functions", file=sys.stderr)
            inspection.inspect(source, functions)
    print(
        f"{inspection.aside} put aside of {inspection.checked} schedules of"
        f" {len(inspection.known)} functions; {inspection.unchecked} cannot be checked"
    )
    sys.exit(bool(inspection.aside))


def _sources(
    options: argparse.Namespace, scratch: Path, inspection: Inspection
) -> Iterator[tuple[str, Sequence[Function]]]:
    pipelines = [Path(each) for each in options.models if each.endswith(".yaml")]
    others = [each for each in options.models if not each.endswith(".yaml")]
    for model, shapes in models(others, scratch):
        pipelines.append(scratch / f"{len(pipelines)}-{Path(model).stem}.yaml")
        arguments = ["init", model, "-o", pipelines[-1], *(f"--shape={each}" for each in shapes)]
        command = [sys.executable, "-m", "autopipe", *map(str, arguments)]
        subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
    for at, pipeline in enumerate(pipelines):
        try:
            run = autopipe.run(pipeline, store=scratch / f"store-{at}", until="tasks")
        except AutopipeError as error:
            print(f"{pipeline.stem}: not built: {error}", file=sys.stderr)
            continue
        yield pipeline.stem, list(workloads(run["tasks"].path))
    if options.operators is not None:
        share, shares = map(int, options.share.split("/"))
        only = options.operators
        asked = [case for case in cases() if only in case.name or only == case.operator]
        yield from _operators(asked[share::shares], inspection.conditions)


def _operators(
    asked: Sequence[OperatorCase],
    conditions: Any,  # noqa: ANN401
) -> Iterator[tuple[str, Sequence[Function]]]:
    """Yield the functions of the onnx package's tests of operators, as far as they are taken."""
    import tvm

    for case in asked:
        with Child(partial(_begun, case, conditions), seconds=_OPERATOR_SECONDS) as child:
            child.tell()
            try:
                found = child.answer()
            except (Failed, AutopipeError) as error:
                print(f"{case.name}: not lowered: {error}", file=sys.stderr)
                continue
        yield (
            case.name,
            [(Task.model_validate(task), tvm.ir.load_json(text)) for task, text in found],
        )


def _begun(case: OperatorCase, conditions: Any) -> Any:  # noqa: ANN401
    return lambda _: _lowered(case, conditions)


def _lowered(case: OperatorCase, conditions: Any) -> list[tuple[Mapping[str, Any], str]]:  # noqa: ANN401
    """Return the tasks of a case with their workloads, as JSON."""
    import tvm

    from autopipe.compiler import lowering, tasks
    from autopipe.compiler.frontends.onnx.load import load

    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "case.onnx")
        path.write_bytes(case.model.SerializeToString())
        try:
            model = load(path, {}, None, None)
        except AutopipeError:  # `operators.py` tells of these
            return []
    goal = conditions.target
    optimized = lowering.optimize(model.module, len(model.inputs), {}, goal, lambda _: None)
    extracted, bodies = tasks.extract_tasks(lowering.lower(optimized.module, goal))
    return [
        (json.loads(task.model_dump_json()), tvm.ir.save_json(bodies[task.workload]))
        for task in extracted
    ]


def _identity(module: Any) -> int:  # noqa: ANN401
    import tvm_ffi

    from autopipe.tasks.op_info import ATTRIBUTE

    function = module["main"].without_attr(ATTRIBUTE)
    return int(tvm_ffi.structural_hash(function, map_free_vars=True))


if __name__ == "__main__":
    os.environ["ORT_DISABLE_TELEMETRY"] = "1"
    main()
