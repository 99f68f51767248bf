"""Engine `ansor`: sketch search without templates, guided by a learned cost model.

After "Ansor: Generating High-Performance Tensor Programs for Deep Learning" (Zheng et al., OSDI
2020), as implemented by TVM's MetaSchedule: rules applied in post-order generate sketches, an
evolutionary search mutates their decisions (such as tile sizes), and gradient-boosted trees predict
which candidates are worth measuring.
"""

import math
from collections.abc import Sequence
from typing import Any, Final

from tvm.s_tir import Schedule, ScheduleError
from tvm.s_tir import meta_schedule as ms
from tvm.tirx import IntImm

from autopipe.compiler.patches import load_cpu_intrinsics
from autopipe.environment.toolchain import find_architecture
from autopipe.errors import StageError
from autopipe.measure.build import without_weights
from autopipe.schedules.analysis.blocks import extents_of
from autopipe.schedules.conditions import Conditions
from autopipe.schedules.engines.engine import MeasuredSchedule, Problem
from autopipe.schedules.engines.sketch_model import SketchModel
from autopipe.schedules.replay import apply_trace, dump_trace
from autopipe.tasks.task import Task

_GENERATIONS: Final = 1
"""Rounds of mutation for a batch. TVM's default, 4 with 512 candidates, takes 4 times as long as
measuring the batch."""

_POPULATION: Final = 2
"""Candidates in a generation per measured one."""

_WARM: Final = 48
"""Measurements before the cost model predicts; until then candidates are random."""

_PATIENCE: Final = 3
"""Number of proposals without a new candidate after which the design space counts as exhausted."""

_ENDLESS: Final = 1 << 30
"""Maximum trials of a search, as TVM is configured; the budget is kept elsewhere."""


class Ansor:
    """Sketch search. The searches of all tasks train one cost model."""

    name = "ansor"

    def __init__(self, conditions: Conditions) -> None:
        """Load the intrinsics of the target; the search uses as many threads as it has cores."""
        target = conditions.target
        triple = (target.host or target).attrs.get("mtriple")
        load_cpu_intrinsics(find_architecture(str(triple) if triple else None))
        self._cores = conditions.hardware.cores
        self._lessons: Lessons | None = None

    def search(self, problem: Problem) -> "Sketches | None":
        """Begin a search, or return None for a task without a sketch.

        That is a function with work on weights, which TVM takes for copies, and one whose tensors
        are empty or of unknown size. Raises what TVM raises if it cannot make a design space.
        """
        if without_weights(problem.module) is not problem.module or not _has_fixed_size(
            problem.task
        ):
            return None
        population = max(16, _POPULATION * problem.batch)
        strategy = ms.search_strategy.EvolutionarySearch(
            population_size=population,
            init_min_unmeasured=population // 2,
            genetic_num_iters=_GENERATIONS,
        )
        context = ms.TuneContext(
            problem.module,
            target=problem.conditions.target,
            space_generator=_make_sketch_rules(problem.conditions.hardware.backend.sketches),
            search_strategy=strategy,
            task_name=problem.task.name,
            rand_state=problem.seed + 1,  # TVM takes 1 to 2**31 - 1
            num_threads=problem.threads or self._cores,
        )
        if self._lessons is None:
            self._lessons = Lessons(SketchModel(problem.seed, _WARM))
        spaces = [sketch for sketch in context.generate_design_space() if has_all_instances(sketch)]
        return Sketches(problem, context, spaces, self._lessons) if spaces else None


def _make_sketch_rules(name: str) -> Any:  # noqa: ANN401 - tvm is not typed
    """Create the sketch rules, with their postprocessors and mutators.

    TVM's own choice for a GPU uses tensor cores wherever the GPU has them, for float32 as well, and
    needs intrinsics that take half a minute to register.
    """
    return ms.space_generator.PostOrderApply(sch_rules=name, postprocs=name, mutator_probs=name)


class Lessons:
    """The cost model of all searches, and the measurements before its first training."""

    def __init__(self, model: SketchModel) -> None:
        self.model = model
        self._waiting: list[tuple[ms.TuneContext, Sequence[Any], Sequence[Any]]] = []
        self._count = 0

    def learn(
        self, context: ms.TuneContext, candidates: Sequence[Any], results: Sequence[Any]
    ) -> None:
        """Train on measurements; the first `_WARM` ones are only collected.

        The first training imports xgboost and takes longer than many small searches.
        """
        self._waiting.append((context, candidates, results))
        self._count += len(candidates)
        if self._count >= _WARM:
            for lesson in self._waiting:
                self.model.update(*lesson)
            self._waiting = []


