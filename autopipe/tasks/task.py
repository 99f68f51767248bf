"""A tuning task as a value, for filters, the policy, tuning and reports."""

from pathlib import Path
from typing import Final

from pydantic import ConfigDict, TypeAdapter

from autopipe.config.frozen import Frozen
from autopipe.tasks.op_info import OpInfo
from autopipe.tasks.tensor import Tensor


class Task(Frozen, frozen=True):
    """One workload: a fused PrimFunc with all its calls and names."""

    index: int
    """Position in the table of tasks, by first use in the model."""
    name: str
    """Name of its first PrimFunc, for messages."""
    workload: str
    """TVM's structural hash of the PrimFunc without its name, as 16 hex digits."""
    functions: tuple[str, ...]
    """Global names of all PrimFuncs of the lowered module that are this workload."""
    calls: int
    """Number of calls in one inference."""
    info: OpInfo
    """Its operators; empty for a PrimFunc that was not lowered from an op."""
    reductions: int
    """Reduction blocks inside; a task without any is simple."""
    inputs: tuple[Tensor, ...]
    """Arguments read, in order."""
    outputs: tuple[Tensor, ...]
    """Arguments written, in order."""
    weights: tuple[int, ...] = ()
    """Inputs that are weights in all calls, by position: no kernel writes them."""
    sizes: int = 0
    """Number of symbolic sizes among its arguments, known when the model runs."""
    likely: str | None = None
    """Of a task of the library for every size, its workload at the first specialized sizes; null
    for all others."""
    also_likely: tuple[str, ...] = ()
    """Its workloads at further specialized sizes."""
    flops: float
    """Floating-point operations of one call as TVM counts them, at least one for each reduced
    value."""
    bytes: int
    """Bytes of all arguments of one call."""
    share: float = 0.0
    """Estimated share of its calls in the time of all tasks."""
    opaque: bool = False
    """Whether TVM cannot analyze some of its loops, such as a sort or an extern call."""
    idle: bool = False
    """Whether it only stores constants, or copies elements in place."""
    dropped: str | None
    """Why the task is not tuned; null if it is kept."""

    @property
    def simple(self) -> bool:
        """Whether the task is simple: it has no reduction, and TVM can analyze all its blocks.

        The one definition, after the RFC: each op in it is injective or simpler, such as
        elementwise functions, broadcasts, layout transforms, slices, reshapes and gathers.
        """
        return not self.reductions and not self.opaque


_TASKS: Final = TypeAdapter(tuple[Task, ...], config=ConfigDict(defer_build=True))


def read_tasks(folder: Path) -> tuple[Task, ...]:
    """Read the tasks in an artifact of stage `tasks`."""
    return _TASKS.validate_json((folder / "tasks.json").read_bytes())
