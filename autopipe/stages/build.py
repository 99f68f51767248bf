"""Stage `build`: the lowered module, with the best schedule of each task, as a shared library."""

import json
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from fnmatch import fnmatchcase
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Literal, Self

from autopipe.artifacts.library import SHORT, BuiltLibrary, LibraryTask
from autopipe.artifacts.signature import LIBRARY, SizedLibrary
from autopipe.artifacts.tuning import BestRecord, ListedFailure, TuningResult
from autopipe.backends import find_backend
from autopipe.config.pipeline import Pipeline
from autopipe.config.schedules import Rule
from autopipe.environment.facet import Facet
from autopipe.libraries import LIBRARIES, list_versions
from autopipe.pipeline.counted import Watch
from autopipe.pipeline.events import Warn
from autopipe.pipeline.stage import Context, Need, Stage
from autopipe.stages.shown_passes import show_passes
from autopipe.store.artifact import Kind

if TYPE_CHECKING:
    import tvm

    from autopipe.building.choice import Choice, Choices
    from autopipe.safety.failures import Failures
    from autopipe.tasks.task import Task


class BuildStage(Stage, frozen=True):
    """Schedule, compile and link; transform the weights."""

    name: ClassVar[str] = "build"
    version: ClassVar[int] = 34
    produces: ClassVar[Kind] = Kind.LIBRARY
    seconds: ClassVar[float | None] = 4 * 3600.0
    needs: ClassVar[dict[str, Need]] = {
        "import": Need(Kind.MODEL),
        "optimize": Need(Kind.MODULE),
        "lower": Need(Kind.LOWERED),
        "tasks": Need(Kind.TASKS),
        "tune": Need(Kind.RECORDS, optional=True),
    }
    runs_passes: ClassVar[bool] = True
    reads: ClassVar[frozenset[Facet]] = frozenset(
        {
            Facet.TVM, Facet.TARGET, Facet.TOOLCHAIN, Facet.LIBRARIES, Facet.EXTENSIONS,
            Facet.TEMPLATES,
        }
    )  # fmt: skip

    rules: tuple[Rule, ...]
    """The part of the schedule policy on fallbacks and implementations."""
    fallback: tuple[str, ...]
    """The engines that schedule a task without a record, in order."""
    fast_algorithms: bool
    """Whether implementations may round differently."""
    on_task_failure: Literal["fallback", "fail"]
    """Whether a schedule that crashes, hangs or takes all memory is replaced or ends the run."""
    linker: str | None = None
    """The linker for another machine, and below the path of its C library. Their versions are a
    fact; their paths change nothing."""
    sysroot: str | None = None

    @classmethod
    def of(cls, pipeline: Pipeline, base: Path) -> Self:  # noqa: ARG003 - reads no file
        """Create the stage from the policy and the numerics of the pipeline."""
        return cls(
            rules=pipeline.schedules.rules,
            fallback=pipeline.schedules.fallback,
            fast_algorithms=pipeline.numerics.fast_algorithms,
            on_task_failure=pipeline.tasks.on_task_failure,
            linker=pipeline.target.linker,
            sysroot=pipeline.target.sysroot,
        )

    def run(self, ctx: Context) -> str:
        """Write the library, its weights, and which engine scheduled each task.

        Raises SetupError if an extension is broken, and StageError if a task has no schedule left
        that compiles.
        """
        from autopipe.artifacts.lowering import SizedModules
        from autopipe.artifacts.model_nodes import ModelNodes
        from autopipe.building.compiling import BuildSource, compile_model
        from autopipe.building.map_nodes import map_nodes
        from autopipe.compiler import module_io
        from autopipe.environment.toolchain import Linker

        watch = Watch(self.name, ctx.emit)
        with self.plan(ctx, ctx.work / "plain") as (choices, tuned, failures):
            tasks = [request.task for request in choices.asked]
            watch.begin(f"compiling {len(tasks)} tasks")
            modules = module_io.load_lowered(ctx.inputs["lower"])
            sized_modules = SizedModules.within(ctx.inputs["lower"]).modules
            paths = {one.label: ctx.out / one.library for one in sized_modules}
            paths[""] = ctx.out / LIBRARY
            linker = Linker.of(self.linker, self.sysroot)
            source = BuildSource(modules, paths, partial(_pack, ctx), ctx.work / "parts", linker)
            with show_passes(ctx, self.name):
                model = compile_model(source, choices, failures)
        nodes = ModelNodes.read(ctx.inputs["import"])
        map_nodes(nodes, tasks, paths, model.functions).write(ctx.out)
        self._warn_of_unmet_wishes(ctx, choices)
        self._describe_library(ctx, choices, tuned, failures, model.packed).write(ctx.out)
        return _summarize_choices(choices.chosen) + failures.format_count()

    @contextmanager
    def plan(
        self, ctx: Context, plain: Path | None = None
    ) -> "Iterator[tuple[Choices, TuningResult, Failures]]":
        """Open the first schedule of each task; `plain` is the folder of `PreparedChecks`.

        Raises as `extensions.check`.
        """
        from autopipe import extensions
        from autopipe.safety.failures import Failures
        from autopipe.schedules.conditions import Conditions
        from autopipe.tasks.task import read_tasks
        from autopipe.tasks.weights import count_weight_bytes

        extensions.check_extensions()
        tasks = read_tasks(ctx.inputs["tasks"])
        conditions = Conditions.of(ctx.facts[Facet.TARGET], fast_algorithms=self.fast_algorithms)
        conditions = conditions.within(count_weight_bytes(tasks))
        tuned = (
            TuningResult.read(tune_folder)
            if (tune_folder := ctx.inputs.get("tune"))
            else TuningResult.untuned()
        )
        failures = Failures.of(ctx, conditions, self.name, self.on_task_failure)
        with self._open_choices(ctx, tasks, tuned, failures, plain) as choices:
            yield choices, tuned, failures

    def unkeyed(self) -> frozenset[str]:
        """Exclude the paths of the linker and its C library."""
        return frozenset({"linker", "sysroot"})

    @staticmethod
    def _describe_library(
        ctx: Context,
        choices: "Choices",
        tuned: TuningResult,
        failures: "Failures",
        weight_names: Mapping[str, Any],
    ) -> BuiltLibrary:
        """Describe the signature of the library, its tasks and its versions."""
        from autopipe.artifacts.lowering import SizedModules
        from autopipe.artifacts.model import ImportedModel
        from autopipe.records.proofs import compute_claimed_shares

        target = ctx.facts[Facet.TARGET]
        optimize_report = json.loads((ctx.inputs["optimize"] / "optimize.json").read_bytes())
        model = ImportedModel.read(ctx.inputs["import"])
        tasks = [request.task for request in choices.asked]
        weights = {label: tuple(names) for label, names in weight_names["weights"].items()}
        sized_modules = SizedModules.within(ctx.inputs["lower"]).modules
        return BuiltLibrary(
            name=model.name,
            inputs=model.inputs,
            outputs=model.outputs,
            weights=weights[""],
            dimensions=model.dimensions,
            entries=tuple(
                SizedLibrary(library=one.library, sizes=one.sizes, weights=weights[one.label])
                for one in sized_modules
            ),
            halves=tuple(weight_names["halves"]),
            rounded=tuple(optimize_report.get("rounded", ())),
            short=SHORT[optimize_report["channels_last"]] if "short" in optimize_report else None,
            threads=int(str(target["num_cores"])),
            device=find_backend(target).device,
            target=dict(target),
            versions={**ctx.facts[Facet.TVM], **ctx.facts[Facet.TOOLCHAIN]},
            libraries=_list_library_versions(choices.chosen),
            claimed=compute_claimed_shares(tasks, _list_record_times(choices, tuned), tuned.tasks),
            tasks=tuple(_list_library_tasks(choices, tuned, failures)),
        )

    @contextmanager
    def _open_choices(
        self,
        ctx: Context,
        tasks: "Sequence[Task]",
        tuned: TuningResult,
        failures: "Failures",
        plain: Path | None,
    ) -> "Iterator[Choices]":
        from autopipe.building.choice import Asked, Choices
        from autopipe.building.dynamic_twins import find_dynamic_twins
        from autopipe.building.prepared_checks import PreparedChecks
        from autopipe.compiler import module_io
        from autopipe.compiler.labels.op_info import annotate_workload
        from autopipe.safety.inspection import Inspector
        from autopipe.safety.maker import Maker
        from autopipe.schedules.policy import Policy

        records = self._select_trusted_records(ctx, tasks, tuned)
        shares = {name: task.share for name, task in tuned.tasks.items()}
        folder = ctx.inputs["tasks"] / "workloads"
        requests = []
        for task in tasks:
            workload = module_io.load_module(folder / f"{task.workload}.json")
            requests.append(
                Asked(
                    task,
                    annotate_workload(workload, task.info),
                    records.get(task.workload),
                    shares.get(task.workload, task.share),
                    tuple(_list_likely_records(task, records)),
                )
            )
        policy = Policy(self.rules, self.fallback)
        for rule in policy.idle([(request.task, request.share) for request in requests]):
            text = f"schedules.rules.{rule}: matches no task; `autopipe tasks` shows what there is"
            ctx.emit(Warn(stage=self.name, message=text))
        watch = Watch(self.name, ctx.emit)
        inspector = Inspector.of(ctx, failures, watch=watch)
        twins = find_dynamic_twins([(request.task, request.workload) for request in requests])
        checks = PreparedChecks(inspector, plain, twins)
        maker = Maker({request.task.name: request.workload for request in requests}, failures)
        with maker, checks:
            yield Choices(requests, policy, maker, checks, watch)

    def _select_trusted_records(
        self, ctx: Context, tasks: "Sequence[Task]", tuned: TuningResult
    ) -> dict[str, BestRecord]:
        """Return the records of *tune*, without those of impossibly short times."""
        from autopipe.records.times import list_untrue_times

        untrue = list_untrue_times(tuned.records.values(), tasks, ctx.facts[Facet.TARGET])
        for message in untrue.values():
            ctx.emit(Warn(stage=self.name, message=f"{message}; its record is not used"))
        return {name: record for name, record in tuned.records.items() if name not in untrue}

    def _warn_of_unmet_wishes(self, ctx: Context, choices: "Choices") -> None:
        """Warn of unused records, and of rules that no schedule satisfies."""
        for request, choice in zip(choices.asked, choices.chosen, strict=True):
            if request.record and choice.seconds is None:
                ctx.emit(Warn(stage=self.name, message=f"{request.task.name}: {choice.reason}"))
            patterns = () if choice.rule is None else self.rules[choice.rule].implementations
            if patterns and not any(fnmatchcase(choice.implementation, glob) for glob in patterns):
                text = (
                    f"{request.task.name}: built with {choice.engine} on {choice.implementation}, "
                    f"for it has no {' or '.join(patterns)} (schedules.rules.{choice.rule})"
                )
                ctx.emit(Warn(stage=self.name, message=text))


