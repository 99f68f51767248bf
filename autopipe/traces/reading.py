"""Parse the JSON of a trace into checked values, or refuse it. TVM gets only these values.

The JSON is not trusted: it may be from a lock, an export, a remote, a database, or the store. An
annotation in a trace can contain source text, which TVM's code generators would compile.
"""

import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final, NamedTuple

from autopipe import foreign
from autopipe.config.problem import format_value
from autopipe.errors import StageError
from autopipe.traces import index_map
from autopipe.traces.kinds import ANNOTATIONS, INDEX_MAP, KINDS, InstructionKind
from autopipe.traces.values import Check, allow_integer, allow_text, block, loop, number

LARGEST: Final = 1 << 20
"""Maximum characters of a trace; the longest from searches have a few ten thousand."""
MOST: Final = 4096
"""Maximum instructions of a trace; the longest from searches have a few hundred."""
_NONE: Final = "it is not kind, inputs, attributes and outputs"
_TOLD: Final = 60
_KNOBS: Final = 256
_DEEPEST: Final = 6
"""Maximum nesting of knobs; those of template `sequence` contain those of other templates."""
_BIGGEST: Final = 1 << 62
_NUMBER: Final = allow_integer(-_BIGGEST, _BIGGEST)
_NAME: Final = allow_text(r"[\w.+-]{0,100}( \d[\w.+!-]{0,99}| of TVM)?")
"""A name, or the name and version of a library, as in library calls."""
_NAMES: Final = {"b": block, "l": loop, "v": number}
_INDEX: Final = allow_text(r"[blv]\d{1,6}")


class Forbidden(StageError):  # noqa: N818 - says what it is
    """The schedule of a record has an instruction that no schedule needs. It may be an attack."""


class Instruction(NamedTuple):
    """One step of a trace, whose values have passed the allow-list."""

    kind: str
    inputs: tuple[Any, ...]
    attrs: tuple[Any, ...]
    outputs: tuple[str, ...]
    decision: Any = None
    """The decision of a sampling instruction; None for others."""


@dataclass(frozen=True, slots=True)
class Trace:
    """The steps of a schedule."""

    instructions: tuple[Instruction, ...]

    def json(self) -> list[Any]:
        """Serialize the checked values as the JSON that TVM reads."""
        steps = [
            [
                instruction.kind,
                [_to_trace_value(value) for value in instruction.inputs],
                [_to_trace_value(value) for value in instruction.attrs],
                list(instruction.outputs),
            ]
            for instruction in self.instructions
        ]
        decisions = [
            [place, instruction.decision]
            for place, instruction in enumerate(self.instructions)
            if instruction.decision is not None
        ]
        return [steps, decisions]


def read_trace(text: str) -> Trace:
    """Read a trace. Raises Forbidden, which names the instruction, counted from 1."""
    steps, decision_entries = _split_trace(_parse_json(text))
    decisions = _index_decisions(decision_entries, len(steps))
    defined_names: set[str] = set()
    return Trace(
        tuple(
            _read_instruction(number, step, decisions.get(number - 1), defined_names)
            for number, step in enumerate(steps, 1)
        )
    )


def check_schedule(schedule: str) -> None:
    """Raise Forbidden unless the schedule of a record is a trace, or a setting of a template.

    It is not checked here whether that template exists and has that setting.
    """
    value = _parse_json(schedule)
    if isinstance(value, dict):
        _check_setting(value)
    else:
        read_trace(schedule)


def _parse_json(text: str) -> object:
    if len(text) > LARGEST:
        raise Forbidden(f"a schedule of {len(text):,} characters")
    try:
        return foreign.parse(text)
    except ValueError as error:
        raise Forbidden(f"the schedule is no JSON: {format_value(error, _TOLD)}") from None


def _check_setting(value: dict[str, Any]) -> None:
    """Refuse a setting with other fields, or with values that are neither numbers nor names."""
    if value.keys() != {"template", "version", "knobs"}:
        raise Forbidden("a schedule that is neither a trace nor knobs of a template")
    if not all(_is_plain_value(knob, 0) for knob in value.values()):
        raise Forbidden(
            f"template {format_value(value['template'])}: its knobs are no numbers and names"
        )


def _is_plain_value(value: object, depth: int) -> bool:
    if isinstance(value, dict | list):
        inner = value if isinstance(value, list) else [*value.keys(), *value.values()]
        return (
            len(inner) <= _KNOBS
            and depth < _DEEPEST
            and all(_is_plain_value(v, depth + 1) for v in inner)
        )
    if isinstance(value, str):
        return _NAME(value)
    return value is None or isinstance(value, bool | float) or _NUMBER(value)


def _split_trace(value: object) -> tuple[list[Any], list[Any]]:
    parts = value if isinstance(value, list) else []
    if len(parts) != 2 or not all(isinstance(part, list) for part in parts):  # noqa: PLR2004
        raise Forbidden("no trace: it is not a list of instructions and one of decisions")
    steps, decisions = parts
    if len(steps) > MOST:
        raise Forbidden(f"a trace of {len(steps)} instructions; more than {MOST} are none")
    return steps, decisions


