"""What a template is: a schedule for a family of functions, with named knobs.

This is AutoTVM's idea (Chen et al., "Learning to Optimize Tensor Programs", NeurIPS 2018) on TIR
schedules. A template is an instance of a class of `templates/` that derives from `Template`. Engine
`static` fills its knobs from hardware parameters, engine `autotvm` searches them. A record of a
schedule holds the template's name, its version and the values of the knobs; `replay_setting` builds
the same schedule from it again.

    match = template.match(sch)                  # None: another template's function
    for knobs in template.settings(match, hw):   # every setting; template.fill picks one
        template.apply(sch, match, knobs)
"""

import json
from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, fields, is_dataclass
from typing import TYPE_CHECKING, Any, ClassVar, Final, Generic, TypeVar

import tvm
from tvm.s_tir import Schedule, ScheduleError

from autopipe import foreign
from autopipe.compiler.dynamic_sizes.kernel_sizes import bind_likely_sizes
from autopipe.compiler.loops.zero_based_axes import begin_at_zero
from autopipe.config.problem import format_value
from autopipe.errors import StageError
from autopipe.schedules.hardware import HardwareParams
from autopipe.schedules.primitives import make_schedule

if TYPE_CHECKING:
    from _typeshed import DataclassInstance

Match = TypeVar("Match")
"""What the knobs of a template depend on: a frozen dataclass. It names blocks and holds no random
variables, as `apply` gets another schedule than `match`."""

Knobs = TypeVar("Knobs", bound="DataclassInstance")
"""A setting of a template: a frozen dataclass of JSON values."""


class Template(ABC, Generic[Match, Knobs]):
    """Schedules a family of functions."""

    name: ClassVar[str]
    """Name in records and reports."""
    version: ClassVar[int]
    """Version of the template; raise it when the same knobs give another schedule."""
    serves_dynamic: ClassVar[bool] = False
    """Whether it serves functions with dynamic sizes: `match` gets the function at its specialized
    sizes, `apply` the schedule of the function for every size."""

    @abstractmethod
    def match(self, sch: Schedule, /) -> Match | None:
        """Match the function, or return None if the template does not apply."""

    @abstractmethod
    def settings(self, match: Match, hardware: HardwareParams, /) -> Iterator[Knobs]:
        """Yield every possible setting of the knobs."""

    def fill(self, match: Match, hardware: HardwareParams, /) -> Knobs:
        """Return the setting that is expected to be fast, without measuring.

        That is the setting of the minimum estimate, or the first one if there is no estimate.
        Raises ScheduleError if there is no setting.
        """
        knobs = min(
            self.settings(match, hardware),
            key=lambda knobs: self.estimate(match, knobs, hardware) or 0.0,
            default=None,
        )
        if knobs is None:
            raise ScheduleError(f"template {self.name} has no setting for {hardware}")
        return knobs

    @abstractmethod
    def apply(self, sch: Schedule, match: Match, knobs: Knobs, /) -> None:
        """Schedule the function. Raises ScheduleError where TVM refuses."""

    def estimate(self, _match: Match, _knobs: Knobs, _hardware: HardwareParams, /) -> float | None:
        """Estimate the time of a setting in any unit; None if the template has no estimate.

        `fill` takes the setting of the minimum, and engine `autotvm` begins there.
        """
        return None

    def prove_at_every_size(self, _sch: Schedule, match: Match, /) -> Match | None:
        """Extend a match at specialized sizes to every size; None if the template cannot serve it.

        Takes the schedule of the function for every size, and the match at specialized sizes. An
        axis of one element there may be longer at other sizes.
        """
        return match

    def is_asked_last(self, _match: Match, /) -> bool:
        """Tell whether templates further down the table that serve the function are faster.

        The order of the table cannot express it: it holds for some functions of a template only.
        """
        return False


AnyTemplate = Template[Any, Any]
"""A template of a table, whose types of matches and knobs are its own."""


def dump(template: Template[Match, Knobs], knobs: Knobs) -> str:
    """Serialize a setting as JSON text, which `replay_setting` reads after parsing."""
    header = {"template": template.name, "version": template.version}
    return json.dumps({**header, "knobs": knob_values(knobs)}, sort_keys=True)


