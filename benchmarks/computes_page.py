"""The page about computes: a table of what `computes.py` timed, worst first, and its counts."""

import math
import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from statistics import geometric_mean
from typing import Any, Final

PATH: Final = Path(__file__).parents[1] / "docs" / "reference" / "computes.md"

_NOISE: Final = 1.15
_STREAMED: Final = 8e9
"""Bytes in a second that a core moves at least where memory is the bound."""

_FAIR: Final = 0.8
"""Of the speed that a search finds."""

_HEAD: Final = """\
# Computes

What `autopipe.auto_schedule` makes of functions without measuring anything: operators of Relax and
computes of `tvm.topi`, each at up to three shapes, and computes that no operator has.
`python benchmarks/computes.py --folder FOLDER` times them and writes this page, worst first.

- *Loops* are the function as TVM lowers it, compiled by LLVM; *parallel* has its outer loops fused
  and run by all threads. Each is the least of nine to twelve repeats, in turn. What is timed on
  one thread shows what a schedule does with one core, on a machine that is not quiet, too.
- *Classes* are those of its blocks: D direct compute, L location-tunable, S simple reduction,
  C complex reduction, O opaque.
- *Times faster* is against the loops. Each schedule is compared with them on random inputs and on
  edge cases.
"""

_LETTERS: Final = {
    "direct compute": "D",
    "location-tunable": "L",
    "simple reduction": "S",
    "complex reduction": "C",
    "opaque": "O",
}

Rows = Sequence[Mapping[str, Any]]


def text(rows: Rows, searched: Rows) -> str:
    """Return the page."""
    found = {(row["op"], row["label"]): row.get("ansor") for row in searched}
    timed = [row for row in rows if row.get("ours") and row.get("loops")]
    timed.sort(key=lambda row: _best(row) / row["ours"])
    lines = [_HEAD, *_summary(rows, timed, found), "", *_table(timed, found)]
    return "\n".join(lines) + "\n"


def promised(page: str) -> dict[str, int]:
    """Return how many functions the page says that templates serve, and how many are left."""
    return {
        name: int(match[1]) if (match := re.search(pattern, page)) else 0
        for name, pattern in (
            ("static", r"(\d+) by a template"),
            ("default", r"(\d+) by `default`"),
            ("none", r"(\d+) as they are"),
        )
    }


def _best(row: Mapping[str, Any]) -> float:
    """Return the time of whichever plain loops are faster."""
    return float(min(row["loops"], row.get("parallel") or math.inf))


def _summary(rows: Rows, timed: Rows, found: Mapping[Any, Any]) -> Iterator[str]:
    engines = Counter(row["engine"] for row in rows if "engine" in row)
    total = sum(engines.values())
    bound = sum(row["engine"] != "static" and _streams(row) for row in timed)
    slower = [row for row in timed if row["ours"] > _NOISE * row["loops"]]
    reducing = [row for row in timed if any("reduction" in one for one in row["classes"])]
    gain = geometric_mean(row["loops"] / row["ours"] for row in timed)
    reduced = geometric_mean([row["loops"] / row["ours"] for row in reducing] or [1.0])
    served = engines["static"] / max(1, total)
    yield f"- {total} functions: {engines['static']} by a template ({served:.1%}),"
    yield f"  {engines['default']} by `default`, {engines['none']} as they are; of those that no"
    yield f"  template serves and that were timed, {bound} are bound by memory as they are."
    wrong = sum(bool(row.get("wrong")) for row in rows)
    aborted = sum(bool(row.get("error")) for row in rows)
    yield f"- {wrong} wrong or not comparable (TVM has no code for some functions), {aborted} that"
    yield "  do not run."
    yield f"- {gain:.1f} times as fast as the loops in the geometric mean, {reduced:.1f} times over"
    yield f"  the {len(reducing)} with a reduction; {len(slower)} of {len(timed)} slower by more"
    yield f"  than {_NOISE - 1:.0%}."
    threads = " or ".join(map(str, sorted({row["threads"] for row in timed})))
    yield f"- {len(timed)} of them timed, on {threads} thread{'' if threads == '1' else 's'}."
    yield f"- Scheduled in {max(row['seconds'] for row in timed):.2f} s at most."
    pairs = [(row["ours"], found.get((row["op"], row["label"]))) for row in timed]
    known = [(ours, seconds) for ours, seconds in pairs if seconds]
    if known:
        fair = sum(seconds >= _FAIR * ours for ours, seconds in known)
        yield f"- {fair} of {len(known)} reach {_FAIR} of what `ansor` finds in 64 trials."


def _streams(row: Mapping[str, Any]) -> bool:
    return bool(row["bytes"] / row["ours"] > _STREAMED)


def _table(timed: Rows, found: Mapping[Any, Any]) -> Iterator[str]:
    titles = ["operator", "operands", "classes", "scheduled by", "loops", "parallel", "ours"]
    titles += ["ansor"] if found else []
    yield f"| {' | '.join([*titles, 'times faster'])} |"
    yield "|---" * (len(titles) + 1) + "|"
    for row in timed:
        by = row["template"] if row["engine"] == "static" else f"`{row['engine']}`"
        classes = " ".join(_LETTERS[one] for one in row["classes"]) or "O"
        times = [row["loops"], row.get("parallel"), row["ours"]]
        times += [found.get((row["op"], row["label"]))] if found else []
        gain = f"{row['loops'] / row['ours']:.1f}"
        cells = [row["op"], row["label"], classes, by, *map(_us, times), gain]
        yield f"| {' | '.join(cells)} |"


def _us(seconds: float | None) -> str:
    return f"{seconds * 1e6:.1f} us" if seconds else ""
