"""autopipe's command line on stages without TVM, for tests that need a process of its own.

`FAKE` in the environment says which: the arguments of an `Act`, as JSON, and the one pipeline that
has it, if not all do (`only`).
"""

import json
import os
import time
from collections.abc import Mapping
from pathlib import Path
from pkgutil import resolve_name
from typing import ClassVar

import autopipe.stages
from autopipe.config.pipeline import Pipeline
from autopipe.environment.facet import Facet
from autopipe.pipeline.stage import Context, Need, Stage
from autopipe.store.artifact import Kind
from autopipe.tasks.op_info import Op, OpInfo
from autopipe.tasks.task import Task
from tests.pipeline.fakes import Act, Fake, Read


class Pack(Fake, frozen=True):
    name: ClassVar[str] = "package"
    produces: ClassVar[Kind] = Kind.PACKAGE
    needs: ClassVar[Mapping[str, Need]] = {"import": Need(Kind.MODEL)}
    pipeline: str

    def run(self, ctx: Context) -> str:
        package = ctx.out / f"{self.pipeline}.tar"
        package.write_bytes((ctx.inputs["import"] / "text").read_bytes())
        if "AUTOPIPE_MOVING" in os.environ:
            package.write_text(str(time.time_ns()))
        return "packed"


class Tasks(Fake, frozen=True):
    name: ClassVar[str] = "tasks"
    produces: ClassVar[Kind] = Kind.TASKS

    def run(self, ctx: Context) -> str:
        task = Task(
            index=0, name="fused_dense", workload="0" * 16, functions=("fused_dense",), calls=2,
            info=OpInfo(kind="out_elementwise_fusable", ops=(Op(name="matmul"),)), reductions=1,
            inputs=(), outputs=(), flops=1e6, bytes=64, dropped=None,
        )  # fmt: skip
        large = task.model_copy(update={"index": 1, "name": "large", "flops": 2e6})
        listed = ", ".join(each.model_dump_json() for each in (task, large))
        (ctx.out / "tasks.json").write_text(f"[{listed}]")
        (ctx.out / "workloads").mkdir()
        (ctx.out / "workloads" / f"{task.workload}.json").write_text("{}")
        return "2 tasks"


def offers(_argument: object, _emit: object) -> dict[str, str | None]:
    """Stand in for what tries the templates; `AUTOPIPE_OFFERS` in the environment makes it fail."""
    if "AUTOPIPE_OFFERS" in os.environ:
        raise ValueError(os.environ["AUTOPIPE_OFFERS"])
    return {"direct": "contraction", "mine": None}


def scripts(argument: Mapping[str, list[str]], _emit: object) -> dict[str, object]:
    """Stand in for what writes TVMScript."""
    tir = "# import os\n\nclass Module:\n    pass\n"
    return {name: {"tir": tir, "exact": True} for name in argument["workloads"]}


class NeedsTvm(Act, frozen=True):
    reads: ClassVar[frozenset[Facet]] = frozenset({Facet.TVM})


def stages_of(pipeline: Pipeline, base: Path) -> tuple[Stage, ...]:
    fake = json.loads(os.environ.get("FAKE", "null"))
    if fake is not None and fake.pop("only", pipeline.name) != pipeline.name:
        fake = None
    act = () if fake is None else (NeedsTvm if fake.pop("tvm", False) else Act)(**fake)
    stages: tuple[Stage, ...] = (Read(path=base / pipeline.model.path), Tasks())
    return (*stages, *((act,) if act else ()), Pack(pipeline=pipeline.name))


def main() -> None:
    from autopipe.api import builds, flow, reports, shapes, tasks
    from autopipe.cli import app
    from autopipe.pipeline.isolate import Zygote

    for module in (autopipe.stages, builds, reports):  # a fork may have imported them before
        vars(module)["stages_of"] = stages_of
    vars(shapes)["SHAPES"] = dict.fromkeys(shapes.SHAPES, lambda _: None)
    vars(flow)["PRELOADED"] = ("tests.support.driver",)
    vars(flow)["Zygote"] = Zygote  # not one that the tests keep, which is no child of a fork
    vars(tasks).update(_WRITE_SCRIPTS=scripts, _FIND_TEMPLATES=offers)
    if "EXAMINE" in os.environ:
        vars(flow)["examine_tvm"] = resolve_name(os.environ["EXAMINE"])
    app.main()
