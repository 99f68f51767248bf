"""A function with its schedule: print, call, compile, save and load it."""

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Annotated, Any, Final, Literal

import numpy as np
import tvm
import tvm_ffi
from pydantic import Field

from autopipe import foreign
from autopipe.api.compute import Compute, to_declared_module
from autopipe.api.hardware import build_conditions
from autopipe.artifacts.document import parse_document
from autopipe.artifacts.tuning import ContenderResult
from autopipe.backends import BACKENDS
from autopipe.compiler.codegen.compile_kernels import compile_kernel
from autopipe.compiler.graph import elementary
from autopipe.compiler.labels.op_info import read_op_info
from autopipe.compiler.loops.exact_divisions import protect_module_divisions
from autopipe.compiler.tasks import make_task, make_workload
from autopipe.config.frozen import Frozen
from autopipe.config.target import Target
from autopipe.errors import ModelError
from autopipe.measure.timing import use_threads
from autopipe.schedules.analysis.classes import ClassifiedBlock, classify_blocks
from autopipe.schedules.engines.fallback import UNSCHEDULED
from autopipe.schedules.replay import replay_schedule
from autopipe.tasks.task import Task

_MICROSECOND: Final = 1e-6
_LARGEST: Final = 64 << 20
"""Bytes of a saved schedule."""


@dataclass(frozen=True)
class Scheduled:
    """A PrimFunc with its schedule: the fastest measured one, or an unmeasured one."""

    workload: tvm.IRModule
    """The PrimFunc as it was declared, as `main`."""
    module: tvm.IRModule
    """The scheduled PrimFunc, as `main`, with elementary functions as arithmetic: any build of TVM
    compiles it to the code that was timed."""
    engine: str
    """The engine that proposed the schedule; `none` where the function is best unscheduled."""
    implementation: str
    schedule: str
    """The recorded schedule: TVM's trace, or a template and its knobs, as JSON."""
    target: Target
    """The target that it was scheduled for."""
    fast_algorithms: bool
    """Whether it may round differently from the unscheduled loops."""
    flops: float
    """Operations of one call; 0 if they cannot be counted."""
    seconds: float | None = None
    """Median of one call; None if nothing was measured."""
    unchecked: str | None = "nothing was run"
    """Why it could not be compared with the unscheduled loops; None if it agrees with them."""
    ended: str = "nothing was measured"
    """Why tuning ended."""
    contenders: tuple[ContenderResult, ...] = ()
    """The results of all engines, the fastest first."""

    @cached_property
    def blocks(self) -> tuple[ClassifiedBlock, ...]:
        """The blocks of the function as it was declared, each with its class."""
        return classify_blocks(self.workload)

    @cached_property
    def _main(self) -> Callable[..., Any]:
        use_threads(self.target.num_cores or 1)
        where = build_conditions(self.target, fast_algorithms=self.fast_algorithms).target
        return compile_kernel(self.module, where)["main"]

    def __call__(self, *inputs: np.ndarray) -> tuple[np.ndarray, ...]:
        """Run the function on this machine and return its outputs; the first call compiles it.

        `inputs` are the tensors that it reads, in order. Raises ModelError for other shapes or
        dtypes, and ForeignCode for a function that contains foreign code.
        """
        if not BACKENDS[self.target.kind].runs_on_host:
            raise ModelError(f"a function for {self.target.kind} is not called here: compile it")
        tensors = [*self._check_inputs(inputs), *(np.zeros(*like) for like in self._outputs)]
        arguments = [tvm.runtime.tensor(tensor) for tensor in tensors]
        self._main(*arguments)
        return tuple(tensor.numpy() for tensor in arguments[len(inputs) :])

    @property
    def identity(self) -> str:
        """TVM's structural hash of the function, as 16 hex digits."""
        return str(self._task.workload)

    @cached_property
    def _task(self) -> Task:
        return build_single_task(self.workload)

    @property
    def _outputs(self) -> list[tuple[tuple[int, ...], str]]:
        return [(tensor.shape, tensor.dtype) for tensor in self._task.outputs]

    def _check_inputs(self, inputs: tuple[np.ndarray, ...]) -> list[np.ndarray]:
        parameter_types = [(tensor.shape, tensor.dtype) for tensor in self._task.inputs]
        input_types = [(array.shape, str(array.dtype)) for array in map(np.asarray, inputs)]
        if input_types != parameter_types:
            raise ModelError(
                f"the function takes {_format_tensors(parameter_types)}; "
                f"these are {_format_tensors(input_types)}"
            )
        return [np.asarray(array, order="C") for array in inputs]  # of no axes, too

    def save(self, file: Path | str) -> None:
        """Save the schedule and its target, without the function. Raises OSError."""
        names = SavedSchedule.model_fields.keys() - {"format", "workload"}
        fields = {name: getattr(self, name) for name in names}
        document = SavedSchedule(workload=self.identity, **fields)
        Path(file).write_text(document.model_dump_json(indent=1, ensure_ascii=True) + "\n", "utf-8")

    def __str__(self) -> str:
        """Format a table of the engines and the winner, or the classes of the blocks."""
        won = f"{self.engine} on {self.implementation}"
        if self.seconds is None:
            template = (
                f"template {name}"
                if (name := _read_template_name(self.schedule))
                else "TVM's trace"
            )
            if self.engine == UNSCHEDULED:
                won, template = "as it is", "no engine changes it"
            return "\n".join([*map(str, self.blocks), "", f"{won}: {template}, not measured"])
        rate = f", {self.flops / self.seconds / 1e9:.1f} GFLOPS" if self.flops else ""
        sound = "agrees with the plain loops"
        if self.unchecked is not None:
            sound = f"not checked: {self.unchecked}"
        return "\n".join(
            [
                *_format_contenders(self.contenders),
                "",
                f"{won}: {_format_time(self.seconds)}{rate}; {sound}",
            ]
        )