def _index_decisions(entries: Sequence[Any], count: int) -> dict[int, Any]:
    """Return the decisions by instruction. The indices are checked, because TVM does not."""
    decisions: dict[int, Any] = {}
    for entry in entries:
        place = entry[0] if isinstance(entry, list) and len(entry) == 2 else None  # noqa: PLR2004
        if type(place) is not int or not 0 <= place < count or place in decisions:
            raise Forbidden(f"no trace: decision {format_value(entry, _TOLD)} is of no instruction")
        decisions[place] = entry[1]
    return decisions


def _read_instruction(
    number: int, step: object, decision: object, defined_names: set[str]
) -> Instruction:
    try:
        return _parse_instruction(step, decision, defined_names)
    except ValueError as error:
        kind = f", {format_value(step[0], _TOLD)}" if isinstance(step, list) and step else ""
        raise Forbidden(f"instruction {number}{kind}: {error}") from None


def _parse_instruction(step: object, decision: object, defined_names: set[str]) -> Instruction:
    """Check an instruction and parse its index maps. Raises ValueError."""
    if not isinstance(step, list) or len(step) != 4 or not isinstance(step[0], str):  # noqa: PLR2004
        raise ValueError(_NONE)
    name, inputs, attrs, outputs = step
    kind = KINDS.get(name)
    if kind is None:
        raise ValueError("none of the kinds that schedules are made of")
    if not isinstance(inputs, list) or not isinstance(attrs, list) or not isinstance(outputs, list):
        raise ValueError(_NONE)  # noqa: TRY004 - as the others
    checks = kind.inputs
    if kind.many and len(inputs) > len(checks):
        checks = (*checks, *[checks[-1]] * (len(inputs) - len(checks)))
    role = "key" if name.endswith("nnotate") else "attribute"
    values = _check_values("input", inputs, checks), _check_values(role, attrs, kind.attrs)
    if name == "Annotate":
        _check_annotation(attrs[0], inputs[1])
    if name == "TransformBlockLayout" and index_map.has_inverse(values[1][0]):
        raise ValueError("an index map with an inverse")
    _check_inputs_defined(inputs, defined_names)
    _check_decision(kind, attrs, decision)
    _define_outputs(outputs, kind.outputs, defined_names)
    return Instruction(name, *values, tuple(outputs), decision)


def _check_values(role: str, values: Sequence[Any], checks: Sequence[Check]) -> tuple[Any, ...]:
    if len(values) != len(checks):
        raise ValueError(f"{len(values)} {role}s where it has {len(checks)}")
    for place, check in enumerate(checks):
        if not check(values[place]):
            number = f" {place + 1}" if len(checks) > 1 else ""
            raise ValueError(f"{role}{number} may not be {_format_value(values[place])}")
    if INDEX_MAP in checks:
        pairs = zip(values, checks, strict=True)
        return tuple(
            index_map.read_index_map(v) if allowed is INDEX_MAP else v for v, allowed in pairs
        )
    return tuple(values)


def _check_annotation(key: str, value: object) -> None:
    if not ANNOTATIONS[key](value):
        raise ValueError(f"{key} may not be {_format_value(value)}")


def _check_inputs_defined(inputs: Sequence[Any], defined_names: set[str]) -> None:
    for value in inputs:
        for item in value if isinstance(value, list) else (value,):
            if isinstance(item, str) and item not in defined_names and _INDEX(item):
                raise ValueError(f"{item} is not there yet")


def _check_decision(kind: InstructionKind, attrs: Sequence[Any], decision: object) -> None:
    """Refuse a random step without a decision, and a decision for a step that is not random."""
    if kind.decision is None:
        if decision is not None:
            raise ValueError("it decides nothing, and has a decision")
        return
    if not kind.decision(decision):
        raise ValueError(f"its decision may not be {_format_value(decision)}")
    match attrs:
        case [list(choices), list(shares)]:
            if len(choices) != len(shares) or decision >= len(choices):  # type: ignore[operator]
                raise ValueError("its decision is none of its choices")
        case [int(count), _]:
            if len(decision) != count:  # type: ignore[arg-type]
                raise ValueError(f"its decision is not of {count} parts")


def _define_outputs(values: Sequence[object], outputs: str, defined_names: set[str]) -> None:
    """Add the names that a step defines to the known names. Raises ValueError."""
    if not outputs.endswith("*") and len(values) != len(outputs):
        raise ValueError(f"{len(values)} outputs where it has {len(outputs)}")
    for value in values:
        if not _NAMES[outputs[0]](value) or value in defined_names:
            raise ValueError(f"an output may not be {_format_value(value)}")
        defined_names.add(str(value))


def _format_value(value: object) -> str:
    """Format a value for a message, truncated."""
    if isinstance(value, str):
        return format_value(json.dumps(value[: 2 * _TOLD]), _TOLD)
    if isinstance(value, int) and abs(value) > _BIGGEST:
        return "so large a number"
    if isinstance(value, list | dict):
        return "a list" if isinstance(value, list) else "an object"
    return json.dumps(value)


def _to_trace_value(value: object) -> object:
    """Convert a value to its form in a trace, where an index map is text."""
    return json.dumps(value) if isinstance(value, dict) else value
