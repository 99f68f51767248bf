"""Pick the winner of a task: one pure function of the evidence about its schedules."""

import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Final

from autopipe.benchmarking.interval import Interval, estimate_paired_ratio
from autopipe.tuning.evidence import Place, Proposal, TaskEvidence

HARDLY: Final = 1.02
"""The untuned schedule stays where it takes at most this many times the fastest one's time."""

SURE: Final = 0.99
"""Confidence of the sign test on whole packages."""

LIKELY: Final = 0.8
"""Confidence of the sign test on one kernel inside the model. A mistake there costs little, for the
packages decide on all of them; to ask for `SURE` would leave most of the gain."""

LEAST: Final = 0.99
"""A challenger has to take less than this part of the incumbent's time inside the model."""


def pick_winner(
    evidence: Iterable[TaskEvidence],
    *,
    untuned: Proposal | None = None,
    engines: Sequence[str] = (),
) -> TaskEvidence | None:
    """Select the evidence of the winning schedule, or None if no schedule may win.

    `untuned` is the schedule of an untuned build. `engines` is in order of preference where the
    policy selects the first engine, and empty where it selects the fastest. These rules go from the
    top to the bottom; the first one that leaves a single schedule decides:

    | where | a schedule |
    |---|---|
    | check | that failed one, or is excluded, never wins |
    | any | without a time never wins; with `engines`, only those of the first that has a time win |
    | in model | wins over others if it alone was compared there, or is the incumbent: the untuned
      one, or else the fastest of the trials. A challenger takes its place if it takes less than
      `LEAST` of its time, by the sign test at `LIKELY`, and its package less than the incumbent's,
      by the sign test at `SURE` |
    | repeat | that was repeated wins over those that were not, by its median in the last series;
      the untuned one stays if it takes at most `HARDLY` of the fastest |
    | trial | wins by its minimum median; coarse times come after all others; the untuned one stays
      as above |

    The times of a winner inside the model stay those of its repeats, or of its fastest trial: times
    of two places are not compared. Of equals the one that was measured first wins.
    """
    records = list(evidence)
    trials = rank_trials(records, engines=engines)
    repeats = rank_repeats(records, engines=engines)
    candidates = [
        *_keep_untuned(repeats, untuned), *repeats, *_keep_untuned(trials, untuned), *trials
    ]  # fmt: skip
    best = next(iter(candidates), None)
    if best is None:
        return None
    places = _place_in_model(records, candidates, untuned)
    model_winner = pick_in_model(records, *places) if places else None
    return next((own for own in candidates if own.proposal == model_winner), best)


def rank_trials(
    evidence: Iterable[TaskEvidence], *, engines: Sequence[str] = ()
) -> list[TaskEvidence]:
    """Return the times of all schedules that may win, repeats among them, the fastest first."""
    records = list(evidence)
    barred_proposals = {one.proposal for one in records if one.check in {"failed", "excluded"}}
    candidates = [
        one
        for one in records
        if one.place in {"trial", "repeat"}
        and one.median < math.inf
        and one.proposal not in barred_proposals
    ]
    has_time = {one.proposal.by.engine for one in candidates}
    first = next((engine for engine in engines if engine in has_time), None)
    if first is not None:
        candidates = [one for one in candidates if one.proposal.by.engine == first]
    return sorted(candidates, key=_compute_sort_key)


def rank_repeats(
    evidence: Iterable[TaskEvidence], *, engines: Sequence[str] = ()
) -> list[TaskEvidence]:
    """Return the times of the last series of repeats, the fastest first."""
    repeats = [one for one in rank_trials(evidence, engines=engines) if one.place == "repeat"]
    last = max((one.series for one in repeats), default=0)
    return [one for one in repeats if one.series == last]


def compare_in_model(
    evidence: Iterable[TaskEvidence], challenger: Proposal, incumbent: Proposal, sure: float
) -> Interval | None:
    """Estimate the ratio of the challenger's to the incumbent's time inside the model."""
    return _compare_rounds(evidence, "in_model", challenger, incumbent, sure)


def is_faster_in_model(
    evidence: Iterable[TaskEvidence], challenger: Proposal, incumbent: Proposal
) -> bool:
    """Tell whether a kernel is likely to be faster inside the model, by enough for a change."""
    likely = compare_in_model(evidence, challenger, incumbent, LIKELY)
    return likely is not None and likely.high < 1.0 and likely.ratio < LEAST


def pick_in_model(
    evidence: Iterable[TaskEvidence], incumbent: Proposal, *challengers: Proposal
) -> Proposal:
    """Return the schedule that the model decides for: the incumbent, if no challenger beats it."""
    records = list(evidence)
    faster = {}
    for challenger in challengers:
        package_ratio = _compare_rounds(records, "package", challenger, incumbent, SURE)
        if (
            is_faster_in_model(records, challenger, incumbent)
            and package_ratio is not None
            and package_ratio.high < 1.0
        ):
            ratio = compare_in_model(records, challenger, incumbent, LIKELY)
            faster[challenger] = ratio.ratio if ratio else math.inf
    return min(faster, key=lambda one: (faster[one], one), default=incumbent)


def _keep_untuned(ranked: Sequence[TaskEvidence], untuned: Proposal | None) -> list[TaskEvidence]:
    """Return the times of the untuned schedule if the fastest is hardly faster."""
    return [
        one
        for one in ranked
        if one.proposal == untuned and not one.coarse and one.median <= HARDLY * ranked[0].median
    ]


def _place_in_model(
    evidence: Sequence[TaskEvidence], candidates: Sequence[TaskEvidence], untuned: Proposal | None
) -> list[Proposal]:
    """Return the schedules that were timed inside the model and may win, the incumbent first."""
    timed_proposals = {one.proposal for one in evidence if one.place == "in_model"}
    proposals = [
        one for one in dict.fromkeys(one.proposal for one in candidates) if one in timed_proposals
    ]
    incumbents = [one for one in proposals if untuned is not None and one.body == untuned.body]
    return list(dict.fromkeys((*incumbents, *proposals)))


def _compare_rounds(
    evidence: Iterable[TaskEvidence],
    place: Place,
    challenger: Proposal,
    incumbent: Proposal,
    sure: float,
) -> Interval | None:
    """Return the ratio of two schedules over all rounds in which both were timed."""
    times: Mapping[Proposal, dict[int, tuple[float, ...]]] = {challenger: {}, incumbent: {}}
    for record in evidence:
        if record.place == place and record.proposal in times:
            times[record.proposal][record.series] = record.times
    common_series = sorted(times[challenger].keys() & times[incumbent].keys())
    pairs = [
        pair
        for at in common_series
        for pair in zip(times[challenger][at], times[incumbent][at], strict=True)
    ]
    return (
        estimate_paired_ratio([new for new, _ in pairs], [old for _, old in pairs], sure)
        if pairs
        else None
    )


def _compute_sort_key(evidence: TaskEvidence) -> tuple[bool, float, float, Proposal]:
    return (
        evidence.coarse,
        evidence.median,
        math.inf if evidence.row is None else evidence.row,
        evidence.proposal,
    )