def knob_values(knobs: "DataclassInstance") -> dict[str, Any]:
    """Return the knobs of a record, without those at their default.

    So a knob that is added later, whose default is the former behaviour, keeps older records valid.
    """
    return {
        field.name: _to_json_value(value)
        for field in fields(knobs)
        if (value := getattr(knobs, field.name)) != field.default
    }


def _to_json_value(value: object) -> object:
    if is_dataclass(value) and not isinstance(value, type):
        return knob_values(value)
    if isinstance(value, tuple | list):
        return [_to_json_value(part) for part in value]
    return value


def serves_dynamic(schedule: str) -> bool:
    """Tell whether the template of a recorded schedule serves functions of dynamic sizes."""
    from autopipe.schedules.templates import list_templates  # they import this module

    try:
        document = foreign.parse(schedule)
    except ValueError:
        return False
    name = document.get("template") if isinstance(document, dict) else None
    return any(template.serves_dynamic for template in list_templates() if name == template.name)


_SHOWN: Final = 400
"""Maximum characters of unknown knobs in an error message."""


@dataclass(frozen=True, slots=True)
class Matcher:
    """Empty schedules of a function, for templates to match.

    Matching changes no schedule, so all templates share them.
    """

    schedule: Schedule
    """Of the function itself."""
    specialized: Schedule | None
    """Of the function at its specialized sizes; None if all of its sizes are static."""
    serves: bool
    """Whether any template may serve it: all require axes that begin at zero."""

    @classmethod
    def of(cls, module: tvm.IRModule) -> "Matcher":
        """Create the schedules of the function `main` of a module."""
        if not begin_at_zero(module["main"]):
            return cls(make_schedule(module), None, serves=False)
        instance = bind_likely_sizes(module)
        specialized_schedule = None if instance is None else make_schedule(instance)
        return cls(make_schedule(module), specialized_schedule, serves=True)

    def match(self, template: Template[Match, Knobs]) -> Match | None:
        """Match a template, or return None if it does not serve the function."""
        if not self.serves:
            return None
        if self.specialized is None:
            return template.match(self.schedule)
        match = template.match(self.specialized) if template.serves_dynamic else None
        return None if match is None else template.prove_at_every_size(self.schedule, match)


def match_function(
    module: tvm.IRModule, template: Template[Match, Knobs]
) -> tuple[Schedule, Match]:
    """Return an empty schedule of a function, and the match of a template.

    With dynamic sizes the match is at the specialized sizes, and the schedule is of the function
    for every size. Raises StageError if the template does not serve the function.
    """
    matcher = Matcher.of(module)
    match = matcher.match(template)
    if match is None:
        raise StageError(f"template {template.name} does not serve this function")
    return matcher.schedule, match


def replay_setting(
    module: tvm.IRModule,
    template: Template[Match, Knobs],
    document: Mapping[str, Any],
    hardware: HardwareParams,
) -> Schedule:
    """Rebuild the schedule that a record describes; `document` is the parsed record.

    Raises StageError if the template has changed or does not serve the function, and if the knobs
    are none of its settings here.
    """
    if not hardware.backend.templates():
        raise StageError(f"template {template.name} is not for {hardware.backend}")
    if type(document.get("version")) is not int or document["version"] != template.version:
        raise StageError(
            f"template {template.name} has version {template.version},"
            f" the record has {format_value(repr(document.get('version')))}"
        )
    sch, match = match_function(module, template)
    knobs = _find_setting(template.settings(match, hardware), document.get("knobs"))
    if knobs is None:
        raise StageError(
            f"template {template.name} has no setting"
            f" {format_value(json.dumps(document.get('knobs')), _SHOWN)} here"
        )
    template.apply(sch, match, knobs)
    return sch


def _find_setting(settings: Iterator[Knobs], values: object) -> Knobs | None:
    """Find the setting with exactly these values, or None; in JSON, 1 and true differ."""
    if not isinstance(values, dict):
        return None
    plain = {name: value for name, value in values.items() if not isinstance(value, list | dict)}
    text = json.dumps(values, sort_keys=True)
    for knobs in settings:
        # Comparing plain values first is fast; Python's 1 == True, so the text decides.
        likely = all(getattr(knobs, name, None) == value for name, value in plain.items())
        if likely and json.dumps(knob_values(knobs), sort_keys=True) == text:
            return knobs
    return None