def _list_likely_records(task: "Task", records: Mapping[str, BestRecord]) -> "Iterator[BestRecord]":
    """Yield the records for a task of dynamic shapes, the best over all specialized sizes first.

    The others are those at one specialized size, if their template serves dynamic shapes.
    """
    from autopipe.schedules.templates.template import serves_dynamic

    workloads = (task.likely, *task.also_likely)
    likely_records = [records[name] for name in workloads if name is not None and name in records]
    for record in likely_records:
        if (setting := record.dynamic_settings.get(task.workload)) is not None:
            yield setting.of(record)
    yield from (record for record in likely_records if serves_dynamic(record.schedule))


def _pack(ctx: Context, packing: "Mapping[str, tvm.IRModule]") -> dict[str, Any]:
    """Transform the imported weights for graph and schedules, and write them.

    Returns their new names for each module, where equal arrays of two modules are one, and the
    names of those that are written in float16 and read in float32 (`halves`).
    """
    from autopipe.building.halves import narrow_weights
    from autopipe.building.weight_pool import WeightPool
    from autopipe.compiler import module_io
    from autopipe.schedules.model_weights import ModelWeights

    cores = int(str(ctx.facts[Facet.TARGET]["num_cores"]))
    weights = ModelWeights(ctx.inputs["import"], ctx.inputs["optimize"], cores)
    pool = WeightPool()
    labels = ["", *(label for label in packing if label)]
    weight_names = {label: pool.add(weights.pack(packing[label])) for label in labels}
    stored_arrays = narrow_weights(pool.arrays, weights.imported)
    module_io.save_aligned_weights(stored_arrays, ctx.out / "weights.safetensors")
    halves = (
        name for name, array in stored_arrays.items() if array.dtype != pool.arrays[name].dtype
    )
    return {"weights": weight_names, "halves": sorted(halves)}


