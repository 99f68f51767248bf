"""Describe a trace as text: one line for each step that changes the schedule.

The first loop of block C is called `C.0`. If it is split, the parts are `C.0.0` and `C.0.1`. If
`C.0` and `C.1` are fused, the result is `C.0+C.1`. Names are from an untrusted file: escape them
before printing.
"""

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Final

from autopipe import foreign
from autopipe.traces import index_map
from autopipe.traces.reading import Forbidden, Instruction, Trace, read_trace

_REFUSED: Final = "would be refused: "
_LONG: Final = 40
"""Maximum length of a loop's name; a longer one is shortened in its middle."""


def describe_steps(schedule: str) -> tuple[str, ...]:
    """Describe a trace as lines, or return one line with the reason of its refusal."""
    try:
        return describe_trace(read_trace(schedule))
    except Forbidden as error:
        return (f"{_REFUSED}{error}",)


def is_refusal(lines: Sequence[str]) -> bool:
    """Return whether the lines of `describe_steps` are a refusal."""
    return bool(lines) and lines[0].startswith(_REFUSED)


def is_trace(schedule: str) -> bool:
    """Return whether a schedule is a trace. An unreadable schedule counts as one."""
    try:
        return not isinstance(foreign.parse(schedule), dict)
    except ValueError:
        return True


def describe_trace(trace: Trace) -> tuple[str, ...]:
    """Describe a trace as lines."""
    names: dict[str, str] = {}
    lines: list[str] = []
    for instruction in trace.instructions:
        names |= dict(zip(instruction.outputs, _list_output_names(instruction, names), strict=True))
        line = _WORDS.get(instruction.kind, _describe_other)(
            instruction, [_format_operand(value, names) for value in instruction.inputs]
        )
        lines += [line] if line else []
    return tuple(lines)


def _list_output_names(step: Instruction, names: Mapping[str, str]) -> Iterator[str]:
    """Yield a name for each output of a step."""
    operands = [_format_operand(value, names) for value in step.inputs]
    of = operands[0] if operands else ""
    if step.kind == "GetSBlock":
        yield str(step.attrs[0])
        return
    if step.kind == "Fuse":
        yield _shorten_name(f"{of}+{operands[-1]}" if len(operands) > 1 else of)
        return
    for place in range(len(step.outputs)):
        if step.kind == "SampleCategorical":
            yield str(step.attrs[0][step.decision])
        elif step.kind == "SamplePerfectTile":
            yield str(step.decision[place]) if place < len(step.decision) else "?"
        elif step.kind in _PARTS:
            yield _shorten_name(f"{of}.{place}")
        else:
            output_kind = _GIVEN.get(step.kind, step.kind)
            which = f" {place}" if len(step.outputs) > 1 else ""
            yield _shorten_name(f"{output_kind}{which} of {of}")


_PARTS: Final = ("GetLoops", "Split")
_GIVEN: Final = {
    "GetChildBlocks": "block", "GetProducers": "producer", "GetConsumers": "consumer",
    "GetOutputBlocks": "output", "CacheRead": "read cache", "CacheWrite": "write cache",
    "ReadAt": "read cache", "WriteAt": "write cache", "DecomposeReduction": "start",
    "RFactor": "partial sum", "Blockize": "outer block", "AddUnitLoop": "unit loop",
    "ReIndex": "reindexed", "SampleComputeLocation": "place",
}  # fmt: skip


def _format_operand(value: object, names: Mapping[str, str]) -> str:
    if isinstance(value, str):
        return names.get(value, "the rest" if value == "None" else value)
    if isinstance(value, dict):
        return index_map.format_index_map(value)
    if isinstance(value, list):
        return f"[{', '.join(_format_operand(item, names) for item in value)}]"
    return json.dumps(value)


def _shorten_name(name: str) -> str:
    half = _LONG // 2 - 1
    return name if len(name) <= _LONG else f"{name[:half]}..{name[-half:]}"


