"""Stage `build`: the lowered module, with the best schedule of each task, as a shared library."""

import json
from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Self

from autopipe.config import Pipeline
from autopipe.config.schedules import Rule
from autopipe.errors import GateError
from autopipe.pipeline.events import Warn
from autopipe.pipeline.stage import Context, Facet, Kind, Need, Stage
from autopipe.task import Task

if TYPE_CHECKING:
    import tvm

    from autopipe.schedules.choice import Choice
    from autopipe.schedules.conditions import Conditions


class Build(Stage, frozen=True):
    """Schedule, compile and link; transform the weights."""

    name: ClassVar[str] = "build"
    version: ClassVar[int] = 2
    produces: ClassVar[Kind] = Kind.LIBRARY
    needs: ClassVar[dict[str, Need]] = {
        "import": Need(Kind.MODEL),
        "optimize": Need(Kind.MODULE),
        "lower": Need(Kind.LOWERED),
        "tasks": Need(Kind.TASKS),
        "tune": Need(Kind.RECORDS, optional=True),
    }
    reads: ClassVar[frozenset[Facet]] = frozenset(
        {Facet.TVM, Facet.TARGET, Facet.TOOLCHAIN, Facet.EXTENSIONS}
    )

    rules: tuple[Rule, ...]
    """The schedule policy, as far as it concerns fallbacks and implementations."""
    fallback: tuple[str, ...]
    """What schedules a task without a record."""
    tuned_share: float | None
    """Least share of the kept tasks' work that must have a record."""
    fast_algorithms: bool
    """Whether implementations may round differently."""

    @classmethod
    def of(cls, pipeline: Pipeline, base: Path) -> Self:  # noqa: ARG003 - reads no file
        """Take the policy, the gate and the numerics of the pipeline."""
        return cls(
            rules=pipeline.schedules.rules,
            fallback=pipeline.schedules.fallback,
            tuned_share=pipeline.gates.tuned_share,
            fast_algorithms=pipeline.numerics.fast_algorithms,
        )

    def run(self, ctx: Context) -> str:
        """Write the library, its weights, and which engine scheduled each task.

        Raises SetupError if an extension is broken.
        """
        from autopipe import extensions
        from autopipe.compiler import build, module_io
        from autopipe.schedules.conditions import Conditions

        extensions.check()
        conditions = Conditions.of(ctx.facts[Facet.TARGET], fast_algorithms=self.fast_algorithms)
        tasks = [Task.model_validate(task) for task in _read(ctx.inputs["tasks"] / "tasks.json")]
        choices = self._choose(ctx, tasks, conditions)
        share = _tuned_share(tasks, choices)
        self._gate(share)
        scheduled = {name: choices[t.workload].module for t in tasks for name in t.functions}
        lowered = module_io.load_module(ctx.inputs["lower"] / "module.json")
        built = build.build(lowered, scheduled, conditions.target)
        build.export(built, ctx.out / "lib.so")
        model = _read(ctx.inputs["import"] / "model.json")
        document = {
            **{key: model[key] for key in ("name", "inputs", "outputs")},
            "weights": _pack(ctx, model["weights"], built.packing),
            "threads": ctx.facts[Facet.TARGET]["num_cores"],
            "device": "cuda" if ctx.facts[Facet.TARGET]["kind"] == "cuda" else "cpu",
            "target": ctx.facts[Facet.TARGET],
            "versions": {**ctx.facts[Facet.TVM], **ctx.facts[Facet.TOOLCHAIN]},
            "tuned_share": share,
            "tasks": self._rows(ctx, tasks, choices),
        }
        module_io.save_json(document, ctx.out / "library.json")
        return _summary(choices.values(), share)

    def _choose(
        self, ctx: Context, tasks: Sequence[Task], conditions: "Conditions"
    ) -> dict[str, "Choice"]:
        from autopipe.compiler import module_io
        from autopipe.schedules.choice import Asked, choose
        from autopipe.schedules.inspection import Inspector
        from autopipe.schedules.policy import Policy

        records, tuned = _records(ctx.inputs.get("tune")), _tuned(ctx.inputs.get("tune"))
        folder = ctx.inputs["tasks"] / "workloads"
        asked = [
            Asked(
                task, module_io.load_module(folder / f"{task.workload}.json"),
                records.get(task.workload),
                tuned.get(task.workload, {}).get("share", task.share),
            )
            for task in tasks
        ]  # fmt: skip
        inspector = Inspector.of(ctx, conditions, self.name)
        policy = Policy(self.rules, self.fallback)
        for rule in policy.idle([(each.task, each.share) for each in asked]):
            text = f"schedules.rules.{rule}: matches no task; `autopipe tasks` shows what there is"
            ctx.emit(Warn(stage=self.name, message=text))
        found = choose(asked, policy, conditions, inspector)
        for each, choice in zip(asked, found, strict=True):
            if each.record and choice.seconds is None:
                ctx.emit(Warn(stage=self.name, message=f"{each.task.name}: {choice.reason}"))
        return {task.workload: choice for task, choice in zip(tasks, found, strict=True)}

    @staticmethod
    def _rows(
        ctx: Context, tasks: Iterable[Task], choices: Mapping[str, "Choice"]
    ) -> list[dict[str, object]]:
        """Say of each task how it was scheduled, and who else was measured for it."""
        tuned = _tuned(ctx.inputs.get("tune"))
        return [
            {
                **_row(task, choices[task.workload]),
                "contenders": tuned.get(task.workload, {}).get("contenders", []),
            }
            for task in tasks
        ]

    def _gate(self, share: float) -> None:
        if self.tuned_share is not None and share < self.tuned_share:
            raise GateError(
                f"gates.tuned_share: {share:.2f} of the kept tasks' work has a tuning record, "
                f"{self.tuned_share:.2f} is required; raise tuning.budget or lower the gate"
            )


