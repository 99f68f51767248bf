"""Entry points of child processes: typed functions that import their implementation when called.

A child receives the name of a function and imports it by that name (`Zygote.call`). Its parent
passes the function itself, so that argument and result have types; it imports neither TVM nor
other dependencies of the implementation.
"""

from collections.abc import Mapping
from typing import Any

from autopipe.pipeline.events import Emit


def write_scripts(argument: Mapping[str, Any], emit: Emit) -> dict[str, dict[str, Any]]:
    """Format workloads as TVMScript, by name, as `compiler.script` does."""
    from autopipe.compiler.tvmscript_text import format_workloads

    return format_workloads(argument, emit)


def list_offers(argument: Mapping[str, Any], emit: Emit) -> dict[str, str | None]:
    """Return the template of each implementation of a task, as `schedules.offers` does."""
    from autopipe.schedules.offers import find_templates

    return find_templates(argument, emit)


def tune_alone(argument: Mapping[str, Any], emit: Emit) -> dict[str, Any]:
    """Tune one function and return its winner, as `tuning.alone` does."""
    from autopipe.tuning.alone import tune_workload

    return tune_workload(argument, emit)


def measure_machine(argument: Mapping[str, Any], emit: Emit) -> dict[str, Any]:
    """Return the numbers of this machine, as `measure.measure_machine` does."""
    from autopipe.measure.measure_machine import measure_numbers

    return measure_numbers(argument, emit)
