"""The section on the origin of a build: model, target, machine, versions, configuration."""

import json
from collections.abc import Mapping
from typing import Any

from autopipe.artifacts.signature import Port
from autopipe.report.html.elements import Content, Markup, join_lines, make_element, make_text_block
from autopipe.report.html.tables import TableRow, make_details, make_fact_list, make_table
from autopipe.report.html.view import BuildView


def write_origins(view: BuildView) -> Markup:
    """Write the sources, the signature and the configuration of a build."""
    report = view.report
    model = (report.configuration or {}).get("model")
    values: dict[str, Content] = {
        "Model": model.get("path") if isinstance(model, Mapping) else None,
        "Target": _format_values(report.target),
        "Machine": _format_values(report.machine),
        "Versions": _format_values(report.versions),
        "Sources": _format_values(report.sources),
        "Package sha256": report.package.sha256 if report.package else None,
    }
    return join_lines(
        make_fact_list(values),
        _build_port_table(report.inputs, report.outputs),
        _build_configuration(view),
    )


def _format_values(values: Mapping[str, Any] | None) -> Content:
    """Format values by name on one line; empty ones are omitted."""
    nonempty = {
        name: value for name, value in (values or {}).items() if value not in (None, [], {})
    }
    return ", ".join(f"{name} {_format_value(nonempty[name])}" for name in sorted(nonempty))


def _format_value(value: object) -> str:
    if isinstance(value, Mapping):
        return (
            f"({', '.join(f'{name} {_format_value(one)}' for name, one in sorted(value.items()))})"
        )
    if isinstance(value, list | tuple):
        return " ".join(map(_format_value, value))
    return str(value)


def _build_port_table(inputs: tuple[Port, ...], outputs: tuple[Port, ...]) -> Markup:
    ports = [("input", port) for port in inputs] + [("output", port) for port in outputs]
    rows = [TableRow((kind, port.name, port.dtype, _format_shape(port))) for kind, port in ports]
    header = ("", "name", "dtype", "shape")
    return make_table("Inputs and outputs", header, rows) if rows else Markup()


def _format_shape(port: Port) -> str:
    return " x ".join(port.words) or "scalar"


def _build_configuration(view: BuildView) -> Markup:
    if view.report.configuration is None:
        return Markup()
    text = json.dumps(view.report.configuration, indent=2, sort_keys=True, ensure_ascii=False)
    return make_element(
        "div", make_details("Configuration", make_text_block(text.split("\n"), most=2000))
    )
