"""What a template is: a schedule for a family of functions, with named knobs.

This is AutoTVM's idea (Chen et al., "Learning to Optimize Tensor Programs", NeurIPS 2018) on TIR
schedules. A template is a module of `templates/` that defines the names of `Template`. Engine
`static` fills its knobs from hardware parameters, engine `autotvm` searches them. A record of a
schedule holds the template's name, its version and the values of the knobs; `make` builds the same
schedule from it again.

    found = template.match(sch)                  # None: another template's function
    for knobs in template.settings(found, hw):   # every setting; template.fill picks one
        template.apply(sch, found, knobs)
"""

import json
from collections.abc import Callable, Iterator, Mapping
from dataclasses import MISSING, asdict, fields
from typing import Any, Final, Protocol

import tvm
from tvm.s_tir import Schedule

from autopipe import foreign
from autopipe.compiler.dynamic_sizes.kernel_sizes import likely_instance
from autopipe.compiler.loops.zero_based_axes import begin_at_zero
from autopipe.config.problem import shown
from autopipe.errors import StageError
from autopipe.schedules.hardware import HardwareParams
from autopipe.schedules.one_thread import without_threads
from autopipe.traces.reading import THREADS


class Template(Protocol):
    """A module that schedules a family of functions.

    `Found` is a frozen dataclass of the template's own: all that the knobs depend on. A template
    may also define `estimate`, `(Found, Knobs, HardwareParams) -> float`: the time of a setting in
    any unit, which tells engine `autotvm` where to begin. One that defines `OPEN` as True serves
    functions with open sizes: `apply` then gets their schedule, and a `Found` at likely sizes.
    Where that has more in it than numbers, `at_every_size`, `(Schedule, Found) -> Found | None`,
    proves it on the schedule of the function for every size. One that defines `STATIC` as False
    serves nothing else. One that defines `gives_way`, `(Found) -> bool`, is asked last for
    functions of which that is true: others that serve them are faster.
    """

    @property
    def NAME(self) -> str:  # noqa: N802 - a constant of a module
        """Name in records and reports."""

    @property
    def VERSION(self) -> int:  # noqa: N802 - a constant of a module
        """Version of the template; raise it when the same knobs make another schedule."""

    @property
    def match(self) -> Any:  # noqa: ANN401 - `(Schedule) -> Found | None`
        """Return what the knobs depend on, or None if the function is for another template."""

    @property
    def settings(self) -> Any:  # noqa: ANN401 - `(Found, HardwareParams) -> Iterator[Knobs]`
        """Yield every possible setting of the knobs, a frozen dataclass of JSON values."""

    @property
    def fill(self) -> Any:  # noqa: ANN401 - `(Found, HardwareParams) -> Knobs`
        """Return the setting that is expected to be fast, without measuring."""

    @property
    def apply(self) -> Any:  # noqa: ANN401 - `(Schedule, Found, Knobs) -> None`
        """Schedule the function; raises ScheduleError where TVM refuses."""


def asked_last(template: Template, found: Any) -> bool:  # noqa: ANN401 - the template's own
    """Tell whether a template is asked last for a function."""
    told = getattr(template, "gives_way", None)
    return told is not None and bool(told(found))


def dump(template: Template, knobs: Any) -> str:  # noqa: ANN401 - the template's own dataclass
    """Return a setting as JSON text, which `make` reads after parsing."""
    named = {"template": template.NAME, "version": template.VERSION}
    return json.dumps({**named, "knobs": told(knobs)}, sort_keys=True)


def told(knobs: Any) -> dict[str, Any]:  # noqa: ANN401 - the template's own dataclass
    """Return the knobs as a record has them: those that are at a default are left out.

    So a knob that is added later, with the default that was always so, leaves older records true.
    """
    usual = {field.name: field.default for field in fields(knobs) if field.default is not MISSING}
    return {
        name: value
        for name, value in asdict(knobs).items()
        if name not in usual or value != usual[name]
    }


