"""The grammar for editors (JSON Schema) and for people (a table of fields)."""

import json
from collections.abc import Iterator
from functools import cache
from typing import Any

from autopipe.config.builds import FIELD, SHARED, PipelineFile
from autopipe.config.frozen import Frozen
from autopipe.config.problem import Field
from autopipe.config.quantity import DURATION, format_duration
from autopipe.config.sentences import list_sections, read_field_docs

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
def build_json_schema() -> dict[str, Any]:
    """Return the JSON Schema (draft 2020-12) of a pipeline file."""
    schema = PipelineFile.model_json_schema()
    sections = list_sections()
    for name, section in {"PipelineFile": schema, **schema["$defs"]}.items():
        _add_descriptions(section, sections[name], schema["$defs"])
    _tidy_schema(schema)
    schema["$defs"]["Build"] = _build_schema_of_build(schema)
    named = schema["properties"][FIELD]["patternProperties"]
    named.update({pattern: {"$ref": "#/$defs/Build"} for pattern in named})
    return {"$schema": "https://json-schema.org/draft/2020-12/schema", **schema}


def _build_schema_of_build(schema: _Node) -> _Node:
    """Return what one of `builds` may hold: fields of the file, none of them required."""
    fields = {name: node for name, node in schema["properties"].items() if name not in SHARED}
    defined = schema["$defs"]
    loose = {name: _remove_required(node, defined) for name, node in fields.items()}
    return {"type": "object", "properties": loose, "additionalProperties": False}


def _remove_required(node: _Node, defined: _Node) -> _Node:
    """Return a field whose sections require nothing; those in lists are written whole."""
    node = {key: value for key, value in node.items() if key != "required"}
    if "$ref" in node:
        name = node["$ref"].rpartition("/")[2]
        loose = _remove_required(defined[name], defined)
        if loose == defined[name]:
            return node
        defined[f"{name}OfBuild"] = loose
        return {**node, "$ref": f"{node['$ref']}OfBuild"}
    if "anyOf" in node:
        node["anyOf"] = [_remove_required(option, defined) for option in node["anyOf"]]
    for key in ("properties", "patternProperties"):
        if key in node:
            node[key] = {
                name: _remove_required(inner, defined) for name, inner in node[key].items()
            }
    if isinstance(inner := node.get("additionalProperties"), dict):
        node["additionalProperties"] = _remove_required(inner, defined)
    return node


def list_section_keys(at: Field) -> tuple[str, ...]:
    """Return the keys that the section at this path may have."""
    node = build_json_schema()
    for name in at:
        named = node.get("properties", {}).get(name)
        node = _resolve_reference(named or node.get("items") or _find_mapping_values(node) or {})
    return tuple(node.get("properties", ()))


def format_field_table() -> str:
    """Return a Markdown table of every field: path, type, default and sentence."""
    lines = ["| field | type | default | meaning |", "|---|---|---|---|"]
    for row in _list_rows(build_json_schema(), ""):
        cells = (cell.replace("|", r"\|") for cell in row)
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines) + "\n"


def _add_descriptions(node: _Node, section: type[Frozen], defined: _Node) -> None:
    """Put the sentence of each field where pydantic puts a description.

    A field that is a section needs none that says what the section says of itself.
    """
    told = read_field_docs(section)
    for name, field in node["properties"].items():
        inner = defined.get(field.get("$ref", "").rpartition("/")[2], {})
        if name in told and told[name] != inner.get("description"):
            field["description"] = told[name]
        node["properties"][name] = dict(sorted(field.items()))


def _tidy_schema(node: object) -> None:
    """Unfold wrapped sentences, and write defaults as a person writes them in YAML."""
    if isinstance(node, list):
        for item in node:
            _tidy_schema(item)
    if not isinstance(node, dict):
        return
    for key, item in node.items():
        named = key in ("properties", "$defs")  # names of fields, whatever they spell
        _tidy_schema(list(item.values()) if named else item)
    if isinstance(text := node.get("description"), str):
        node["description"] = " ".join(text.split())
    default = node.get("default")
    if isinstance(default, dict) and default:
        del node["default"]  # a section: its fields have their own
    elif isinstance(default, float) and _has_durations(node):
        node["default"] = format_duration(default)


def _has_durations(node: _Node) -> bool:
    return any(option.get("pattern") == DURATION for option in node.get("anyOf", [node]))


def _list_rows(section: _Node, prefix: str) -> Iterator[tuple[str, str, str, str]]:
    for name, node in section["properties"].items():
        inner = _resolve_reference(node)
        default = "required" if name in section.get("required", ()) else _format_default(node)
        sentence = node.get("description") or inner["description"]  # none if it is the section's
        yield f"`{prefix}{name}`", _format_type(node), default, sentence
        entry, step = _find_entry_section(inner)
        if "properties" in entry and name != FIELD:  # the same fields again
            yield from _list_rows(entry, f"{prefix}{name}.{step}")


def _find_mapping_values(node: _Node) -> _Node | None:
    """Return what a mapping of names holds; names may have to match a pattern."""
    patterns = node.get("patternProperties", {})
    found = next(iter(patterns.values()), node.get("additionalProperties"))
    return found if isinstance(found, dict) else None


def _format_default(node: _Node) -> str:
    if "default" not in node:
        return ""
    value = node["default"]
    return f"`{value if isinstance(value, str) else json.dumps(value)}`"


def _find_entry_section(node: _Node) -> tuple[_Node, str]:
    """Return the section that a field holds one or many of, and the step that leads to it."""
    if "items" in node:
        many = node["items"]  # what may be a text too is told where it is a section alone
        return ({} if "anyOf" in many else _resolve_reference(many)), "N."
    if named := _find_mapping_values(node):
        return _resolve_reference(named), "NAME."
    return node, ""


def _resolve_reference(node: _Node) -> _Node:
    """Return what a field is when it is not null, with the reference followed."""
    options = [option for option in node.get("anyOf", ()) if option.get("type") != "null"]
    node = options[0] if options else node
    if "$ref" not in node:
        return node
    referred: _Node = build_json_schema()["$defs"][node["$ref"].rpartition("/")[2]]
    return referred


def _format_type(node: _Node) -> str:
    if "anyOf" in node:
        return " or ".join(_format_type(option) for option in node["anyOf"])
    if "const" in node or "enum" in node:
        return " or ".join(f"`{value}`" for value in node.get("enum", [node.get("const")]))
    if "$ref" in node:
        return "section"
    if "items" in node:
        return f"list of {_format_type(node['items'])}"
    if named := _find_mapping_values(node):
        keys = _format_type({"type": "string", **node.get("propertyNames", {})})
        return f"mapping of {keys} to {_format_type(named)}"
    return _format_scalar_type(node)


def _format_scalar_type(node: _Node) -> str:
    if node.get("pattern") == DURATION:
        return "duration"
    bounds = ", ".join(f"{sign} {node[bound]}" for bound, sign in _BOUNDS.items() if bound in node)
    return f"{_TYPES[node['type']]} {bounds}".strip()