class SavedSchedule(Frozen, frozen=True):
    """The file of `save`. It may come from an untrusted source: it is checked before use."""

    format: Literal[1] = 1
    """Version of this format."""
    workload: str
    """TVM's structural hash of the function."""
    target: Target
    fast_algorithms: bool
    engine: str
    implementation: str
    schedule: str
    flops: Annotated[float, Field(ge=0)]
    seconds: Annotated[float, Field(gt=0)] | None
    unchecked: str | None
    ended: str
    contenders: tuple[ContenderResult, ...]


def load_scheduled(file: Path | str, compute: Compute) -> Scheduled:
    """Apply a schedule that `Scheduled.save` wrote to a function.

    The file holds a template with its knobs or a trace of TVM, for one function, which the caller
    declares again: nothing in a file is run. Its times are unverified. Raises ModelError for a
    file that is invalid or of another function, StageError if the schedule does not fit, Forbidden
    if it may do harm.
    """
    try:
        document = parse_document(SavedSchedule, foreign.read(Path(file), _LARGEST))
    except (foreign.MalformedError, OSError) as error:
        reason = error.strerror if isinstance(error, OSError) else error
        raise ModelError(f"{file}: no schedule that autopipe saved: {reason}") from None
    function = prepare_function(compute, document.target, fast_algorithms=document.fast_algorithms)
    if build_single_task(function).workload != document.workload:
        raise ModelError(f"{file}: the schedule of another function")
    fields = {name: getattr(document, name) for name in SavedSchedule.model_fields}
    del fields["format"], fields["workload"]
    return apply_saved_schedule(function, **fields)


def build_single_task(function: tvm.IRModule) -> Task:
    """Build the task of a standalone function."""
    main = function["main"]
    return make_task(0, make_workload(main), ["main"], read_op_info(main))


def prepare_function(compute: Compute, target: Target, *, fast_algorithms: bool) -> tvm.IRModule:
    """Prepare a declared function for scheduling on a target. Raises ModelError."""
    module = to_declared_module(compute)
    arithmetic = fast_algorithms and BACKENDS[target.kind].expands_elementary_functions
    return elementary.mark_inexact(module) if arithmetic else module


def apply_saved_schedule(function: tvm.IRModule, **fields: Any) -> Scheduled:  # noqa: ANN401 - as `Scheduled`
    """Apply a recorded schedule to a function. Raises StageError if it does not fit."""
    for_what = build_conditions(fields["target"], fast_algorithms=fields["fast_algorithms"])
    scheduled_module = replay_schedule(
        function, fields["implementation"], fields["schedule"], for_what
    )
    fields["engine"] = name_engine(fields["engine"], function, scheduled_module)
    return Scheduled(
        workload=function,
        module=protect_module_divisions(elementary.expand_functions(scheduled_module)),
        **fields,
    )


def name_engine(engine: str, function: tvm.IRModule, scheduled_module: tvm.IRModule) -> str:
    """Return the engine of a schedule; `none` if it leaves the function as declared."""
    return UNSCHEDULED if tvm_ffi.structural_equal(scheduled_module, function) else engine


def _read_template_name(schedule: str) -> str:
    """Read the name of the template in a record; "" for a trace."""
    document = json.loads(schedule) if schedule else None
    return str(document["template"]) if isinstance(document, dict) else ""


def _format_contenders(contenders: Sequence[ContenderResult]) -> list[str]:
    rows = [("engine", "implementation", "trials", "failed", "best")]
    rows += [
        (c.engine, c.implementation, str(c.trials), str(c.failed), _format_time(c.seconds))
        for c in contenders
    ]
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return [
        "  ".join(f"{cell:{'<' if at < 2 else '>'}{widths[at]}}" for at, cell in enumerate(row))  # noqa: PLR2004 - names stand left, numbers right
        for row in rows
    ]


def _format_tensors(tensor_types: Sequence[tuple[tuple[int, ...], str]]) -> str:
    return (
        ", ".join(f"{dtype}[{'x'.join(map(str, shape))}]" for shape, dtype in tensor_types)
        or "none"
    )


def _format_time(seconds: float | None) -> str:
    if seconds is None:
        return "-"
    return f"{seconds * 1e6:.1f} us" if seconds >= _MICROSECOND else f"{seconds * 1e9:.1f} ns"
