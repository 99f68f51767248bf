"""Check schedules against the plain loops of their tasks before they may win."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from autopipe.compiler import module_io
from autopipe.processes.contained import Failed
from autopipe.safety.failures import Failures
from autopipe.safety.inspection import NO_TIME, ScheduleChecker
from autopipe.safety.job import Piece
from autopipe.safety.maker import Maker, Refused
from autopipe.safety.verdict import Finding
from autopipe.tuning.evidence import Proposal
from autopipe.tuning.journal import Journal
from autopipe.tuning.task_state import TaskState


@dataclass(frozen=True, slots=True, kw_only=True)
class Checks:
    """The replays, the checks and the journal of evidence of schedules."""

    journal: Journal
    maker: Maker
    inspector: ScheduleChecker
    failures: Failures


def check_winners(states: Sequence[TaskState], checks: Checks) -> None:
    """Check the winner of each task, and the next one where it fails, until one passes."""
    journal = checks.journal
    doubtful = list(states)
    while doubtful:
        winners = [(state, won.proposal) for state in doubtful if (won := journal.winner(state))]
        check_proposals(winners, checks)
        doubtful = [
            state for state, winner in winners if journal.has_verdict(state, winner, "failed")
        ]
    for state in states:
        won = journal.winner(state)
        state.best = won.median if won is not None else math.inf


def check_proposals(proposals: Sequence[tuple[TaskState, Proposal]], checks: Checks) -> None:
    """Append a verdict on each schedule that has none yet.

    One that computes something else than its workload, that fails, or that cannot be made again
    fails its check. A check that cannot be made, for lack of time or memory, fails nothing: the
    build is verified as a whole later on.
    """
    journal, maker = checks.journal, checks.maker
    suspects = []
    for state, proposal in proposals:
        if journal.has_verdict(state, proposal, "passed"):
            continue
        try:
            suspects.append((state, proposal, _make_suspect(state, proposal, maker)))
        except (Refused, Failed) as error:
            maker.left_out(state.task.name, proposal.by, error)
            journal.add_verdict(state, proposal, "failed", str(error))
    verdicts = checks.inspector.judge([suspect for _, _, suspect in suspects])
    for (state, proposal, _), verdict in zip(suspects, verdicts, strict=True):
        if verdict.condemns:
            if verdict.finding is Finding.WRONG:
                journal.quarantine(state, proposal, verdict.reason or "")
            journal.add_verdict(state, proposal, "failed", verdict.reason or "")
        elif verdict is not NO_TIME:
            journal.add_verdict(state, proposal, "passed", verdict.reason or "")


def find_passing(
    states: Sequence[TaskState], proposals: Mapping[str, Proposal], checks: Checks
) -> list[str]:
    """Check a schedule of each workload; return the workloads where it did not fail."""
    pairs = [(s, proposals[s.task.workload]) for s in states if s.task.workload in proposals]
    check_proposals(pairs, checks)
    return [
        state.task.workload
        for state, proposal in pairs
        if not checks.journal.has_verdict(state, proposal, "failed")
    ]


def _make_suspect(state: TaskState, proposal: Proposal, maker: Maker) -> Piece:
    task = state.task.name
    loops, module = module_io.parse_json(state.text), maker.replay(task, *proposal)
    return Piece("checking", task, loops, *proposal.by, proposal.schedule, module)