def _pack(ctx: Context, names: Iterable[str], packing: "tvm.IRModule") -> list[str]:
    """Transform the imported weights as graph and schedules want them; return their new names."""
    from autopipe.compiler import module_io, weights
    from autopipe.compiler.runtime import use_threads
    from autopipe.compiler.target import host
    from autopipe.schedules import default

    cores = int(str(ctx.facts[Facet.TARGET]["num_cores"]))
    use_threads(cores)
    here = host(cores)
    arrays = module_io.load_weights(ctx.inputs["import"] / "weights.safetensors")
    transform = module_io.load_module(ctx.inputs["optimize"] / "transform.json")
    values = [arrays[name] for name in names]
    for work in (transform, packing):
        values = weights.evaluate(work, values, here, lambda module: default.schedule(module, here))
    packed = {f"w{index:05d}": value for index, value in enumerate(values)}
    module_io.save_weights(packed, ctx.out / "weights.safetensors")
    return list(packed)


def _read(path: Path) -> Any:  # noqa: ANN401 - a JSON document
    return json.loads(path.read_text(encoding="utf-8"))


def _records(tuned: Path | None) -> dict[str, Mapping[str, Any]]:
    if tuned is None:
        return {}
    lines = (tuned / "records.jsonl").read_text(encoding="utf-8").splitlines()
    return {record["workload"]: record for record in map(json.loads, lines)}


def _tuned(tuned: Path | None) -> dict[str, Mapping[str, Any]]:
    """Return what `tuning.json` says of each workload."""
    if tuned is None:
        return {}
    return {task["workload"]: task for task in _read(tuned / "tuning.json")["tasks"]}


def _tuned_share(tasks: Iterable[Task], choices: Mapping[str, "Choice"]) -> float:
    kept = [(task.flops * task.calls, choices[task.workload]) for task in tasks if not task.dropped]
    total = sum(work for work, _ in kept)
    tuned = sum(work for work, choice in kept if choice.seconds is not None)
    return tuned / total if total else 0.0


def _row(task: Task, choice: "Choice") -> dict[str, object]:
    return {
        "name": task.name,
        "workload": task.workload,
        "calls": task.calls,
        "engine": choice.engine,
        "implementation": choice.implementation,
        "reason": choice.reason,
        "seconds": choice.seconds,
        "rule": choice.rule,
        "checked": choice.checked,
        "unchecked": choice.unchecked,
        "rejected": choice.rejected,
    }


def _summary(choices: Collection["Choice"], share: float) -> str:
    counts = Counter(choice.engine for choice in choices)
    engines = ", ".join(f"{count} {engine}" for engine, count in sorted(counts.items()))
    wrong = sum(len(choice.rejected) for choice in choices)
    unchecked = sum(choice.unchecked is not None for choice in choices)
    return (
        f"schedules: {engines}; {share:.0%} of the kept work measured"
        + (f"; {wrong} wrong ones put aside" if wrong else "")
        + (f"; {unchecked} not checked" if unchecked else "")
    )
