"""Engine `ansor`: template-free sketch search, with a learned cost model.

After "Ansor: Generating High-Performance Tensor Programs for Deep Learning" (OSDI 2020), in the
form MetaSchedule gives it: sketches by post-order application of rules, evolutionary search over
their decisions, gradient-boosted trees that predict which candidates are worth measuring.
"""

import math
from collections.abc import Sequence
from typing import Any, Final

from tvm.s_tir import Schedule
from tvm.s_tir import meta_schedule as ms

from autopipe.errors import StageError
from autopipe.measure.build import without_weights
from autopipe.schedules.conditions import Conditions
from autopipe.schedules.engines.covering import covers
from autopipe.schedules.engines.engine import Known, Problem
from autopipe.schedules.engines.intrinsics import register_cpu_intrinsics
from autopipe.schedules.replay import apply, dump
from autopipe.tasks.task import Task

_GENERATIONS: Final = 1
"""Rounds of mutation a batch. TVM's 4, of 512 candidates, take 4 times as long as measuring."""

_POPULATION: Final = 2
"""Candidates in a generation, for each one that is measured."""

_WARM: Final = 48
"""Measurements before the cost model is asked."""

_PATIENCE: Final = 3
"""Empty or known proposals in a row after which the design space counts as exhausted."""

_ENDLESS: Final = 1 << 30


class Ansor:
    """Sketch search; all its searches train one cost model."""

    name = "ansor"

    def __init__(self, conditions: Conditions) -> None:
        """Take whose cores the search itself may use."""
        register_cpu_intrinsics()
        self._cores = conditions.hardware.cores
        # One thread: more of them spin, and take ten times as long where the processor is shared.
        self._model = ms.cost_model.XGBModel(num_warmup_samples=_WARM, num_tuning_cores=1)

    def search(self, problem: Problem) -> "Sketches | None":
        """Begin a search, or return None for what has no sketch.

        That is what works on weights, which TVM takes for copies, and what has no elements, or no
        known number of them. Raises what TVM raises where it can not make a design space.
        """
        if without_weights(problem.module) is not problem.module or not _sized(problem.task):
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
            space_generator=_rules(gpu=problem.conditions.hardware.gpu),
            search_strategy=strategy,
            task_name=problem.task.name,
            rand_state=problem.seed + 1,  # TVM takes 1 to 2**31 - 1
            num_threads=self._cores,
        )
        spaces = [each for each in context.generate_design_space() if covers(each)]
        return Sketches(problem, context, spaces, self._model) if spaces else None


def _rules(*, gpu: bool) -> Any:  # noqa: ANN401 - tvm is not typed
    """Return the sketch rules, with their postprocessors and mutators.

    Those that TVM takes for a GPU want tensor cores of all that has them, float32 too, and with
    them intrinsics that take half a minute to register.
    """
    if not gpu:
        return "post-order-apply"
    return ms.space_generator.PostOrderApply(
        sch_rules="cuda", postprocs="cuda", mutator_probs="cuda"
    )


class Sketches:
    """The search of one task."""

    def __init__(
        self,
        problem: Problem,
        context: ms.TuneContext,
        spaces: Sequence[Schedule],
        model: ms.cost_model.XGBModel,
    ) -> None:
        self.size = sum(map(_schedules, spaces))
        self._context = context
        self._model = model
        self._database = ms.database.MemoryDatabase()
        self._workload = self._database.commit_workload(problem.module)
        self._arguments = ms.arg_info.ArgInfo.from_prim_func(problem.module["main"])
        self._seen = {known.schedule for known in problem.known}
        self._proposed: dict[str, Any] = {}
        context.pre_tuning(_ENDLESS, problem.batch, spaces, self._database, model)
        self._recall(problem)

    def propose(self, count: int) -> list[str]:
        """Return the next traces to measure."""
        self._proposed = {}
        for _ in range(_PATIENCE):
            candidates = self._context.generate_measure_candidates()
            if candidates is None:
                break
            for candidate in candidates[:count]:
                trace = dump(candidate.sch.trace)
                if trace not in self._seen:
                    self._seen.add(trace)
                    self._proposed[trace] = candidate
            if self._proposed:
                break
        return list(self._proposed)

    def learn(self, measured: Sequence[Known]) -> None:
        """Give the times to the search and to the cost model."""
        candidates = [self._proposed[known.schedule] for known in measured]
        results = [_result(known) for known in measured]
        self._context.notify_runner_results(candidates, results)
        self._take(candidates, measured)

    def _recall(self, problem: Problem) -> None:
        """Start from what was measured before, as far as it still applies."""
        candidates, measured = [], []
        for known in problem.known:
            try:
                schedule = apply(problem.module, known.schedule)
            except StageError:  # recorded by another engine, or on other block names
                continue
            candidates.append(ms.MeasureCandidate(schedule, self._arguments))
            measured.append(known)
        self._take(candidates, measured)

    def _take(self, candidates: Sequence[Any], measured: Sequence[Known]) -> None:
        results = [_result(known) for known in measured]
        self._model.update(self._context, candidates, results)
        for candidate, result in zip(candidates, results, strict=True):
            if result.run_secs:
                record = ms.database.TuningRecord(
                    candidate.sch.trace, self._workload, list(result.run_secs),
                    self._context.target, self._arguments,
                )  # fmt: skip
                self._database.commit_tuning_record(record)


def _sized(task: Task) -> bool:
    extents = (extent for each in (*task.inputs, *task.outputs) for extent in each.shape)
    return not task.sizes and min(extents, default=1) > 0


def _schedules(sketch: Schedule) -> float:
    """Return how many schedules a sketch stands for; infinite where tiles are drawn."""
    count = 1.0
    for instruction in sketch.trace.insts:
        name = instruction.kind.name
        if name == "SampleCategorical":
            count *= len(instruction.attrs[0])
        elif name.startswith("Sample"):
            return math.inf
    return count


def _result(known: Known) -> ms.runner.RunnerResult:
    if known.seconds == math.inf:
        return ms.runner.RunnerResult(None, "failed")
    return ms.runner.RunnerResult([known.seconds], None)
