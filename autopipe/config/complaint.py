"""From Pydantic's errors to sentences that say what was written and what would be right."""

import json
import re
from collections.abc import Iterator

from pydantic import ValidationError
from pydantic_core import ErrorDetails

from autopipe.config.document import REFUSED, Document
from autopipe.config.frozen import Frozen
from autopipe.config.model import OPEN, OPEN_SHAPE
from autopipe.config.problem import Diagnostic, Field, Place, dotted, shown
from autopipe.config.scalar import resolve
from autopipe.config.schema import section_keys
from autopipe.config.suggestion import closest

_WANTED = {
    "model_type": "a section of fields",
    "dict_type": "a mapping",
    "tuple_type": "a list",
    "string_type": "text",
    "bool_type": "true or false",
    "int_type": "a whole number",
    "float_type": "a number",
}


def problems(document: Document, error: ValidationError) -> Iterator[Diagnostic]:
    """Yield each of Pydantic's errors, but not those about a value that was refused before."""
    for detail in error.errors(include_url=False):
        if detail["input"] is not REFUSED:
            at = tuple(name for name in detail["loc"] if name != "[key]")
            yield Diagnostic(_place(document, at, detail), at, _message(at, detail))


def _place(document: Document, at: Field, detail: ErrorDetails) -> Place:
    about_key = detail["type"] in ("extra_forbidden", "missing") or "[key]" in detail["loc"]
    places = document.keys if about_key else document.values
    return next(places[at[:depth]] for depth in range(len(at), -1, -1) if at[:depth] in places)


def _message(at: Field, detail: ErrorDetails) -> str:
    kind, value, context = detail["type"], detail["input"], detail.get("ctx", {})
    if kind == "missing":
        return "is required, and missing"
    if kind == "extra_forbidden":
        return f"unknown key{_instead(at[-1], section_keys(at[:-1]))}"
    if kind == "literal_error":
        expected = tuple(re.findall(r"'([^']*)'", context["expected"]))
        return f"{_said(value)} is not known{_instead(value, expected)}"
    if kind in _WANTED:
        return f"{_said(value)} should be {_WANTED[kind]}{_hint(kind, value)}"
    if kind == OPEN_SHAPE:
        example = f"--set {dotted(at)}=[{context['known']}]"
        return f"leaves {context['axes']} open; write a size for each '{OPEN}', or add {example}"
    message = detail["msg"].removeprefix("Value error, ")
    message = re.sub(r"^(Input|String|Tuple|Value|Dictionary)\b", lambda _: _said(value), message)
    return message.replace(" after validation", "")


def _instead(name: object, names: tuple[str, ...]) -> str:
    if meant := closest(name, names):
        return f"; did you mean `{meant}`?"
    return f"; known: {', '.join(names)}" if names else ""


def _hint(kind: str, value: object) -> str:
    if kind == "string_type" and isinstance(value, int | float):
        return "; put it in quotes"
    if kind == "int_type" and isinstance(value, float) and value.is_integer():
        return f"; write {shown(int(value))}"
    if kind in ("int_type", "float_type", "bool_type") and isinstance(value, str):
        try:
            quoted = not isinstance(resolve(value), str)
        except ValueError:
            quoted = False
        return "; leave out the quotes" if quoted else ""
    return ""


def _said(value: object) -> str:
    if isinstance(value, str):
        return f"'{shown(value)}'"
    for kind, name in ((dict, "a mapping"), (tuple, "a list"), (Frozen, "this section")):
        if isinstance(value, kind):
            return name
    return shown(json.dumps(value))
