"""The results of tuning, as the artifact of the stage."""

import math
from collections import ChainMap
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from autopipe.artifacts.headroom import TaskHeadroom
from autopipe.artifacts.tuning import (
    BestRecord,
    ComparisonReport,
    ContenderResult,
    DynamicSetting,
    TunedTask,
    TuningReport,
    TuningResult,
)
from autopipe.benchmarking.interval import Interval
from autopipe.errors import StageError
from autopipe.records.record import REPEAT_SUFFIX
from autopipe.safety.failures import Failures
from autopipe.schedules.policy import Contender
from autopipe.tasks.shares import Proof, Shares, is_searched
from autopipe.tasks.shares import compute_shares as shares_of
from autopipe.tuning.decision.compare import Decided
from autopipe.tuning.evidence import Proposal, TaskEvidence
from autopipe.tuning.journal import Journal
from autopipe.tuning.progress import compute_latency
from autopipe.tuning.search.worth import SearchWorth
from autopipe.tuning.task_state import TaskState


class Results:
    """The best record of each task, and the results of its arms."""

    def __init__(
        self,
        worth: SearchWorth,
        journal: Journal,
        failures: Failures,
        dynamic_settings: Mapping[str, Mapping[str, DynamicSetting]],
        comparisons: Sequence[Decided] = (),
    ) -> None:
        """Initialize from the tasks and the gain that is left in each.

        Settings of dynamic shapes are keyed by the workload that they are recorded for.
        `comparisons` holds the result of each in-model comparison.
        """
        self.left_out: tuple[str, ...] = ()
        """Work skipped for lack of time."""
        self._reports = tuple(one.report for one in comparisons)
        # at the first size that a task is called at; later ones compare nothing else
        self._inside = ChainMap(*(dict(one.times) for one in comparisons))
        self._model_times = ChainMap(*(dict(one.tasks) for one in comparisons))
        self._dynamic_settings = dynamic_settings
        self._states = worth.states
        self._worth = worth
        self._journal = journal
        self._failures = failures
        self._winners = {state.task.workload: journal.winner(state) for state in worth.states}

    def write(self, folder: Path, end_reason: str) -> None:
        """Write `records.jsonl` and `tuning.json`.

        Raises StageError if trials were made and no task has a single time.
        """
        winners = {name: won for name, won in self._winners.items() if won is not None}
        if not winners and any(state.trials for state in self._states):
            self._journal.session.forget()  # or the next run would find its budget spent
            raise StageError(
                f"no candidate of any task could be measured: {self._find_last_error()}"
            )
        headroom = self.list_headroom(end_reason)
        report = TuningReport(
            ended=end_reason,
            seconds=self._journal.session.elapsed,
            session=self._journal.session.name,
            shares=self._compute_shares().named(),
            tasks=tuple(map(self._build_tuned_task, self._states)),
            **_to_report_fields(self._reports),
            **({"device": self._journal.elsewhere} if self._journal.elsewhere else {}),
            **({"left_out": self.left_out} if self.left_out else {}),
            **({"headroom": headroom} if headroom else {}),
        )
        records = {name: self._build_record(name, winner) for name, winner in winners.items()}
        TuningResult(report, records).write(folder)

    def list_headroom(self, end_reason: str) -> tuple[TaskHeadroom, ...]:
        """List the headroom of each task that has a winner.

        `end_reason` is the reason for tasks that were searched until the end.
        """
        winners = [self._winners[state.task.workload] for state in self._states]
        seconds = [winner.median if winner else math.inf for winner in winners]
        gains = self._worth.gains(seconds)
        return tuple(
            TaskHeadroom(
                name=state.task.name, share=state.share, untuned=self._time_untuned(state),
                tuned=time, bound=min(bound, time), left=gain, trials=state.trials,
                ended=state.stopped or end_reason,
            )
            for state, time, bound, gain in zip(
                self._states, seconds, self._worth.bounds, gains, strict=True
            )
            if time < math.inf
        )  # fmt: skip

    def _time_untuned(self, state: TaskState) -> float | None:
        """Return the seconds of one call with the schedule of an untuned build."""
        candidates = (*self._journal.repeats(state), *self._journal.ranked(state))
        return next((one.median for one in candidates if one.proposal == state.untuned), None)

    def summary(self, end_reason: str) -> str:
        """Format the one-line summary of the run."""
        trials = sum(state.trials for state in self._states)
        failed_count = sum(state.failed for state in self._states)
        total = compute_latency(self._states)
        speed = f", {total * 1e3:.2f} ms in all" if total is not None else ""
        speed += "".join(map(_describe_comparison, self._reports))
        if not self._states:
            return "no task to tune"
        return (
            f"{trials} trials ({failed_count} failed){self._format_left_out()}; "
            f"{self._compute_shares().format_line()}{speed};"
            f" {end_reason}{self._failures.format_count()}"
        )

    def _format_left_out(self) -> str:
        """Format the part of the summary about skipped work."""
        return f", no time for {', '.join(self.left_out)}" if self.left_out else ""

    def _compute_shares(self) -> Shares:
        """Compute the shares of the time that were searched, measured and steady here."""
        proofs = {}
        for state in self._states:
            winner = self._winners[state.task.workload]
            if winner is not None:
                engines = {row.record.engine for row in self._journal.rows(state)}
                was_searched = is_searched(engines, state.stopped)
                proof = Proof(winner.median, was_searched, not winner.is_unsteady)
                proofs[state.task.workload] = proof
        return shares_of((state.task for state in self._states), proofs)

    def _build_record(self, workload: str, winner: TaskEvidence) -> BestRecord:
        trials = {state.task.workload: state.trials for state in self._states}
        journal = self._journal
        clock = {"clock": journal.clock} if journal.clock else {}
        device = {"device": dict(journal.elsewhere)} if journal.elsewhere is not None else {}
        inside = self._inside.get(workload)
        best = BestRecord(
            workload=workload, **winner.proposal.by._asdict(), schedule=winner.proposal.schedule,
            seconds=winner.times, trials=trials[workload],
            **clock, **device, **({"inside": inside} if inside else {}),
        )  # fmt: skip
        settings = self._dynamic_settings.get(workload)
        return best.model_copy(update={"dynamic_settings": settings}) if settings else best

    def _build_tuned_task(self, state: TaskState) -> TunedTask:
        winner = self._winners[state.task.workload]
        arm_results = self._rank_contenders(state)
        winner_time = winner.median if winner else math.inf
        by = winner.proposal.by if winner else None
        other_times = [result.seconds for other, result in arm_results.items() if other != by]
        starts = [arm_results[start].seconds for start in state.starts]
        model_time = self._model_times.get(state.task.workload)
        return TunedTask(
            task=state.task.index, name=state.task.name, workload=state.task.workload,
            trials=state.trials, failed=state.failed, engine=by and by.engine,
            implementation=by and by.implementation, seconds=winner and winner.median,
            stopped=state.stopped, rule=state.bandit.position, share=state.share,
            failures=tuple(self._failures.listed.get(state.task.name, ())),
            contenders=tuple(arm_results.values()),
            over_next=_compute_slowdown(other_times, winner_time),
            over_start=_compute_slowdown(starts, winner_time),
            **({"in_model": model_time} if model_time else {}),
        )  # fmt: skip

    def _rank_contenders(self, state: TaskState) -> dict[Contender, ContenderResult]:
        """Return the result of each arm, the fastest first."""
        out = {by: entry.out for by, entry in state.bandit.arms.items()}
        rows = self._journal.rows(state)
        arms = dict.fromkeys((*state.starts, *out, *(Proposal.of(row.record).by for row in rows)))
        tallies = {by: {"trials": 0, "failed": 0, "best": math.inf} for by in arms}
        for row in rows:
            tally = tallies[Proposal.of(row.record).by]
            tally["trials"] += not row.record.session.endswith(REPEAT_SUFFIX)
            tally["failed"] += row.record.median == math.inf
            tally["best"] = min(tally["best"], row.record.median)
        for repeat in reversed(self._journal.repeats(state)):
            tallies[repeat.proposal.by]["best"] = repeat.median
        ranked_arms = sorted(tallies, key=lambda by: (tallies[by]["best"], by))
        return {by: _build_result(by, tallies[by], out.get(by)) for by in ranked_arms}

    def _find_last_error(self) -> str:
        for state in self._states:
            task = state.task
            rows = self._journal.store.rows(task.workload, state.text, self._journal.platform)
            for row in reversed(rows):
                if row.record.error:
                    return f"{task.name}: {row.record.error}"
        return "no reason given"


