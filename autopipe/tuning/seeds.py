"""Schedules that were fast elsewhere, tried before any search.

They come from records of another target, version or device, and from AutoTVM's logs. A seed is
measured here like any candidate and only that measurement counts; the searches then start from it.
"""

import json
import math
from collections.abc import Iterator, Mapping, Sequence
from itertools import islice
from typing import Any, Final

import tvm

from autopipe.errors import StageError
from autopipe.processes.contained import Child, Failed
from autopipe.records.about import About
from autopipe.records.merge import planted
from autopipe.records.seed import Seed, keys
from autopipe.safety.maker import Maker
from autopipe.schedules.conditions import Conditions
from autopipe.schedules.engines.knobs.space import Space
from autopipe.schedules.implementations.implementation import DIRECT
from autopipe.schedules.policy import Contender
from autopipe.schedules.templates.serve import Served, serve
from autopipe.schedules.templates.template import dump
from autopipe.traces.values import integer
from autopipe.tuning.first_round import Start
from autopipe.tuning.journal import Journal, contender
from autopipe.tuning.task_state import Spending, Work

_MOST: Final = 3
"""Seeds that are tried of a contender."""

_LOOKED_AT: Final = 4 * _MOST
"""Seeds of a contender that are looked at: those of another release may not apply."""

_LENGTH: Final = integer(1, 1 << 16)
"""Outputs in a tile."""

AUTOTVM: Final = Contender("autotvm", DIRECT)


def seeds(
    works: Sequence[Work],
    spending: Spending,
    journal: Journal,
    maker: Maker,
    conditions: Conditions,
) -> list[Start]:
    """Return what is worth a trial of the tasks that are searched, as far as it applies here."""
    found: list[Start] = []
    for work in works:
        if work.standing.stopped is None:
            own = [*_near(work, journal, maker), *_logged(work, journal, conditions)]
            found += _fresh(own, journal)[: max(0, spending.allowance(work.standing))]
    return found


def nearest(module: tvm.IRModule, seed: Seed, conditions: Conditions) -> str | None:
    """Return the setting of our template that comes closest to what a log says, or None.

    The tiles of AutoTVM's x86 templates mean the same: `tile_oc` or the inner `tile_x` are outputs
    in vectors, our columns, `tile_ow` or the inner `tile_y` outputs beside them, our rows. The
    order of the loops around a tile differs, so what was best there is only near the best here.
    """
    served = serve(module, conditions.hardware)
    wanted = _wanted(json.loads(seed.document), seed.key)
    if served is None or wanted is None or not {"rows", "columns"} <= _knobs(served).keys():
        return None
    if wanted.pop("channels") not in {0, _last(served)}:
        wanted["rows"], wanted["columns"] = wanted["columns"], wanted["rows"]
    space = Space.of(served, conditions.hardware, 0)

    def far(knobs: Any) -> tuple[float, int]:  # noqa: ANN401 - the template's own
        others = sum(getattr(knobs, name) != value for name, value in _knobs(served).items())
        return _apart(knobs, wanted), others

    return dump(served.template, min(space.settings, key=far))


def _near(work: Work, journal: Journal, maker: Maker) -> Iterator[Start]:
    """Yield what was fast on other platforms, for the contenders of a task."""
    task = work.standing.task
    found = journal.store.near(task.workload, About.of(task).likeness, journal.platform)
    for entry in work.contest.entries.values():
        own = dict.fromkeys(
            each.record.schedule for each in found if contender(each.record) == entry.by
        )
        looked_at = (Start(work, entry.by, schedule) for schedule in islice(own, _LOOKED_AT))
        yield from islice((each for each in looked_at if _applies(each, maker)), _MOST)


def _applies(start: Start, maker: Maker) -> bool:
    task = start.work.standing.task.name
    try:
        maker.replay(task, start.by, start.schedule)
    except StageError as error:
        maker.left_out(task, start.by, error)
        return False
    return True


def _logged(work: Work, journal: Journal, conditions: Conditions) -> list[Start]:
    """Return what AutoTVM's logs say, in the words of our template."""
    entries = {entry.by for entry in work.contest.entries.values()}
    if AUTOTVM not in entries:
        return []
    found = [seed for key in keys(work.standing.task) for seed in planted(journal.store, key)]
    module = tvm.ir.load_json(work.text) if found else None

    def answer(place: int) -> str | None:
        return nearest(module, found[place], conditions)

    with Child(lambda: answer) as child:
        try:
            documents = [child.ask(place) for place in range(min(len(found), _MOST))]
        except Failed:  # a template that fails is told of where it is searched
            return []
    return [Start(work, AUTOTVM, each) for each in dict.fromkeys(documents) if each is not None]


def _fresh(starts: Sequence[Start], journal: Journal) -> list[Start]:
    """Leave out what was tried here before."""
    if not starts:
        return []
    work = starts[0].work
    tried = {(contender(row.record), row.record.schedule) for row in journal.rows(work)}
    name = work.standing.task.workload
    tried |= {(by, schedule) for whose, by, schedule in journal.condemned if whose == name}
    unique = dict.fromkeys((start.by, start.schedule) for start in starts)
    return [Start(work, *each) for each in unique if each not in tried]


def _wanted(document: Mapping[str, Any], key: str) -> dict[str, float] | None:
    """Return rows, columns and what lies along the columns, 0 if that does not matter."""
    knobs = {name: value for name, value in document["knobs"].items() if _tiles(value)}
    try:
        if document["template"] == "dense_pack.x86":
            return {"rows": knobs["tile_y"][-1], "columns": knobs["tile_x"][-1], "channels": 0}
        channels = json.loads(key)[2][0]
        return {
            "rows": knobs["tile_ow"][-1], "columns": knobs["tile_oc"][-1], "channels": channels,
        }  # fmt: skip
    except LookupError:
        return None


def _tiles(value: object) -> bool:
    """Tell whether a knob is how a loop was split, in lengths that a loop can have."""
    return isinstance(value, list) and bool(value) and _LENGTH(value[-1])


def _last(served: Served) -> int:
    """Return how many outputs lie along the columns."""
    found = served.found
    return int(found.breadth if hasattr(found, "breadth") else found.extents[-1])


def _knobs(served: Served) -> Mapping[str, Any]:
    return {name: getattr(served.knobs, name) for name in served.knobs.__slots__}


def _apart(knobs: Any, wanted: Mapping[str, float]) -> float:  # noqa: ANN401 - the template's own
    """Return how far a setting is from what is wanted, in doublings."""
    return sum(
        abs(math.log2(getattr(knobs, name) / max(1, value))) for name, value in wanted.items()
    )