def _list_library_versions(choices: Iterable["Choice"]) -> dict[str, str]:
    """Return the versions of the libraries that `lib.so` calls."""
    implementations = {choice.implementation for choice in choices}
    return {name: version for name, version in list_versions().items() if name in implementations}


def _list_record_times(choices: "Choices", tuned: TuningResult) -> dict[str, Sequence[float]]:
    """Return the times of the records that the build uses, by workload."""
    return {
        request.task.workload: tuned.records[request.task.workload].seconds
        for request, choice in zip(choices.asked, choices.chosen, strict=True)
        if choice.seconds is not None
    }


def _list_library_tasks(
    choices: "Choices", tuned: TuningResult, failures: "Failures"
) -> Iterator[LibraryTask]:
    """Yield each task with its schedule, the other measured schedules, and failures."""
    tuned_tasks = tuned.tasks
    for request, choice in zip(choices.asked, choices.chosen, strict=True):
        task, tuned_task = request.task, tuned_tasks.get(request.task.workload)
        failures_of_task = [
            *(tuned_task.failures if tuned_task else ()),
            *failures.listed.get(task.name, ()),
        ]
        yield LibraryTask(
            name=task.name, workload=task.workload, calls=task.calls, engine=choice.engine,
            implementation=choice.implementation, reason=choice.reason, seconds=choice.seconds,
            rule=choice.rule, checked=choice.checked, unchecked=choice.unchecked,
            rejected=choice.rejected, contenders=tuned_task.contenders if tuned_task else (),
            failures=_deduplicate_failures(failures_of_task),
        )  # fmt: skip


def _deduplicate_failures(failures: Iterable[ListedFailure]) -> tuple[ListedFailure, ...]:
    """Drop failures that an earlier stage lists, too."""
    return tuple({failure.folder: failure for failure in failures}.values())


def _summarize_choices(choices: Collection["Choice"]) -> str:
    libraries = {library.name for library in LIBRARIES}
    counts = Counter(
        choice.implementation if choice.implementation in libraries else choice.engine
        for choice in choices
    )
    makers = ", ".join(f"{count} {maker}" for maker, count in sorted(counts.items()))
    rejected_count = sum(len(choice.rejected) for choice in choices)
    unchecked_count = sum(choice.unchecked is not None for choice in choices)
    return (
        f"schedules: {makers}"
        + (f"; {rejected_count} wrong ones put aside" if rejected_count else "")
        + (f"; {unchecked_count} not checked" if unchecked_count else "")
    )