def _describe_nothing(step: Instruction, operands: Sequence[str]) -> str:  # noqa: ARG001 - one signature
    """Return no line: the step is a lookup or a sampling instruction."""
    return ""


def _describe_other(step: Instruction, operands: Sequence[str]) -> str:
    return " ".join([step.kind, *operands, *map(str, step.attrs)])


def _describe_split(step: Instruction, operands: Sequence[str]) -> str:  # noqa: ARG001
    return f"split {operands[0]} into {' x '.join(operands[1:])}"


def _describe_cache_step(step: Instruction, operands: Sequence[str]) -> str:
    verb = {"CacheRead": "read", "ReadAt": "read"}.get(step.kind, "write")
    block, where = (
        (operands[1], f" at {operands[0]}") if step.kind.endswith("At") else (operands[0], "")
    )
    return f"{block}: {verb} buffer {step.attrs[0]} through {step.attrs[1]}{where}"


def _describe_layout(step: Instruction, operands: Sequence[str]) -> str:
    side = "written" if step.attrs[1] else "read"
    return f"{operands[0]}: layout of {side} buffer {step.attrs[0]}: {operands[1]}"


def _fill_sentence(text: str) -> Callable[[Instruction, Sequence[str]], str]:
    """Return a function that fills a sentence: {0} is the first input, {a} the first attribute."""

    def written(step: Instruction, operands: Sequence[str]) -> str:
        attrs = [_format_operand(value, {}) for value in step.attrs]
        return text.format(
            *operands, all=", ".join(operands), **dict(zip("abcd", attrs, strict=False))
        )

    return written


_WORDS: Final[Mapping[str, Callable[[Instruction, list[str]], str]]] = {
    **dict.fromkeys(
        ("GetSBlock", "GetLoops", "GetChildBlocks", "GetProducers", "GetConsumers",
         "GetOutputBlocks", "SampleCategorical", "SamplePerfectTile", "SampleComputeLocation",
         "EnterPostproc"), _describe_nothing,
    ),
    "Split": _describe_split,
    "Fuse": _fill_sentence("fuse {all}"),
    "Reorder": _fill_sentence("reorder {all}"),
    "AddUnitLoop": _fill_sentence("add a unit loop to {0}"),
    "Parallel": _fill_sentence("parallel {0}"),
    "Vectorize": _fill_sentence("vectorize {0}"),
    "Unroll": _fill_sentence("unroll {0}"),
    "Bind": _fill_sentence("bind {0} to {a}"),
    "CacheRead": _describe_cache_step,
    "CacheWrite": _describe_cache_step,
    "ReadAt": _describe_cache_step,
    "WriteAt": _describe_cache_step,
    "ReIndex": _fill_sentence("{0}: index buffer {a} as the loops do"),
    "ComputeAt": _fill_sentence("compute {0} at {1}"),
    "ReverseComputeAt": _fill_sentence("compute {0} at {1}"),
    "ComputeInline": _fill_sentence("inline {0}"),
    "ReverseComputeInline": _fill_sentence("inline {0} into its producer"),
    "DecomposeReduction": _fill_sentence("start the sum of {0} at {1}"),
    "RFactor": _fill_sentence("sum {0} in parts, axis {a}"),
    "PadEinsum": _fill_sentence("pad {0} to multiples of {a}"),
    "Blockize": _fill_sentence("make {0} a block"),
    "Tensorize": _fill_sentence("compute {0} by {a}"),
    "SetScope": _fill_sentence("{0}: buffer {a} in {b}"),
    "StorageAlign": _fill_sentence("{0}: align buffer {a}, axis {b}, by {c} + {d}"),
    "TransformLayout": _describe_layout,
    "TransformBlockLayout": _fill_sentence("{0}: loops {a}"),
    "Annotate": _fill_sentence("annotate {0}: {a} = {1}"),
    "Unannotate": _fill_sentence("take annotation {a} from {0}"),
}  # fmt: skip
