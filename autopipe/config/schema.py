"""The grammar for editors (JSON Schema) and for people (a table of fields)."""

import json
from collections.abc import Iterator
from functools import cache
from typing import Any

from autopipe.config.builds import FIELD, SHARED, PipelineFile
from autopipe.config.frozen import Frozen
from autopipe.config.problem import Field
from autopipe.config.quantity import DURATION, duration
from autopipe.config.sentences import by_name, sentences

_Node = dict[str, Any]

_BOUNDS = {"minimum": "≥", "exclusiveMinimum": ">", "maximum": "≤", "exclusiveMaximum": "<"}
_TYPES = {
    "string": "text",
    "integer": "whole number",
    "number": "number",
    "boolean": "`true` or `false`",
    "null": "`null`",
}


@cache
def json_schema() -> dict[str, Any]:
    """Return the JSON Schema (draft 2020-12) of a pipeline file."""
    schema = PipelineFile.model_json_schema()
    sections = by_name()
    for name, section in {"PipelineFile": schema, **schema["$defs"]}.items():
        _describe(section, sections[name], schema["$defs"])
    _tidy(schema)
    schema["$defs"]["Build"] = _build(schema)
    named = schema["properties"][FIELD]["patternProperties"]
    named.update({pattern: {"$ref": "#/$defs/Build"} for pattern in named})
    return {"$schema": "https://json-schema.org/draft/2020-12/schema", **schema}


def _build(schema: _Node) -> _Node:
    """Return what one of `builds` may hold: fields of the file, none of them required."""
    fields = {name: node for name, node in schema["properties"].items() if name not in SHARED}
    defined = schema["$defs"]
    loose = {name: _loosen(node, defined) for name, node in fields.items()}
    return {"type": "object", "properties": loose, "additionalProperties": False}


def _loosen(node: _Node, defined: _Node) -> _Node:
    """Return a field whose sections require nothing; those in lists are written whole."""
    node = {key: value for key, value in node.items() if key != "required"}
    if "$ref" in node:
        name = node["$ref"].rpartition("/")[2]
        loose = _loosen(defined[name], defined)
        if loose == defined[name]:
            return node
        defined[f"{name}OfBuild"] = loose
        return {**node, "$ref": f"{node['$ref']}OfBuild"}
    if "anyOf" in node:
        node["anyOf"] = [_loosen(option, defined) for option in node["anyOf"]]
    for key in ("properties", "patternProperties"):
        if key in node:
            node[key] = {name: _loosen(inner, defined) for name, inner in node[key].items()}
    if isinstance(inner := node.get("additionalProperties"), dict):
        node["additionalProperties"] = _loosen(inner, defined)
    return node


def section_keys(at: Field) -> tuple[str, ...]:
    """Return the keys that the section at this path may have."""
    node = json_schema()
    for name in at:
        named = node.get("properties", {}).get(name)
        node = _inner(named or node.get("items") or _named(node) or {})
    return tuple(node.get("properties", ()))


def field_table() -> str:
    """Return a Markdown table of every field: path, type, default and sentence."""
    lines = ["| field | type | default | meaning |", "|---|---|---|---|"]
    for row in _rows(json_schema(), ""):
        cells = (cell.replace("|", r"\|") for cell in row)
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines) + "\n"


def _describe(node: _Node, section: type[Frozen], defined: _Node) -> None:
    """Put the sentence of each field where pydantic puts a description.

    A field that is a section needs none that says what the section says of itself.
    """
    told = sentences(section)
    for name, field in node["properties"].items():
        inner = defined.get(field.get("$ref", "").rpartition("/")[2], {})
        if name in told and told[name] != inner.get("description"):
            field["description"] = told[name]
        node["properties"][name] = dict(sorted(field.items()))


def _tidy(node: object) -> None:
    """Unfold wrapped sentences, and write defaults as a person writes them in YAML."""
    if isinstance(node, list):
        for item in node:
            _tidy(item)
    if not isinstance(node, dict):
        return
    for key, item in node.items():
        named = key in ("properties", "$defs")  # names of fields, whatever they spell
        _tidy(list(item.values()) if named else item)
    if isinstance(text := node.get("description"), str):
        node["description"] = " ".join(text.split())
    default = node.get("default")
    if isinstance(default, dict) and default:
        del node["default"]  # a section: its fields have their own
    elif isinstance(default, float) and _durations(node):
        node["default"] = duration(default)


def _durations(node: _Node) -> bool:
    return any(option.get("pattern") == DURATION for option in node.get("anyOf", [node]))


def _rows(section: _Node, prefix: str) -> Iterator[tuple[str, str, str, str]]:
    for name, node in section["properties"].items():
        inner = _inner(node)
        default = "required" if name in section.get("required", ()) else _default(node)
        sentence = node.get("description") or inner["description"]  # none if it is the section's
        yield f"`{prefix}{name}`", _type(node), default, sentence
        entry, step = _entry(inner)
        if "properties" in entry and name != FIELD:  # the same fields again
            yield from _rows(entry, f"{prefix}{name}.{step}")


def _named(node: _Node) -> _Node | None:
    """Return what a mapping of names holds; names may have to match a pattern."""
    patterns = node.get("patternProperties", {})
    found = next(iter(patterns.values()), node.get("additionalProperties"))
    return found if isinstance(found, dict) else None


def _default(node: _Node) -> str:
    if "default" not in node:
        return ""
    value = node["default"]
    return f"`{value if isinstance(value, str) else json.dumps(value)}`"


def _entry(node: _Node) -> tuple[_Node, str]:
    """Return the section that a field holds one or many of, and the step that leads to it."""
    if "items" in node:
        many = node["items"]  # what may be a text too is told where it is a section alone
        return ({} if "anyOf" in many else _inner(many)), "N."
    if named := _named(node):
        return _inner(named), "NAME."
    return node, ""


def _inner(node: _Node) -> _Node:
    """Return what a field is when it is not null, with the reference followed."""
    options = [option for option in node.get("anyOf", ()) if option.get("type") != "null"]
    node = options[0] if options else node
    if "$ref" not in node:
        return node
    referred: _Node = json_schema()["$defs"][node["$ref"].rpartition("/")[2]]
    return referred


def _type(node: _Node) -> str:
    if "anyOf" in node:
        return " or ".join(_type(option) for option in node["anyOf"])
    if "const" in node or "enum" in node:
        return " or ".join(f"`{value}`" for value in node.get("enum", [node.get("const")]))
    if "$ref" in node:
        return "section"
    if "items" in node:
        return f"list of {_type(node['items'])}"
    if named := _named(node):
        keys = _type({"type": "string", **node.get("propertyNames", {})})
        return f"mapping of {keys} to {_type(named)}"
    return _scalar_type(node)


def _scalar_type(node: _Node) -> str:
    if node.get("pattern") == DURATION:
        return "duration"
    bounds = ", ".join(f"{sign} {node[bound]}" for bound, sign in _BOUNDS.items() if bound in node)
    return f"{_TYPES[node['type']]} {bounds}".strip()
