"""The page about computes: a table of what `computes.py` timed, worst first, and its counts."""

import math
import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from statistics import geometric_mean
from textwrap import wrap
from typing import Any, Final

PATH: Final = Path(__file__).parents[1] / "docs" / "reference" / "computes.md"

_NOISE: Final = 1.15
_STREAMED: Final = 8e9
"""Bytes in a second that a core moves at least where memory is the bound."""

_FAIR: Final = 0.8
"""Of the speed that a search finds."""

_SHORT: Final = 20e-6
"""Seconds of loops below which a call and the start of threads are most of it."""

_TINY: Final = 1e-6
"""Seconds below which a difference is one of calls."""

_WITHOUT: Final[Mapping[str, str]] = {
    "arange": "a constant",
    "ccl.*, dist.*": "speak to other processes",
    "dynamic_strided_slice": "sizes are known at run time",
    "grad.no_grad, grad.start_checkpoint, grad.end_checkpoint": "are no function of loops",
    "inspect.*, shape_to_tensor, size": "read the header of a tensor",
    "nn.attention_var_len": "is lowered to a call of a library",
    "nn.pixel_shuffle": "TVM 0.27 lacks the compute that it is lowered to",
    "vision.roi_align, vision.roi_pool": "as TVM writes them, loops read outside of the image for "
    "random regions; a test compares our RoiAlign with onnxruntime",
    "vision.all_class_non_max_suppression": "sizes are known at run time",
}
"""Operators with a legalization that are not in the table, and why."""

_HEAD: Final = """\
# Computes

What `autopipe.auto_schedule` makes of functions without measuring anything: operators of Relax, the
adjoints that TVM has of them, and computes of `tvm.topi`, at up to three shapes each, and computes
that no operator has. `python benchmarks/computes.py --folder FOLDER` times them and writes this
page, worst first.

- *Loops* are the function as TVM lowers it, compiled by LLVM, which runs on one thread; *parallel*
  has its outer loops fused and run by all threads; *ours* has as many threads as it asks for. Each
  is the minimum of some dozen repeats of a fifth of a millisecond, in turn. *ansor* is what 64
  trials of sketch search find.
- *Classes* are those of its blocks: D direct compute, L location-tunable, S simple reduction,
  C complex reduction, O opaque.
- *Times faster* is against the loops. Each schedule is compared with them on random inputs and on
  edge cases.
- *At most* is how many times faster than the loops anything could be here: a roofline, from
  operations, bytes, caches and clock. It knows nothing of elementary functions, which take many
  operations.
"""

_LETTERS: Final = {
    "direct compute": "D",
    "location-tunable": "L",
    "simple reduction": "S",
    "complex reduction": "C",
    "opaque": "O",
}

Rows = Sequence[Mapping[str, Any]]


def text(built: Rows, times: Rows, searched: Rows, conditions: str) -> str:
    """Return the page; `conditions` says how quiet the machine was."""
    found = {(row["op"], row["label"]): row for row in times}
    rows = [{**row, **found.get((row["op"], row["label"]), {})} for row in built]
    timed = [row for row in rows if row.get("ours") and row.get("loops")]
    timed.sort(key=lambda row: _best(row) / row["ours"])
    lines = [
        _HEAD + "\n".join(_wrapped(conditions)),
        "",
        *_summary(rows, timed),
        *_compared(timed, searched),
    ]
    lines += ["", "Not in the table:", "", *(f"- {name}: {why}" for name, why in _WITHOUT.items())]
    lines += [*_told(rows), "", *_table(timed)]
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


def _summary(rows: Rows, timed: Rows) -> Iterator[str]:
    engines = Counter(row["engine"] for row in rows if "engine" in row)
    total = sum(engines.values())
    served = engines["static"] / max(1, total)
    left = sorted({row["op"] for row in rows if row.get("engine") == "none"})
    yield f"- {total} functions: {engines['static']} by a template ({served:.1%}),"
    yield f"  {engines['default']} by `default`, {engines['none']} as they are"
    yield f"  ({', '.join(left)}: TVM's runtime does it all, in one call)."
    wrong = sum(bool(row.get("wrong")) for row in rows)
    aborted = sum(bool(row.get("aborted")) for row in rows)
    yield f"- {wrong} wrong, {aborted} that abort."
    slower = [row for row in timed if row["ours"] > _NOISE * row["loops"]]
    seen = [row for row in slower if row["loops"] >= _TINY]
    yield f"- {_gain(timed):.1f} times as fast as the loops in the geometric mean of {len(timed)}."
    reducing = [row for row in timed if any("reduction" in one for one in row["classes"])]
    long = [row for row in reducing if row["loops"] >= _SHORT]
    yield f"- {_gain(reducing):.1f} times over the {len(reducing)} with a reduction;"
    yield f"  {_gain(long):.1f} times over the {len(long)} whose loops take 20 us or more."
    yield from _bounded(reducing, long)
    yield f"- {len(slower)} slower than the loops by over {_NOISE - 1:.0%}, {len(seen)} of them"
    yield "  where loops take a microsecond or more."
    bound = [row for row in timed if row["bytes"] / row["ours"] > _STREAMED]
    gain = sum(row["loops"] / row["ours"] < _NOISE for row in bound)
    yield f"- {gain} are as fast as their loops and move more than 8 GB in a second:"
    yield "  memory is their bound as they are."
    yield f"- {len(timed)} of them timed, on {_threads(timed)}."
    longest = max((row["seconds"] for row in timed), default=0)
    yield f"- Scheduled in {longest:.2f} s of one processor at most."


