"""Convert Pydantic's errors to sentences with the written value and the remedy."""

import json
import re
from collections.abc import Iterator

from pydantic import ValidationError
from pydantic_core import ErrorDetails

from autopipe.config.document import REFUSED, Document
from autopipe.config.frozen import Frozen
from autopipe.config.model import OPEN, OPEN_SHAPE
from autopipe.config.problem import Diagnostic, Field, Place, format_value, to_dotted_path
from autopipe.config.scalar import parse_plain_scalar
from autopipe.config.schema import list_section_keys
from autopipe.config.suggestion import suggest_name

_WANTED = {
    "model_type": "a section of fields",
    "dict_type": "a mapping",
    "tuple_type": "a list",
    "string_type": "text",
    "bool_type": "true or false",
    "int_type": "a whole number",
    "float_type": "a number",
}


def list_problems(document: Document, error: ValidationError) -> Iterator[Diagnostic]:
    """Yield each of Pydantic's errors, except for values that were refused before."""
    for detail in error.errors(include_url=False):
        if detail["input"] is not REFUSED:
            at = tuple(name for name in detail["loc"] if name != "[key]")
            yield Diagnostic(_find_place(document, at, detail), at, _format_message(at, detail))


def _find_place(document: Document, at: Field, detail: ErrorDetails) -> Place:
    about_key = detail["type"] in ("extra_forbidden", "missing") or "[key]" in detail["loc"]
    places = document.keys if about_key else document.values
    return next(places[at[:depth]] for depth in range(len(at), -1, -1) if at[:depth] in places)


def _format_message(at: Field, detail: ErrorDetails) -> str:
    kind, value, context = detail["type"], detail["input"], detail.get("ctx", {})
    if kind == "missing":
        return "is required, and missing"
    if kind == "extra_forbidden":
        return f"unknown key{_suggest_known(at[-1], list_section_keys(at[:-1]))}"
    if kind == "literal_error":
        expected = tuple(re.findall(r"'([^']*)'", context["expected"]))
        return f"{_format_value(value)} is not known{_suggest_known(value, expected)}"
    if kind in _WANTED:
        return f"{_format_value(value)} should be {_WANTED[kind]}{_suggest_correction(kind, value)}"
    if kind == OPEN_SHAPE:
        example = f"--set {to_dotted_path(at)}=[{context['known']}]"
        return f"leaves {context['axes']} open; write a size for each '{OPEN}', or add {example}"
    message = detail["msg"].removeprefix("Value error, ")
    message = re.sub(
        r"^(Input|String|Tuple|Value|Dictionary)\b", lambda _: _format_value(value), message
    )
    return message.replace(" after validation", "")


def _suggest_known(name: object, names: tuple[str, ...]) -> str:
    return suggest_name(name, names, f"known: {', '.join(names)}" if names else "")


def _suggest_correction(kind: str, value: object) -> str:
    if kind == "string_type" and isinstance(value, int | float):
        return "; put it in quotes"
    if kind == "int_type" and isinstance(value, float) and value.is_integer():
        return f"; write {format_value(int(value))}"
    if kind in ("int_type", "float_type", "bool_type") and isinstance(value, str):
        try:
            needs_no_quotes = not isinstance(parse_plain_scalar(value), str)
        except ValueError:
            needs_no_quotes = False
        return "; leave out the quotes" if needs_no_quotes else ""
    return ""


def _format_value(value: object) -> str:
    if isinstance(value, str):
        return f"'{format_value(value)}'"
    for kind, name in ((dict, "a mapping"), (tuple, "a list"), (Frozen, "this section")):
        if isinstance(value, kind):
            return name
    return format_value(json.dumps(value))
