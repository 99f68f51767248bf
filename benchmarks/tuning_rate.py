"""Trials per second over a whole tuning of ResNet-50's convolutions: ours against TVM's own.

`python benchmarks/tuning_rate.py` tunes the convolution tasks of `pipelines/resnet50.yaml` twice,
each time in a process of its own, with nothing from an earlier run: once as the stage `tune` does,
once with what `tune_relax` does at its defaults. Both use all cores for the search, the builds and
the kernels. Search, build, run and everything between them is counted, up to the last batch that
ended within `--seconds`. Run it on a machine that does nothing else. *CPU* are seconds of all cores
for each trial: where other programs run, too, they say more than the trials a second.

`--against CHECKOUT` compares with the autopipe of another checkout in place of TVM's tuning, and
prints for both after how many trials and seconds the sum of the best times of all kernels was
within so many percent of the best that either of them has found.
"""

import argparse
import json
import math
import os
import resource
import signal
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path
from time import perf_counter
from typing import Any

import psutil
from machine import target

import autopipe
from autopipe.tasks.task import Task

PROGRESS = "progress.jsonl"
"""File in which a contender says how far it has come."""

MARGINS = (20, 10, 5, 2)
"""Percent above the best time that is known, for which a curve says when it was reached."""

PIPELINE = Path(__file__).parents[1] / "pipelines" / "resnet50.yaml"


def ours(tasks: Path, trials: int, work: Path) -> None:
    """Tune as the stage does."""
    from autopipe.config.load import load
    from autopipe.environment.facet import Facet
    from autopipe.pipeline.events import Event, TuningProgress
    from autopipe.pipeline.stage import Context
    from autopipe.stages.tune import TuneStage

    start = perf_counter()

    def emit(event: Event) -> None:
        if isinstance(event, TuningProgress):
            _tell(work, event.trials, event.failed, perf_counter() - start)

    facts: dict[Facet, Mapping[str, object]] = {
        Facet.TARGET: target(),
        Facet.TVM: {},
        Facet.DEVICE: {},
    }
    out = work / "out"
    out.mkdir()
    pipeline = load(PIPELINE, (f"tuning.budget={{trials: {trials}}}",))
    stage = TuneStage.of(pipeline, PIPELINE.parent)
    if stage is None:
        sys.exit(f"{PIPELINE} does not tune")
    stage.run(
        Context(
            inputs={"tasks": tasks}, facts=facts, out=out, work=work,
            records=work / "records.sqlite", emit=emit,
        )
    )  # fmt: skip


def stock(tasks: Path, trials: int, work: Path) -> None:
    """Tune as `tune_relax` does once it has extracted its tasks."""
    import tvm
    from tvm.ir.utils import derived_object
    from tvm.s_tir import meta_schedule as ms

    from autopipe.compiler.target.target import make_target

    start = perf_counter()
    cores = int(str(target()["num_cores"]))
    counted = Counter[str]()
    runner = ms.runner.Runner.create("local", max_workers=cores)

    @derived_object
    class Counting(ms.runner.PyRunner):  # type: ignore[misc]
        """The runner that `tune_relax` makes, and a count; callbacks come rounds later."""

        def run(self, inputs: Any) -> Any:  # noqa: ANN401
            futures = runner.run(inputs)
            counted.update(trials=len(futures))
            counted.update(failed=sum(not future.result().run_secs for future in futures))
            _tell(work, counted["trials"], counted["failed"], perf_counter() - start)
            return futures

    kept = _convolutions(tasks)
    here = make_target(target())
    extracted = [
        ms.ExtractedTask(task.name, module, here, [module], task.calls)
        for task in kept
        if (module := tvm.ir.load_json(_workload(tasks, task)))
    ]
    contexts, weights = ms.relax_integration.extracted_tasks_to_tune_contexts(
        extracted, str(work), num_threads=cores
    )
    ms.tune.tune_tasks(
        tasks=contexts, task_weights=weights, work_dir=str(work), max_trials_global=trials,
        runner=Counting(),
    )  # fmt: skip


CONTENDERS: Mapping[str, Callable[[Path, int, Path], None]] = {
    "stock": stock,
    "before": ours,
    "ours": ours,
}

Curve = list[tuple[int, float, float]]
"""Trials, seconds, and the sum of the best times of all kernels by then, in seconds."""


def _convolutions(tasks: Path) -> list[Task]:
    documents = json.loads((tasks / "tasks.json").read_text(encoding="utf-8"))
    every = [Task.model_validate(document) for document in documents]
    return [task for task in every if task.dropped is None and "nn.conv2d" in task.info.names]


def _workload(tasks: Path, task: Task) -> str:
    return (tasks / "workloads" / f"{task.workload}.json").read_text(encoding="utf-8")


def _copy(source: Path, to: Path) -> None:
    """Write an artifact that holds the convolutions alone."""
    (to / "workloads").mkdir(parents=True)
    kept = _convolutions(source)
    document = [task.model_dump(mode="json") for task in kept]
    (to / "tasks.json").write_text(json.dumps(document), encoding="utf-8")
    for task in kept:
        path = to / "workloads" / f"{task.workload}.json"
        path.write_text(_workload(source, task), encoding="utf-8")


def _tell(work: Path, trials: int, failed: int, seconds: float) -> None:
    found = {"trials": trials, "failed": failed, "seconds": seconds}
    with (work / PROGRESS).open("a", encoding="utf-8") as file:
        file.write(json.dumps(found) + "\n")


