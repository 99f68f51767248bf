"""A tuning task as a plain value: what filters, the policy, tuning and reports know of it."""

from pydantic import JsonValue

from autopipe.config.frozen import Frozen


class Tensor(Frozen, frozen=True):
    """An argument of a task."""

    shape: tuple[int, ...]
    """Size of each dimension."""
    dtype: str
    """Element type, in TVM's spelling."""


class Task(Frozen, frozen=True):
    """One workload: a fused PrimFunc, however often and under whatever name it is called."""

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
    ops: tuple[str, ...]
    """Relax ops inside, in dataflow order, without the `relax.` prefix."""
    attributes: tuple[dict[str, JsonValue], ...] = ()
    """Attributes of each of these ops, such as `{"strides": [1, 1], "groups": 1}`."""
    kind: str
    """The function's op pattern: elementwise, broadcast, injective, reduction,
    out_elementwise_fusable or opaque."""
    reductions: int
    """Reduction blocks inside; a task without any is simple."""
    inputs: tuple[Tensor, ...]
    """Arguments read, in order."""
    outputs: tuple[Tensor, ...]
    """Arguments written, in order."""
    flops: float
    """Floating-point operations of one call, as TVM counts them."""
    bytes: int
    """Bytes of all arguments of one call."""
    share: float = 0.0
    """Estimated part of the time of all tasks that its calls take."""
    dropped: str | None
    """Why the task is not tuned; null if it is kept."""