def _bounded(reducing: Rows, long: Rows) -> Iterator[str]:
    """Yield the speedup that the machine's limits allow."""
    if not all(row.get("roof") for row in reducing) or not reducing:
        return
    most, of_long = (
        geometric_mean([row["loops"] / row["roof"] for row in rows] or [1.0])
        for rows in (reducing, long)
    )
    share = geometric_mean([min(1.0, row["roof"] / row["ours"]) for row in reducing])
    yield f"- The machine allows {most:.1f} times over those {len(reducing)} at most, and"
    yield f"  {of_long:.1f} times over those {len(long)}: on {_threads(reducing)}, by arithmetic"
    yield f"  and memory. {share:.0%} of what it allows is reached in the geometric mean. Where"
    yield "  loops fill vectors already or wait for memory, no schedule can win much."


def _threads(rows: Rows) -> str:
    count = " or ".join(map(str, sorted({row["threads"] for row in rows})))
    return f"{count} thread{'' if count == '1' else 's'}"


def _gain(rows: Rows) -> float:
    return geometric_mean([row["loops"] / row["ours"] for row in rows] or [1.0])


def _compared(timed: Rows, searched: Rows) -> Iterator[str]:
    """Yield how schedules without measuring stand against a search."""
    ratios = [row["ansor"] / row["ours"] for row in timed if row.get("ansor")]
    if not ratios:
        return
    fair = sum(ratio >= _FAIR for ratio in ratios)
    took = [row["took"] for row in searched if row.get("took")]
    more = sum(ratio >= 1 for ratio in ratios)
    yield f"- {fair} of {len(ratios)} ({fair / len(ratios):.0%}) reach {_FAIR} of `ansor`"
    yield f"  with 64 trials, and {more} more than it; the geometric mean is"
    yield f"  {geometric_mean(ratios):.2f} times its speed. A search took up to {max(took):.0f} s."
    yield "  Functions are searched in the order of a digest of their names, which is arbitrary."


def _wrapped(conditions: str) -> list[str]:
    return wrap(conditions, width=98, initial_indent="- ", subsequent_indent="  ")


def _told(rows: Rows) -> Iterator[str]:
    reasons: dict[str, list[str]] = {}
    for row in rows:
        why = row.get("wrong") or row.get("aborted") or row.get("refused")
        if why:
            reasons.setdefault(_short(str(why)), []).append(f"{row['op']} {row['label']}")
    for why, functions in reasons.items():
        yield f"- {', '.join(functions)}: {why}"


def _short(why: str) -> str:
    text = re.sub(r"\s+", " ", re.sub(r"[|<>`\\]", "", why))
    return text if len(text) <= 120 else f"{text[:120]} ..."  # noqa: PLR2004 - a line


def _table(timed: Rows) -> Iterator[str]:
    searched = any(row.get("ansor") for row in timed)
    titles = ["operator", "operands", "classes", "scheduled by", "loops", "parallel", "ours"]
    titles += ["ansor"] if searched else []
    yield f"| {' | '.join([*titles, 'times faster', 'at most'])} |"
    yield "|---" * (len(titles) + 2) + "|"
    for row in timed:
        by = row["template"] if row["engine"] == "static" else f"`{row['engine']}`"
        classes = " ".join(_LETTERS[one] for one in row["classes"]) or "O"
        times = [row["loops"], row.get("parallel"), row["ours"]]
        times += [row.get("ansor")] if searched else []
        gain = f"{row['loops'] / row['ours']:.1f}"
        most = f"{row['loops'] / row['roof']:.1f}" if row.get("roof") else ""
        cells = [row["op"], row["label"], classes, by, *map(_us, times), gain, most]
        yield f"| {' | '.join(cells)} |"


def _us(seconds: float | None) -> str:
    if not seconds:
        return ""
    return f"{seconds * 1e6:.1f} us" if seconds >= _TINY else f"{seconds * 1e6:.2f} us"
