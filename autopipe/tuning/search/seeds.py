"""Schedules that were fast elsewhere, tried before any search.

They come from records of another target, version or device, and from AutoTVM's logs. A seed is
measured here like any candidate and only that measurement counts; the searches then start from it.
"""

import json
import math
from collections.abc import Iterator, Mapping
from itertools import islice
from typing import Any, Final

import tvm

from autopipe.compiler import module_io
from autopipe.errors import StageError
from autopipe.processes.contained import Child, Failed
from autopipe.records.about import WorkloadInfo
from autopipe.records.merge import list_seeds
from autopipe.records.seed import Seed, list_seed_keys
from autopipe.safety.maker import Maker
from autopipe.schedules.conditions import Conditions
from autopipe.schedules.engines.knobs.space import Space
from autopipe.schedules.implementations.implementation import DIRECT
from autopipe.schedules.policy import Contender
from autopipe.schedules.templates.serve import AnyServed, serve
from autopipe.schedules.templates.template import dump
from autopipe.traces.values import allow_integer
from autopipe.tuning.evidence import Proposal
from autopipe.tuning.journal import Journal
from autopipe.tuning.task_state import TaskState
from autopipe.tuning.trials import Trials

_MOST: Final = 3
"""Seeds that are tried of an arm."""

_LOOKED_AT: Final = 4 * _MOST
"""Seeds of an arm that are replayed: those of another release may not apply."""

_LENGTH: Final = allow_integer(1, 1 << 16)
"""Outputs in a tile."""

AUTOTVM: Final = Contender("autotvm", DIRECT)


def measure_seeds(trials: Trials, maker: Maker) -> None:
    """Measure fast schedules from elsewhere, so that the searches start from them."""
    trials.each(find_seeds(trials, maker))


def find_seeds(trials: Trials, maker: Maker) -> list[tuple[TaskState, Proposal]]:
    """Select the applicable seeds of all tasks that are searched, within their allowances."""
    seeds: list[tuple[TaskState, Proposal]] = []
    for state in trials.states:
        if state.stopped is None:
            candidates = [
                *_find_platform_seeds(state, trials.journal, maker),
                *_find_logged_seeds(state, trials),
            ]
            tried_proposals = trials.journal.tried(state) if candidates else set()
            fresh = [
                proposal
                for proposal in dict.fromkeys(candidates)
                if proposal not in tried_proposals
            ]
            seeds += [(state, proposal) for proposal in fresh[: max(0, trials.allowance(state))]]
    return seeds


def find_nearest_setting(module: tvm.IRModule, seed: Seed, conditions: Conditions) -> str | None:
    """Find the setting of our template nearest to the tiles of an AutoTVM log, or None.

    The tiles of AutoTVM's x86 templates mean the same: `tile_oc` or the inner `tile_x` are outputs
    in vectors, our columns, `tile_ow` or the inner `tile_y` outputs beside them, our rows. The
    order of the loops around a tile differs, so what was best there is only near the best here.
    """
    template_match = serve(module, conditions.hardware)
    target_tiles = _parse_tiles(json.loads(seed.document), seed.key)
    if (
        template_match is None
        or target_tiles is None
        or not {"rows", "columns"} <= _read_knobs(template_match).keys()
    ):
        return None
    if target_tiles.pop("channels") not in {0, _count_columns(template_match)}:
        target_tiles["rows"], target_tiles["columns"] = (
            target_tiles["columns"],
            target_tiles["rows"],
        )
    space = Space.of(template_match, conditions.hardware, 0)

    def far(knobs: Any) -> tuple[float, int]:  # noqa: ANN401 - the template's own
        other_differences = sum(
            getattr(knobs, name) != value for name, value in _read_knobs(template_match).items()
        )
        return _compute_distance(knobs, target_tiles), other_differences

    return dump(template_match.template, min(space.settings, key=far))


def _find_platform_seeds(state: TaskState, journal: Journal, maker: Maker) -> Iterator[Proposal]:
    """Yield the fastest schedules of other platforms for the arms of a task."""
    likeness = WorkloadInfo.of(state.task).likeness
    nearby_records = journal.store.near(state.task.workload, likeness, journal.platform)
    every = list(dict.fromkeys(Proposal.of(details.record) for details in nearby_records))
    for by in state.bandit.arms:
        looked_at = islice((proposal for proposal in every if proposal.by == by), _LOOKED_AT)
        yield from islice(
            (proposal for proposal in looked_at if _can_replay(state, proposal, maker)), _MOST
        )


def _can_replay(state: TaskState, proposal: Proposal, maker: Maker) -> bool:
    try:
        maker.replay(state.task.name, *proposal)
    except StageError as error:
        maker.left_out(state.task.name, proposal.by, error)
        return False
    return True


def _find_logged_seeds(state: TaskState, trials: Trials) -> list[Proposal]:
    """Convert the settings of AutoTVM logs to settings of our template."""
    if AUTOTVM not in state.bandit.arms:
        return []
    store = trials.journal.store
    logged_seeds = [
        proposal for key in list_seed_keys(state.task) for proposal in list_seeds(store, key)
    ]
    if not logged_seeds:
        return []
    module = module_io.parse_json(state.text)

    def answer(place: int) -> str | None:
        return find_nearest_setting(module, logged_seeds[place], trials.conditions)

    with Child(lambda: answer) as child:
        try:
            documents = [child.ask(place) for place in range(min(len(logged_seeds), _MOST))]
        except Failed:  # the search of the template reports its failure
            return []
    return [Proposal(AUTOTVM, document) for document in documents if document is not None]


def _parse_tiles(document: Mapping[str, Any], key: str) -> dict[str, float] | None:
    """Parse the tile rows and columns, and the extent along the columns (0 if irrelevant)."""
    knobs = {name: value for name, value in document["knobs"].items() if _is_tile_split(value)}
    try:
        if document["template"] == "dense_pack.x86":
            return {"rows": knobs["tile_y"][-1], "columns": knobs["tile_x"][-1], "channels": 0}
        channels = json.loads(key)[2][0]
        return {
            "rows": knobs["tile_ow"][-1], "columns": knobs["tile_oc"][-1], "channels": channels,
        }  # fmt: skip
    except LookupError:
        return None


def _is_tile_split(value: object) -> bool:
    """Tell whether a knob is how a loop was split, in lengths that a loop can have."""
    return isinstance(value, list) and bool(value) and _LENGTH(value[-1])


def _count_columns(template_match: AnyServed) -> int:
    """Return the extent of the outputs along the columns."""
    match = template_match.match
    return int(match.breadth if hasattr(match, "breadth") else match.extents[-1])


def _read_knobs(template_match: AnyServed) -> Mapping[str, Any]:
    return {name: getattr(template_match.knobs, name) for name in template_match.knobs.__slots__}


def _compute_distance(knobs: Any, target_tiles: Mapping[str, float]) -> float:  # noqa: ANN401 - the template's own
    """Compute the distance of a setting from the target tiles, in powers of two."""
    return sum(
        abs(math.log2(getattr(knobs, name) / max(1, value))) for name, value in target_tiles.items()
    )
