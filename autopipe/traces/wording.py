"""Describes a trace in words: one line for each step that changes something.

The first loop of block C is called `C.0`. If it is split, the parts are `C.0.0` and `C.0.1`. If
`C.0` and `C.1` are fused, the result is `C.0+C.1`. Names come from a file that others may have
written: escape them before they are printed.
"""

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Final

from autopipe import foreign
from autopipe.traces import index_map
from autopipe.traces.reading import Forbidden, Instruction, Trace, read

_REFUSED: Final = "would be refused: "
_LONG: Final = 40
"""Characters of a loop's name; a longer one is cut in its middle."""


def steps(schedule: str) -> tuple[str, ...]:
    """Return the lines that describe a trace, or one line that says why it is refused."""
    try:
        return words(read(schedule))
    except Forbidden as error:
        return (f"{_REFUSED}{error}",)


def refused(lines: Sequence[str]) -> bool:
    """Tell whether the lines of `steps` say that the trace is refused."""
    return bool(lines) and lines[0].startswith(_REFUSED)


def is_trace(schedule: str) -> bool:
    """Tell whether a schedule is a trace. A schedule that can not be read counts as one."""
    try:
        return not isinstance(foreign.parse(schedule), dict)
    except ValueError:
        return True


def words(trace: Trace) -> tuple[str, ...]:
    """Return the lines that describe a trace."""
    names: dict[str, str] = {}
    lines: list[str] = []
    for instruction in trace.instructions:
        names |= dict(zip(instruction.outputs, _names(instruction, names), strict=True))
        line = _WORDS.get(instruction.kind, _other)(
            instruction, [_said(value, names) for value in instruction.inputs]
        )
        lines += [line] if line else []
    return tuple(lines)


def _names(step: Instruction, names: Mapping[str, str]) -> Iterator[str]:
    """Yield a name for each output of a step."""
    given = [_said(value, names) for value in step.inputs]
    of = given[0] if given else ""
    if step.kind == "GetSBlock":
        yield str(step.attrs[0])
        return
    if step.kind == "Fuse":
        yield _short(f"{of}+{given[-1]}" if len(given) > 1 else of)
        return
    for place in range(len(step.outputs)):
        if step.kind == "SampleCategorical":
            yield str(step.attrs[0][step.decision])
        elif step.kind == "SamplePerfectTile":
            yield str(step.decision[place]) if place < len(step.decision) else "?"
        elif step.kind in _PARTS:
            yield _short(f"{of}.{place}")
        else:
            what = _GIVEN.get(step.kind, step.kind)
            which = f" {place}" if len(step.outputs) > 1 else ""
            yield _short(f"{what}{which} of {of}")


_PARTS: Final = ("GetLoops", "Split")
_GIVEN: Final = {
    "GetChildBlocks": "block", "GetProducers": "producer", "GetConsumers": "consumer",
    "GetOutputBlocks": "output", "CacheRead": "read cache", "CacheWrite": "write cache",
    "ReadAt": "read cache", "WriteAt": "write cache", "DecomposeReduction": "start",
    "RFactor": "partial sum", "Blockize": "outer block", "AddUnitLoop": "unit loop",
    "ReIndex": "reindexed", "SampleComputeLocation": "place",
}  # fmt: skip


def _said(value: object, names: Mapping[str, str]) -> str:
    if isinstance(value, str):
        return names.get(value, "the rest" if value == "None" else value)
    if isinstance(value, dict):
        return index_map.words(value)
    if isinstance(value, list):
        return f"[{', '.join(_said(item, names) for item in value)}]"
    return json.dumps(value)


def _short(name: str) -> str:
    half = _LONG // 2 - 1
    return name if len(name) <= _LONG else f"{name[:half]}..{name[-half:]}"


def _silent(step: Instruction, given: Sequence[str]) -> str:  # noqa: ARG001 - one signature
    """Return no line: the step only looks something up, or draws a number."""
    return ""


def _other(step: Instruction, given: Sequence[str]) -> str:
    return " ".join([step.kind, *given, *map(str, step.attrs)])


def _split(step: Instruction, given: Sequence[str]) -> str:  # noqa: ARG001
    return f"split {given[0]} into {' x '.join(given[1:])}"


def _cached(step: Instruction, given: Sequence[str]) -> str:
    verb = {"CacheRead": "read", "ReadAt": "read"}.get(step.kind, "write")
    block, where = (given[1], f" at {given[0]}") if step.kind.endswith("At") else (given[0], "")
    return f"{block}: {verb} buffer {step.attrs[0]} through {step.attrs[1]}{where}"


def _transformed(step: Instruction, given: Sequence[str]) -> str:
    side = "written" if step.attrs[1] else "read"
    return f"{given[0]}: layout of {side} buffer {step.attrs[0]}: {given[1]}"


def _verb(text: str) -> Callable[[Instruction, Sequence[str]], str]:
    """Return a function that fills a sentence: {0} is the first input, {a} the first attribute."""

    def written(step: Instruction, given: Sequence[str]) -> str:
        attrs = [_said(value, {}) for value in step.attrs]
        return text.format(*given, all=", ".join(given), **dict(zip("abcd", attrs, strict=False)))

    return written


_WORDS: Final[Mapping[str, Callable[[Instruction, list[str]], str]]] = {
    **dict.fromkeys(
        ("GetSBlock", "GetLoops", "GetChildBlocks", "GetProducers", "GetConsumers",
         "GetOutputBlocks", "SampleCategorical", "SamplePerfectTile", "SampleComputeLocation",
         "EnterPostproc"), _silent,
    ),
    "Split": _split,
    "Fuse": _verb("fuse {all}"),
    "Reorder": _verb("reorder {all}"),
    "AddUnitLoop": _verb("add a unit loop to {0}"),
    "Parallel": _verb("parallel {0}"),
    "Vectorize": _verb("vectorize {0}"),
    "Unroll": _verb("unroll {0}"),
    "Bind": _verb("bind {0} to {a}"),
    "CacheRead": _cached,
    "CacheWrite": _cached,
    "ReadAt": _cached,
    "WriteAt": _cached,
    "ReIndex": _verb("{0}: index buffer {a} as the loops do"),
    "ComputeAt": _verb("compute {0} at {1}"),
    "ReverseComputeAt": _verb("compute {0} at {1}"),
    "ComputeInline": _verb("inline {0}"),
    "ReverseComputeInline": _verb("inline {0} into its producer"),
    "DecomposeReduction": _verb("start the sum of {0} at {1}"),
    "RFactor": _verb("sum {0} in parts, axis {a}"),
    "PadEinsum": _verb("pad {0} to multiples of {a}"),
    "Blockize": _verb("make {0} a block"),
    "Tensorize": _verb("compute {0} by {a}"),
    "SetScope": _verb("{0}: buffer {a} in {b}"),
    "StorageAlign": _verb("{0}: align buffer {a}, axis {b}, by {c} + {d}"),
    "TransformLayout": _transformed,
    "TransformBlockLayout": _verb("{0}: loops {a}"),
    "Annotate": _verb("annotate {0}: {a} = {1}"),
    "Unannotate": _verb("take annotation {a} from {0}"),
}  # fmt: skip