def serves_open(schedule: str) -> bool:
    """Tell whether a recorded schedule is of a template that serves functions with open sizes."""
    from autopipe.schedules.templates import templates  # they import this module

    try:
        document = foreign.parse(schedule)
    except ValueError:
        return False
    name = document.get("template") if isinstance(document, dict) else None
    return any(getattr(one, "OPEN", False) for one in templates() if name == one.NAME)


_SHOWN: Final = 400
"""Most characters of unknown knobs that an error message shows."""


def blank(module: tvm.IRModule) -> Schedule:
    """Return a schedule of a module to which nothing has been done."""
    return Schedule(module, debug_mask="none", error_render_level="none")


def fitted(module: tvm.IRModule, template: Template) -> tuple[Schedule, Any]:
    """Return an empty schedule of a function, and what the template's knobs depend on.

    None if the function is for another template. With open sizes, the knobs depend on those that
    are likely, and the schedule is of the function for every size.
    """
    sch, matched = fitting(module)
    return sch, matched(template)


def fitting(module: tvm.IRModule) -> tuple[Schedule, Callable[[Template], Any]]:
    """Return an empty schedule of a function, and what tells whether a template is for it.

    To match changes no schedule, so all templates are shown the same one. They count from zero, so
    that none is for a function with other axes.
    """
    if not begin_at_zero(module["main"]):
        return blank(module), lambda _: None
    instance = likely_instance(module)
    sch = blank(module)
    if instance is None:
        return sch, lambda one: one.match(sch) if getattr(one, "STATIC", True) else None
    likely = blank(instance)

    def matched(one: Template) -> Any:  # noqa: ANN401 - the template's own
        found = one.match(likely) if getattr(one, "OPEN", False) else None
        proved = getattr(one, "at_every_size", None)
        return found if found is None or proved is None else proved(sch, found)

    return sch, matched


def make(
    module: tvm.IRModule,
    template: Template,
    document: Mapping[str, Any],
    hardware: HardwareParams,
) -> Schedule:
    """Return the schedule that a record describes; `document` is the parsed record.

    Raises StageError if the template has changed or does not serve the function, and if the knobs
    are none of its settings here, or the number of threads is not 1.
    """
    if not hardware.backend.templates():
        raise StageError(f"template {template.NAME} is not for {hardware.backend}")
    if type(document.get("version")) is not int or document["version"] != template.VERSION:
        raise StageError(
            f"template {template.NAME} has version {template.VERSION},"
            f" the record has {shown(repr(document.get('version')))}"
        )
    sch, found = fitted(module, template)
    if found is None:
        raise StageError(f"template {template.NAME} does not serve this function")
    knobs = _setting(template.settings(found, hardware), document.get("knobs"))
    if knobs is None:
        raise StageError(
            f"template {template.NAME} has no setting"
            f" {shown(json.dumps(document.get('knobs')), _SHOWN)} here"
        )
    template.apply(sch, found, knobs)
    return sch if THREADS not in document else _alone(sch, document[THREADS])


def _alone(sch: Schedule, threads: object) -> Schedule:
    """Return a schedule on one thread."""
    if type(threads) is not int or threads != 1:
        raise StageError(
            f"a setting has all threads or 1, not {shown(json.dumps(threads), _SHOWN)}"
        )
    alone = without_threads(sch.mod)
    return blank(alone) if alone is not None else sch


def _setting(settings: Iterator[Any], wanted: object) -> Any:  # noqa: ANN401 - as above
    """Return the setting with exactly these values, or None; in JSON, 1 and true differ."""
    if not isinstance(wanted, dict):
        return None
    plain = {name: value for name, value in wanted.items() if not isinstance(value, list | dict)}
    text = json.dumps(wanted, sort_keys=True)
    for knobs in settings:
        # Comparing plain values first is fast; Python's 1 == True, so the text decides.
        likely = all(getattr(knobs, name, None) == value for name, value in plain.items())
        if likely and json.dumps(told(knobs), sort_keys=True) == text:
            return knobs
    return None
