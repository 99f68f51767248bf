"""Template for functions of several blocks: cuts them into parts that other templates serve.

A function is cut between its blocks, into the longest parts that some template serves. The
schedules of the parts run one after the other, and tensors between two parts go through memory. A
block that no template serves stays unscheduled, as a part of its own. Computing one part inside the
loops of another one is left to sketch search.

Example: a function of the blocks [pad, conv1, relu1, pad2, conv2, add, relu2]. No template serves
all seven, nor the first six or five of them, as they sum twice, nor the first four, as `pad2` has
other extents than `conv1`. `contraction` serves [pad, conv1, relu1], and then the rest, [pad2,
conv2, add, relu2]: the function has two parts.

Before that, tensors of one constant are inlined, such as the default weights of classes, and
functions of a few elements that are read many times become blocks of their own.
"""

import itertools
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, Final

import tvm
from tvm.s_tir import Schedule, ScheduleError
from tvm.tirx import FloatImm, IntImm, PrimFunc

from autopipe.environment.template_versions import schedule_version
from autopipe.schedules.analysis import rows
from autopipe.schedules.analysis.blocks import is_spatial
from autopipe.schedules.analysis.steps import Steps
from autopipe.schedules.hardware import HardwareParams
from autopipe.schedules.lifted import hoist_calls
from autopipe.schedules.primitives import make_schedule
from autopipe.schedules.templates.template import AnyTemplate, Template

AS_IT_IS: Final = "loops"
"""The name in place of a template where a part stays unscheduled."""

_MAX_BLOCKS: Final = 96
"""Maximum blocks of a function that is cut: LeNet with its gradients has 58."""

_LONGEST: Final = 12
"""Maximum blocks of a part: a product with its prologue and epilogue has fewer."""


@dataclass(frozen=True, slots=True)
class ServedPart:
    """A part of a function, and the template that serves it."""

    module: tvm.IRModule
    template: AnyTemplate | None
    """None leaves the loops as they are."""
    match: Any
    """The match of `template` for the part."""


@dataclass(frozen=True, slots=True)
class ServedParts:
    """A function that the template serves."""

    steps: Steps
    """The whole function."""
    parts: tuple[ServedPart, ...]
    """Its parts, in order."""


@dataclass(frozen=True, slots=True)
class Setting:
    """The knobs of one part."""

    template: str
    version: int
    knobs: Any
    """The knobs of that template."""


@dataclass(frozen=True, slots=True)
class SequenceKnobs:
    """The knobs of all parts."""

    parts: tuple[Setting, ...]


class SequenceTemplate(Template[ServedParts, SequenceKnobs]):
    """Functions of several parts, each of which another template serves."""

    name = "sequence"
    version = schedule_version("sequence")

    def match(self, sch: Schedule) -> ServedParts | None:
        """Split a function into served parts; None if no template serves any block of it."""
        return split_into_parts(inline_cheap_blocks(sch).mod["main"])

    def settings(self, match: ServedParts, hardware: HardwareParams) -> Iterator[SequenceKnobs]:
        """Yield the only setting, that of `fill`: there are too many combinations to search."""
        yield self.fill(match, hardware)

    def fill(self, match: ServedParts, hardware: HardwareParams) -> SequenceKnobs:
        """Choose the knobs of each part by its template, without measuring."""
        return SequenceKnobs(tuple(_fill_part(part, hardware) for part in match.parts))

    def apply(self, sch: Schedule, match: ServedParts, knobs: SequenceKnobs) -> None:
        """Schedule the function. Raises ScheduleError where TVM refuses."""
        schedules = []
        for part, setting in zip(match.parts, knobs.parts, strict=True):
            schedules.append(_schedule_part(part, setting))
        sch.state.replace(sch.get_sref(sch.get_sblock("root")), match.steps.join(schedules))


SEQUENCE: Final = SequenceTemplate()


def inline_cheap_blocks(sch: Schedule) -> Schedule:
    """Inline tensors of one constant and cheap elementwise blocks."""
    trial = sch.copy()
    for rv in trial.get_child_blocks(trial.get_sblock("root")):
        value = getattr(trial.get(rv).body, "value", None)
        if isinstance(value, IntImm | FloatImm) and trial.get_consumers(rv):
            with suppress(ScheduleError):  # an output of the function, too
                trial.compute_inline(rv)
    _inline_cheap_steps(trial)
    return trial if len(trial.get_child_blocks(trial.get_sblock("root"))) > 1 else sch


def _inline_cheap_steps(sch: Schedule) -> None:
    """Inline cheap elementwise blocks, unless only the next block reads them.

    A tensor that is read later goes through memory. Example: batch normalization subtracts the
    mean for the variance, and again for its result: [sum, subtract, square, sum, divide] becomes
    [sum, square and sum, subtract and divide].
    """
    blocks = rows.blocks_of(sch)
    for rv, following in itertools.pairwise(blocks):
        block, consumers = sch.get(rv), sch.get_consumers(rv)
        readers = [sch.get(one) for one in consumers]
        next_alone = len(readers) == 1 and readers[0].same_as(sch.get(following))
        cheap = is_spatial(block) and rows.estimate_body_cost(block) == 1
        alike = all(
            rows.count_iterations(one) == rows.count_iterations(block) > 0 for one in readers
        )
        if readers and not next_alone and cheap and alike:
            with suppress(ScheduleError):  # an output of the function, too
                sch.compute_inline(rv)


def split_into_parts(function: PrimFunc) -> ServedParts | None:
    """Split a function into served parts; None if no template serves any block of it."""
    steps = Steps.of(hoist_calls(function))
    if steps is None or len(steps.blocks) > _MAX_BLOCKS:
        return None
    parts: list[ServedPart] = []
    start = 0
    while start < len(steps.blocks):
        for end in range(min(len(steps.blocks), start + _LONGEST), start, -1):
            part = _match_part(steps.part(start, end)) if steps.closed(start, end) else None
            if part is not None:
                parts.append(part)
                start = end
                break
        else:
            parts.append(ServedPart(steps.part(start, start + 1), None, None))
            start += 1
    is_served = any(part.template is not None for part in parts)
    return ServedParts(steps, tuple(parts)) if is_served and len(parts) > 1 else None


def _fill_part(part: ServedPart, hardware: HardwareParams) -> Setting:
    template = part.template
    if template is None:
        return Setting(AS_IT_IS, 1, None)
    return Setting(template.name, template.version, template.fill(part.match, hardware))


def _schedule_part(part: ServedPart, setting: Setting) -> tvm.IRModule:
    """Schedule a part; its loops stay unscheduled where TVM refuses."""
    schedule = make_schedule(part.module)
    if part.template is None:
        return part.module
    try:
        part.template.apply(schedule, part.match, setting.knobs)
    except ScheduleError:
        return part.module
    return schedule.mod


def _match_part(module: tvm.IRModule) -> ServedPart | None:
    """Match a part with the first template that serves it; None if there is none."""
    # Imported late: these modules import this one.
    from autopipe.schedules.templates import list_templates
    from autopipe.schedules.templates.serve import find_matches

    schedule = make_schedule(module)
    templates = (one for one in list_templates() if one.name != SEQUENCE.name)
    matches = find_matches(templates, lambda template: template.match(schedule))
    return next((ServedPart(module, template, match) for template, match in matches), None)
