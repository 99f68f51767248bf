"""Runs the stage `tune` on a small matmul. `python -m tests.stages.small_tuning FOLDER TRIALS
[SECONDS]`."""

import json
import sys
from pathlib import Path

import tvm

from autopipe.config.pipeline import Pipeline
from autopipe.environment.facet import Facet
from autopipe.pipeline.stage import Context
from autopipe.stages.tune import TuneStage
from tests.schedules.tasks import task
from tests.schedules.tensors import matmul
from tests.support import here

FACTS = {
    Facet.TARGET: here.facts(),
    Facet.TVM: {"tvm": tvm.__version__},
    Facet.DEVICE: {"cpu": "this one"},
}


def emit(event):
    sys.stderr.write(event.model_dump_json() + "\n")


def context(folder):
    for name in ("tasks/workloads", "out", "work"):
        (folder / name).mkdir(parents=True, exist_ok=True)
    kept = task(0, flops=2.0 * 48**3, ops=("matmul",), share=1.0)
    dropped = task(1).model_copy(update={"dropped": "too small"})
    document = [entry.model_dump(mode="json") for entry in (kept, dropped)]
    (folder / "tasks/tasks.json").write_text(json.dumps(document), encoding="utf-8")
    workload = folder / "tasks/workloads" / f"{kept.workload}.json"
    if not workload.exists():
        workload.write_text(tvm.ir.save_json(matmul()), encoding="utf-8")
    return Context(
        inputs={"tasks": folder / "tasks"}, facts=FACTS, out=folder / "out", work=folder / "work",
        records=folder / "records.sqlite",
        emit=emit,
    )  # fmt: skip


def main():
    folder, trials = Path(sys.argv[1]), int(sys.argv[2])
    measure = {"repeat": 1, "min_repeat": 0.0005}
    budget = {"trials": trials, "time": float(sys.argv[3]) if sys.argv[3:] else None}
    tuning = {"budget": budget, "batch": 8, "measure": measure}
    document = {"version": 1, "name": "small", "model": {"path": "x.onnx"}, "tuning": tuning}
    stage = TuneStage.of(Pipeline.model_validate(document), folder)
    assert stage is not None
    sys.stdout.write(stage.run(context(folder)))


if __name__ == "__main__":
    main()
