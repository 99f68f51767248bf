"""Generate the grammar for editors (JSON Schema) and for people (a table of fields)."""

import json
from collections.abc import Iterator
from functools import cache
from typing import Any

from autopipe.config.builds import FIELD, SHARED, Builds
from autopipe.config.frozen import Frozen
from autopipe.config.pipeline import Pipeline
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


class PipelineFile(Builds, Pipeline, frozen=True):
    """A whole pipeline file, version 1."""


@cache
def build_json_schema() -> dict[str, Any]:
    """Build the JSON Schema (draft 2020-12) of a pipeline file."""
    schema = PipelineFile.model_json_schema()
    sections = list_sections()
    for name, section in {"PipelineFile": schema, **schema["$defs"]}.items():
        _add_descriptions(section, sections[name], schema["$defs"])
    _tidy_schema(schema)
    schema["$defs"]["Build"] = _build_schema_of_build(schema)
    build_patterns = schema["properties"][FIELD]["patternProperties"]
    build_patterns.update({pattern: {"$ref": "#/$defs/Build"} for pattern in build_patterns})
    return {"$schema": "https://json-schema.org/draft/2020-12/schema", **schema}


def _build_schema_of_build(schema: _Node) -> _Node:
    """Build the schema of one of `builds`: fields of the file, none of them required."""
    fields = {name: node for name, node in schema["properties"].items() if name not in SHARED}
    definitions = schema["$defs"]
    loose = {name: _remove_required(node, definitions) for name, node in fields.items()}
    return {"type": "object", "properties": loose, "additionalProperties": False}


def _remove_required(node: _Node, definitions: _Node) -> _Node:
    """Remove `required` from the sections of a field, except from those in lists."""
    node = {key: value for key, value in node.items() if key != "required"}
    if "$ref" in node:
        name = node["$ref"].rpartition("/")[2]
        loose = _remove_required(definitions[name], definitions)
        if loose == definitions[name]:
            return node
        definitions[f"{name}OfBuild"] = loose
        return {**node, "$ref": f"{node['$ref']}OfBuild"}
    if "anyOf" in node:
        node["anyOf"] = [_remove_required(option, definitions) for option in node["anyOf"]]
    for key in ("properties", "patternProperties"):
        if key in node:
            node[key] = {
                name: _remove_required(inner, definitions) for name, inner in node[key].items()
            }
    if isinstance(inner := node.get("additionalProperties"), dict):
        node["additionalProperties"] = _remove_required(inner, definitions)
    return node


def list_section_keys(at: Field) -> tuple[str, ...]:
    """List the valid keys of the section at a path."""
    node = build_json_schema()
    for name in at:
        field_schema = node.get("properties", {}).get(name)
        node = _resolve_reference(
            field_schema or node.get("items") or _find_mapping_values(node) or {}
        )
    return tuple(node.get("properties", ()))


def format_field_table() -> str:
    """Format a Markdown table of every field: path, type, default and sentence."""
    lines = ["| field | type | default | meaning |", "|---|---|---|---|"]
    for row in _list_rows(build_json_schema(), ""):
        cells = (cell.replace("|", r"\|") for cell in row)
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines) + "\n"


def _add_descriptions(node: _Node, section: type[Frozen], definitions: _Node) -> None:
    """Set the description of each field to its sentence.

    A field that is a section needs no copy of the section's own description.
    """
    sentences = read_field_docs(section)
    for name, field in node["properties"].items():
        inner = definitions.get(field.get("$ref", "").rpartition("/")[2], {})
        if name in sentences and sentences[name] != inner.get("description"):
            field["description"] = sentences[name]
        node["properties"][name] = dict(sorted(field.items()))


def _tidy_schema(node: object) -> None:
    """Unwrap sentences, and format defaults as in YAML."""
    if isinstance(node, list):
        for item in node:
            _tidy_schema(item)
    if not isinstance(node, dict):
        return
    for key, item in node.items():
        is_field_map = key in ("properties", "$defs")  # keys here are names of fields, not keywords
        _tidy_schema(list(item.values()) if is_field_map else item)
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
    """Return the schema of a mapping's values; its names may have to match a pattern."""
    patterns = node.get("patternProperties", {})
    value_schema = next(iter(patterns.values()), node.get("additionalProperties"))
    return value_schema if isinstance(value_schema, dict) else None


def _format_default(node: _Node) -> str:
    if "default" not in node:
        return ""
    value = node["default"]
    return f"`{value if isinstance(value, str) else json.dumps(value)}`"


def _find_entry_section(node: _Node) -> tuple[_Node, str]:
    """Return the section in a field, a list or a mapping, with the step of the path to it."""
    if "items" in node:
        item_schema = node[
            "items"
        ]  # entries that may be text are documented where they are a section only
        return ({} if "anyOf" in item_schema else _resolve_reference(item_schema)), "N."
    if value_schema := _find_mapping_values(node):
        return _resolve_reference(value_schema), "NAME."
    return node, ""


def _resolve_reference(node: _Node) -> _Node:
    """Return the non-null schema of a field with its reference resolved."""
    options = [option for option in node.get("anyOf", ()) if option.get("type") != "null"]
    node = options[0] if options else node
    if "$ref" not in node:
        return node
    section: _Node = build_json_schema()["$defs"][node["$ref"].rpartition("/")[2]]
    return section


def _format_type(node: _Node) -> str:
    if "anyOf" in node:
        return " or ".join(_format_type(option) for option in node["anyOf"])
    if "const" in node or "enum" in node:
        return " or ".join(f"`{value}`" for value in node.get("enum", [node.get("const")]))
    if "$ref" in node:
        return "section"
    if "items" in node:
        return f"list of {_format_type(node['items'])}"
    if value_schema := _find_mapping_values(node):
        keys = _format_type({"type": "string", **node.get("propertyNames", {})})
        return f"mapping of {keys} to {_format_type(value_schema)}"
    return _format_scalar_type(node)


def _format_scalar_type(node: _Node) -> str:
    if node.get("pattern") == DURATION:
        return "duration"
    bounds = ", ".join(f"{sign} {node[bound]}" for bound, sign in _BOUNDS.items() if bound in node)
    return f"{_TYPES[node['type']]} {bounds}".strip()
