"""What a build was made of and for: model, target, machine, versions, configuration."""

import json
from collections.abc import Mapping
from typing import Any

from autopipe.artifacts.signature import Port
from autopipe.report.html.elements import Content, Markup, block, element, lines
from autopipe.report.html.tables import TableRow, details, facts, table
from autopipe.report.html.view import BuildView


def write_origins(view: BuildView) -> Markup:
    """Return where the model came from, what the build takes, and what it is for."""
    report = view.report
    model = (report.configuration or {}).get("model")
    values: dict[str, Content] = {
        "Model": model.get("path") if isinstance(model, Mapping) else None,
        "Target": _words(report.target),
        "Machine": _words(report.machine),
        "Versions": _words(report.versions),
        "Sources": _words(report.sources),
        "Package sha256": report.package.sha256 if report.package else None,
    }
    return lines(facts(values), _ports(report.inputs, report.outputs), _configuration(view))


def _words(values: Mapping[str, Any] | None) -> Content:
    """Return values by name on one line; what is empty says nothing."""
    given = {name: value for name, value in (values or {}).items() if value not in (None, [], {})}
    return ", ".join(f"{name} {_word(given[name])}" for name in sorted(given))


def _word(value: object) -> str:
    if isinstance(value, Mapping):
        return f"({', '.join(f'{name} {_word(one)}' for name, one in sorted(value.items()))})"
    if isinstance(value, list | tuple):
        return " ".join(map(_word, value))
    return str(value)


def _ports(inputs: tuple[Port, ...], outputs: tuple[Port, ...]) -> Markup:
    named = [("input", port) for port in inputs] + [("output", port) for port in outputs]
    rows = [TableRow((kind, port.name, port.dtype, _shape(port))) for kind, port in named]
    header = ("", "name", "dtype", "shape")
    return table("Inputs and outputs", header, rows) if rows else Markup()


def _shape(port: Port) -> str:
    return " x ".join(port.words) or "scalar"


def _configuration(view: BuildView) -> Markup:
    if view.report.configuration is None:
        return Markup()
    text = json.dumps(view.report.configuration, indent=2, sort_keys=True, ensure_ascii=False)
    return element("div", details("Configuration", block(text.split("\n"), most=2000)))
