"""Apply `--set a.b.c=value`: the command line overrides the file."""

from collections.abc import Mapping, Sequence
from typing import Final

from autopipe.config.document import REFUSED, Document, parse_document
from autopipe.config.gates import SHARES
from autopipe.config.problem import Diagnostic, Field, Place, format_value
from autopipe.config.scalar import check_quoted_scalar

_GATED: Final[Mapping[Field, Sequence[str]]] = {
    ("tuning",): tuple(SHARES),
    ("benchmark",): ("max_slowdown", "regression"),
}
"""The gates that each stage checks."""


def apply_override(document: Document, setting: str) -> Document:
    """Apply one `path=value` to a document; errors are added to its problems.

    The value is YAML under the same rules as the file, such as `64`, `null` or `[ansor]`. Switching
    off a stage removes the gates that it would check.
    """
    path, equals, text = setting.partition("=")
    option = f"--set {format_value(path or setting)}"
    try:
        at = _resolve_field(document.value, _split_field_path(path, equals))
        return set_field(document, at, parse_document(text, at, option), Place(option, 1, 1))
    except ValueError as error:
        problem = Diagnostic(Place(option, 1, 1), (), str(error))
        return document._replace(problems=[*document.problems, problem])


def set_field(document: Document, at: Field, part: Document, place: Place) -> Document:
    """Replace the value of a field in a document; `place` is that of sections created for it.

    Raises ValueError where the parent of the field is no section.
    """
    value = _replace_field(document.value, at, part.value)
    if part.value is None and at in _GATED:
        value = _remove_gates(value, _GATED[at])
    section_places = {at[:depth]: place for depth in range(1, len(at))}
    return Document(
        value,
        keys=section_places | _remove_places(document.keys, at) | part.keys,
        values=section_places | _remove_places(document.values, at) | part.values,
        problems=document.problems + part.problems,
    )


def _remove_gates(value: object, names: Sequence[str]) -> object:
    """Remove the gates that only a switched-off stage could check."""
    gates = value.get("gates") if isinstance(value, dict) else None
    if not isinstance(value, dict) or not isinstance(gates, dict):
        return value
    remaining = {name: limit for name, limit in gates.items() if name not in names}
    return {**value, "gates": remaining}


def _split_field_path(path: str, equals: str) -> list[str]:
    names = check_quoted_scalar(path).split(".")
    if not equals or not all(names):
        raise ValueError("write it as --set section.field=value")
    return names


def _resolve_field(value: object, names: Sequence[str]) -> Field:
    """Resolve dotted names to a path in the document; keys may contain dots."""
    at: list[str | int] = []
    while names:
        if isinstance(value, tuple):
            length, index = 1, _parse_index(value, names[0])
            at.append(index)
            value = value[index]
        else:
            mapping = value if isinstance(value, dict) else {}
            cuts = range(len(names), 0, -1)
            length = next((cut for cut in cuts if ".".join(names[:cut]) in mapping), 1)
            at.append(".".join(names[:length]))
            value = mapping.get(at[-1])
        names = names[length:]
    return tuple(at)


def _parse_index(items: tuple[object, ...], name: str) -> int:
    if name.isdecimal() and len(name) <= len(str(len(items))) and int(name) < len(items):
        return int(name)
    positions = f"0 to {len(items) - 1}" if items else "none"
    raise ValueError(f"{format_value(name)} is not the position of an entry; there is {positions}")


def _replace_field(value: object, at: Field, new: object) -> object:
    if not at:
        return new
    if value is REFUSED:
        return value
    if isinstance(value, tuple):
        items = list(value)
        items[int(at[0])] = _replace_field(items[int(at[0])], at[1:], new)
        return tuple(items)
    if value is not None and not isinstance(value, dict):
        raise ValueError(f"{format_value(at[0])} is not in a section, but in {format_value(value)}")
    section = value or {}
    return {**section, at[0]: _replace_field(section.get(at[0]), at[1:], new)}


def _remove_places(places: dict[Field, Place], at: Field) -> dict[Field, Place]:
    return {field: place for field, place in places.items() if field[: len(at)] != at}
