"""A tuning task as a plain value: what filters, the policy, tuning and reports know of it."""

from pathlib import Path
from typing import ClassVar, Final

from pydantic import ConfigDict, TypeAdapter

from autopipe.config.frozen import Sparse
from autopipe.tasks.op_info import OpInfo
from autopipe.tasks.tensor import Tensor


class Task(Sparse, frozen=True):
    """One workload: a fused PrimFunc, however often and under whatever name it is called."""

    ADDED: ClassVar[frozenset[str]] = frozenset({"likely", "also_likely", "weights"})

    index: int
    """Position in the table of tasks, by first use in the model."""
    name: str
    """Name of its first PrimFunc; for people only."""
    workload: str
    """TVM's structural hash of the PrimFunc without its name, as 16 hex digits."""
    functions: tuple[str, ...]
    """Global names of all PrimFuncs of the lowered module that are this workload."""
    calls: int
    """How often one inference calls them."""
    info: OpInfo
    """What it computes, in operators; empty for a PrimFunc that no op was lowered to."""
    reductions: int
    """Reduction blocks inside; a task without any is simple."""
    inputs: tuple[Tensor, ...]
    """Arguments read, in order."""
    outputs: tuple[Tensor, ...]
    """Arguments written, in order."""
    weights: tuple[int, ...] = ()
    """Inputs that are weights in all calls, by position: no kernel writes them."""
    sizes: int = 0
    """Arguments that are no tensors: symbolic sizes, known when the model runs."""
    likely: str | None = None
    """Of a task of the library for every size, the workload that it is at the first likely sizes;
    null for all others."""
    also_likely: tuple[str, ...] = ()
    """The others that it is at further likely sizes."""
    flops: float
    """Floating-point operations of one call, as TVM counts them, and as many as reduced values at
    least."""
    bytes: int
    """Bytes of all arguments of one call."""
    share: float = 0.0
    """Estimated part of the time of all tasks that its calls take."""
    opaque: bool = False
    """Whether TVM does not see what some of its loops do, as in a sort or an extern call."""
    idle: bool = False
    """Whether all it does is store constants, or copy elements to where they are already."""
    dropped: str | None
    """Why the task is not tuned; null if it is kept."""

    @property
    def simple(self) -> bool:
        """Whether the task is simple: no block of it reduces, and TVM sees what they all do.

        The one definition, after the RFC: each op in it is injective or simpler, such as
        elementwise functions, broadcasts, layout transforms, slices, reshapes and gathers.
        """
        return not self.reductions and not self.opaque


_TASKS: Final = TypeAdapter(tuple[Task, ...], config=ConfigDict(defer_build=True))


def read_tasks(folder: Path) -> tuple[Task, ...]:
    """Return the tasks in an artifact of stage `tasks`."""
    return _TASKS.validate_json((folder / "tasks.json").read_bytes())