class Sketches:
    """The search of one task."""

    def __init__(
        self,
        problem: Problem,
        context: ms.TuneContext,
        spaces: Sequence[Schedule],
        lessons: Lessons,
    ) -> None:
        self.size = sum(map(_count_schedules, spaces))
        self._context = context
        self._lessons = lessons
        self._database = ms.database.MemoryDatabase()
        self._workload = self._database.commit_workload(problem.module)
        self._arguments = ms.arg_info.ArgInfo.from_prim_func(problem.module["main"])
        self._module = problem.module
        self._seen: set[str] = set()
        self._proposed: dict[str, Any] = {}
        context.pre_tuning(_ENDLESS, problem.batch, spaces, self._database, lessons.model)
        self.observe(problem.known)

    def propose(self, count: int) -> list[str]:
        """Return the next traces to measure, `count` at most."""
        self._proposed = {}
        for _ in range(_PATIENCE):
            candidates = self._context.generate_measure_candidates()
            if candidates is None:
                break
            for candidate in candidates[:count]:
                trace = dump_trace(candidate.sch.trace)
                if trace not in self._seen:
                    self._seen.add(trace)
                    self._proposed[trace] = candidate
            if self._proposed:
                break
        return list(self._proposed)

    def learn(self, measurements: Sequence[MeasuredSchedule]) -> None:
        """Pass the times of proposed schedules to the search and to the cost model."""
        candidates = [self._proposed[known.schedule] for known in measurements]
        results = [_to_runner_result(known) for known in measurements]
        self._context.notify_runner_results(candidates, results)
        self._learn_results(candidates, measurements)

    def observe(self, foreign: Sequence[MeasuredSchedule]) -> None:
        """Learn from measurements of other runs, as far as their traces apply."""
        candidates, applied_schedules = [], []
        self._seen |= {known.schedule for known in foreign}
        for measured_schedule in foreign:
            try:
                schedule = apply_trace(self._module, measured_schedule.schedule)
            except StageError:  # recorded by another engine, or on other block names
                continue
            candidates.append(ms.MeasureCandidate(schedule, self._arguments))
            applied_schedules.append(measured_schedule)
        self._learn_results(candidates, applied_schedules)

    def _learn_results(
        self, candidates: Sequence[Any], measurements: Sequence[MeasuredSchedule]
    ) -> None:
        results = [_to_runner_result(known) for known in measurements]
        self._lessons.learn(self._context, candidates, results)
        for candidate, result in zip(candidates, results, strict=True):
            if result.run_secs:
                record = ms.database.TuningRecord(
                    candidate.sch.trace,
                    self._workload,
                    list(result.run_secs),
                    self._context.target,
                    self._arguments,
                )
                self._database.commit_tuning_record(record)


def _has_fixed_size(task: Task) -> bool:
    """Tell whether all tensors of a task have elements, and a known number of them."""
    extents = (extent for tensor in (*task.inputs, *task.outputs) for extent in tensor.shape)
    return not task.sizes and min(extents, default=1) > 0


def has_all_instances(sch: Schedule) -> bool:
    """Tell whether each block runs as often as it has instances; True where that is unknown.

    TVM may lose some when it moves a block. Example: `reverse_compute_at` moves a padding of
    58 x 58 into the loops of its producer, which has 56 x 56, so the border is never written.
    Sketch search tries that where other blocks follow the padding.
    """
    try:
        blocks = sch.get_child_blocks(sch.get_sblock("root"))
    except ScheduleError:  # a function of one block that has no axes, such as a sort
        return True
    for block in blocks:
        instances = *extents_of(sch.get(block)), *extents_of(sch.get(block), spatial=False)
        loops = [sch.get(loop).extent for loop in sch.get_loops(block)]
        if -1 in instances or not all(isinstance(extent, IntImm) for extent in loops):
            continue
        if math.prod(map(int, loops)) < math.prod(instances):
            return False
    return True


def _count_schedules(sketch: Schedule) -> float:
    """Count the schedules of a sketch; infinity if it samples tile sizes."""
    count = 1.0
    for instruction in sketch.trace.insts:
        name = instruction.kind.name
        if name == "SampleCategorical":
            count *= len(instruction.attrs[0])
        elif name.startswith("Sample"):
            return math.inf
    return count


def _to_runner_result(schedule: MeasuredSchedule) -> ms.runner.RunnerResult:
    if schedule.seconds == math.inf:
        return ms.runner.RunnerResult(None, "failed")
    return ms.runner.RunnerResult([schedule.seconds], None)
