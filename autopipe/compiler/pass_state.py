"""The options of each list of passes, and the results of its passes besides the module."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

import tvm
from tvm import relax

from autopipe.compiler.fusion.neighbours import Pays
from autopipe.compiler.fusion.scope import Scope
from autopipe.compiler.labels.node_labels import Label
from autopipe.compiler.labels.op_info import CallInfos
from autopipe.compiler.passes.round_products import RoundedProducts
from autopipe.tasks.op_info import OpInfo


@dataclass(slots=True)
class OptimizeState:
    """Options and results of the passes before layouts are final."""

    imported: tvm.IRModule
    """The module before the first pass."""
    inputs: int
    """The number of inputs among the parameters of `main`; the rest are weights."""
    target: tvm.target.Target
    layout: Mapping[str, Sequence[str]]
    """Desired layouts by op."""
    warn: Callable[[str], None]
    channels_last: bool = False
    """Whether `layout` puts the channels of convolutions last."""
    round_weights: bool = False
    round_products: bool = False
    products: RoundedProducts | None = None
    """Matmuls in bfloat16, and those that stay in float32; None if not enabled."""
    rounded_weights: tuple[int, ...] = ()
    """Weights that were rounded to bfloat16, counted from 0."""
    transform: tvm.IRModule = field(default_factory=tvm.IRModule)
    """The work on weights that was lifted out of `main`."""


@dataclass(slots=True)
class LowerState:
    """Options of lowering, and the op information of each kernel."""

    target: tvm.target.Target
    fast_algorithms: bool
    """Whether elementary functions may round differently from libm's."""
    scope: Scope | None
    """Options of fusion; None for TVM's defaults."""
    pays: Pays | None
    """Predicate: consecutive convolutions are faster as one kernel."""
    ops: Mapping[str, relax.Expr] = field(default_factory=dict)
    """The op of each variable of the graph, by its name."""
    labels: Mapping[str, Label] = field(default_factory=dict)
    """The model's nodes of each variable, by its name."""
    calls: CallInfos = field(default_factory=lambda: CallInfos({}, {}))
    """The op of each kernel call before fusion."""
    infos: Mapping[str, OpInfo] = field(default_factory=dict)
    """The ops of each kernel after fusion, by its name."""

    @property
    def has_rules(self) -> bool:
        """Whether there are rules of the section `fusion`."""
        return self.scope is not None and bool(self.scope.rules)


@dataclass(slots=True)
class LinkState:
    """Schedules of a lowered module's kernels, and the packing of weights that they need."""

    target: tvm.target.Target
    scheduled: Mapping[str, tvm.IRModule]
    """A module with the scheduled `main` of each kernel, by the name of the kernel."""
    packs_at_load: bool = False
    """Whether weights that grow much by packing are packed when the library is loaded."""
    packing: tvm.IRModule = field(default_factory=tvm.IRModule)
    """The packing of weights for the schedules, except for that at load."""