def _to_report_fields(reports: tuple[ComparisonReport, ...]) -> dict[str, Any]:
    """Convert the reports of in-model comparisons to fields of `tuning.json`."""
    if any(report.sizes for report in reports):
        return {"sized_comparisons": reports}
    return {"comparison": reports[0]} if reports else {}


def _describe_comparison(report: ComparisonReport) -> str:
    """Summarize the in-model comparison: decided tasks, and kernel time of the total time."""
    sizes = ", ".join(f"{name} {size}" for name, size in report.sizes.items())
    at = f" at {sizes}" if sizes else ""
    part = (
        f"; kernels {report.kernels * 1e3:.3g} of {report.whole * 1e3:.3g} ms inside the model{at}"
    )
    if report.tasks:
        gain = f": {Interval.of(report.gain)} of the time" if report.gain else ""
        part += f", {report.decided} of {report.tasks} tasks decided there"
        part += f", {report.changed} changed{gain}"
        if report.gain is None or report.gain[2] >= 1.0:
            part += "; nothing was found that is faster for sure than the untuned schedules"
    return part


def _build_result(by: Contender, tally: Mapping[str, float], out: str | None) -> ContenderResult:
    best = tally["best"]
    return ContenderResult(
        engine=by.engine, implementation=by.implementation, trials=int(tally["trials"]),
        failed=int(tally["failed"]), seconds=best if math.isfinite(best) else None, stopped=out,
    )  # fmt: skip


def _compute_slowdown(other_times: Iterable[float | None], own_time: float) -> float | None:
    """Return how many times slower the fastest of the others is; null if none has a time."""
    factor = min((other for other in other_times if other is not None), default=math.inf) / own_time
    return factor if math.isfinite(factor) else None