def _measure(name: str, tasks: Path, options: argparse.Namespace) -> tuple[dict[str, float], Curve]:
    """Run one contender in a process of its own; return how far it came in time, and its curve."""
    from turns import import_from  # a contender of another checkout cannot

    cores = str(len(os.sched_getaffinity(0)))
    root = options.against if name == "before" else PIPELINE.parents[1]
    # `machine` is that of the checkout, too: it calls what may have another name in this one
    environment = import_from(root, "benchmarks")
    environment |= {"TVM_NUM_THREADS": cores, "OPENBLAS_NUM_THREADS": "1"}
    with tempfile.TemporaryDirectory() as work:
        arguments = ["--contender", name, "--tasks", str(tasks), "--work", work]
        with subprocess.Popen(
            [sys.executable, "-P", __file__, *arguments, "--trials", str(options.trials)],
            env=environment, stdout=subprocess.DEVNULL, start_new_session=True,
        ) as process:  # fmt: skip
            before = _count_ended_cpu()
            with suppress(subprocess.TimeoutExpired):
                process.wait(options.seconds)
            cpu = _count_cpu(process.pid) or _count_ended_cpu() - before
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
        try:
            progress = (Path(work) / PROGRESS).read_text(encoding="utf-8").splitlines()
        except FileNotFoundError:
            sys.exit(f"{name} did not end a single batch within {options.seconds:g} s")
        steps: list[dict[str, float]] = [json.loads(line) for line in progress]
        curve = [] if name == "stock" else _curve(tasks, Path(work), steps)
        return {**steps[-1], "cpu": cpu}, curve


def _count_cpu(pid: int) -> float:
    """Return the CPU seconds of a process that runs, and of all that it has started."""
    seconds = 0.0
    with suppress(psutil.NoSuchProcess):
        own = psutil.Process(pid)
        for one in (own, *own.children(recursive=True)):
            with suppress(psutil.NoSuchProcess):  # its parent counts it by now
                seconds += sum(one.cpu_times()[:4])
    return seconds


def _count_ended_cpu() -> float:
    """Return the CPU seconds of all processes that were started here and have ended."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def _curve(tasks: Path, work: Path, steps: list[dict[str, float]]) -> Curve:
    """Return how the best times went down, from the records of a contender."""
    from autopipe.records.record import REPEAT_SUFFIX
    from autopipe.records.store import RecordStore

    calls = {task.workload: task.calls for task in _convolutions(tasks)}
    best = dict.fromkeys(calls, math.inf)
    curve: Curve = []
    with RecordStore.view(work / "records.sqlite") as store:
        trials = [
            row.record for row in store.every() if not row.record.session.endswith(REPEAT_SUFFIX)
        ]
    for count, record in enumerate(trials, 1):
        best[record.workload] = min(best[record.workload], record.median)
        end = next((step["seconds"] for step in steps if step["trials"] >= count), None)
        if end is not None:
            curve.append((count, end, sum(best[name] * calls[name] for name in calls)))
    return curve


def _print_curves(curves: Mapping[str, Curve]) -> None:
    least = min(curve[-1][2] for curve in curves.values())
    print(f"best of either: {1e3 * least:.2f} ms")
    for name, curve in curves.items():
        print(f"{name}: {1e3 * curve[-1][2]:.2f} ms at the end")
        for margin in MARGINS:
            limit = (1 + margin / 100) * least
            found = next(((n, end) for n, end, total in curve if total <= limit < math.inf), None)
            reached = f"{found[0]} trials, {found[1]:.1f} s" if found else "not reached"
            print(f"  within {margin:2} %: {reached}", flush=True)


def _compare(options: argparse.Namespace) -> None:
    with tempfile.TemporaryDirectory() as folder:
        if options.tasks is None:
            artifacts = autopipe.run(PIPELINE, store=Path(folder) / "store", until="tasks")
            options.tasks = artifacts["tasks"].path
        tasks = Path(folder) / "tasks"
        _copy(options.tasks, tasks)
        rates, curves = {}, {}
        baseline = "before" if options.against else "stock"
        print(f"{'':8}{'trials':>8}{'failed':>8}{'seconds':>9}{'trials/s':>10}{'CPU':>8}")
        for name in (baseline, "ours"):
            found, curve = _measure(name, tasks, options)
            curves[name] = curve
            rates[name] = found["trials"] / found["seconds"]
            print(
                f"{name:8}{found['trials']:8.0f}{found['failed']:8.0f}{found['seconds']:9.1f}"
                f"{rates[name]:10.2f}{found['cpu'] / found['trials']:8.2f}",
                flush=True,
            )
        print(f"ours / {baseline}: {rates['ours'] / rates[baseline]:.2f}")
        if options.against:
            _print_curves(curves)


def main() -> None:
    """Compare, or be one of the contenders."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--trials", type=int, default=2000, help="trials of each contender")
    parser.add_argument("--seconds", type=float, default=900, help="when a contender is stopped")
    parser.add_argument("--tasks", type=Path, help="an artifact of the stage `tasks`")
    parser.add_argument("--against", type=Path, help="another checkout, to compare with")
    parser.add_argument("--contender", choices=CONTENDERS, help=argparse.SUPPRESS)
    parser.add_argument("--work", type=Path, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.contender is None:
        _compare(options)
        return
    CONTENDERS[options.contender](options.tasks, options.trials, options.work)


if __name__ == "__main__":
    main()
