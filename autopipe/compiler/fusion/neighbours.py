"""Makes one function of convolutions that follow each other, where that is expected to pay.

    lv1 = relu(conv2d(x, w1))                       # 1x1, to many channels
    lv2 = relu(conv2d(lv1, w2))                     # depthwise
    lv3 = add(conv2d(lv2, w3), x)                   # 1x1, to few channels

TVM makes three functions of these. Here all three become one, or else the first two, if the
schedules say that it pays; they know the caches.
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Final

import tvm
from tvm import relax
from tvm.relax.transform import FuseTIR

from autopipe.compiler.fusion.graph_steps import Unfused
from autopipe.compiler.fusion.grouping import Group, Grouping
from autopipe.compiler.fusion.regroup import Functions, read_groups, replace_groups
from autopipe.compiler.graph.calls import graph_functions, is_kernel_call, list_bindings
from autopipe.compiler.graph.hoist import COUNT
from autopipe.compiler.graph.literals import list_tensors
from autopipe.compiler.labels.op_info import CallInfos
from autopipe.compiler.module_io import list_prim_funcs
from autopipe.compiler.tasks import make_workload

Pays = Callable[[tvm.IRModule], bool]
"""Tells whether the function of a workload module is expected to be faster than its parts."""

_CONVOLUTION: Final = "nn.conv2d"


def can_join(module: tvm.IRModule, parts: CallInfos) -> bool:
    """Tell whether a legalized module has a depthwise convolution whose sizes are known."""
    values = (
        one.value for _, function in graph_functions(module) for one in list_bindings(function)
    )
    calls = (value for value in values if is_kernel_call(value))
    depthwise = (call for call in calls if is_depthwise(call, parts))
    return any(
        min(tensor.shape, default=0) >= 0 for call in depthwise for tensor in list_tensors(call.ty)
    )


def is_depthwise(call: relax.Call, parts: CallInfos) -> bool:
    """Tell whether a call is a convolution that has groups of channels."""
    op = parts.of(call).op
    return op.name == _CONVOLUTION and op.attributes.get("groups", 1) != 1


def join_neighbours(
    module: tvm.IRModule, fused: tvm.IRModule, graph: Unfused, parts: CallInfos, pays: Pays
) -> tvm.IRModule:
    """Return a fused module with functions of neighbouring convolutions joined.

    Args:
        module: The legalized module.
        fused: What `FuseOps` made of it.
        graph: The steps of the legalized module.
        parts: What each call of a PrimFunc computes.
        pays: Says which functions are joined.
    """
    chosen = read_groups(fused, graph)
    grouping = Grouping(graph.steps, chosen.groups)
    main = module["main"]
    count = int((main.attrs or {}).get(COUNT, len(main.params)))
    weights = frozenset(main.params[count:])
    neighbours = _Neighbours(graph, grouping, Functions(fused, graph), parts, weights, pays)
    if not neighbours.join():
        return fused
    return replace_groups(fused, graph, chosen, [group.steps for group in grouping])


@dataclass(frozen=True, slots=True)
class _Neighbours:
    """The groups of a graph, and which of them are joined."""

    graph: Unfused
    grouping: Grouping
    functions: Functions
    parts: CallInfos
    weights: frozenset[relax.Var]
    pays: Pays
    tried: dict[str, bool] = field(default_factory=dict)
    """What `pays` has said, by the identity of the workload."""

    def join(self) -> bool:
        """Join groups; return whether there were any to join."""
        joined = False
        for group in list(self.grouping):
            if self.grouping.of(group.steps[0]) is not group or not self._is_depthwise(group):
                continue
            before, after = self._find_producer(group), self._find_consumer(group)
            if before is not None:
                wider = [[before, group, after]] if after is not None else []
                joined |= any(self._join_groups(groups) for groups in (*wider, [before, group]))
        return joined

    def _join_groups(self, groups: list[Group]) -> bool:
        """Join groups if that pays; return whether they are joined."""
        try:
            whole = self.grouping.around([name for group in groups for name in group.steps])
        except ValueError:  # something has to stay where it is
            return False
        if len(whole.steps) != sum(len(group.steps) for group in groups):
            return False
        if not self._is_paying(whole):
            return False
        self.grouping.unite(whole)
        return True

    def _is_paying(self, group: Group) -> bool:
        """Ask whether a group pays, once for equal ones."""
        try:
            merged = FuseTIR()(self.functions.alone(group.steps))
        except (RuntimeError, ValueError, TypeError):  # TVM can not merge them
            return False
        ((_, function),) = [pair for pair in list_prim_funcs(merged) if pair[0] == "fused"]
        found = make_workload(
            function.with_attr("layout_free_buffers", self._find_weight_params(group))
        )
        if found.identity not in self.tried:
            self.tried[found.identity] = self.pays(found.module)
        return self.tried[found.identity]

    def _find_weight_params(self, group: Group) -> list[int]:
        """Return which parameters of the function of a group are weights."""
        _, given = self.functions.function(group.steps, group.steps[-1:])
        return [
            at
            for at, value in enumerate(given)
            if isinstance(value, tvm.ir.GenericConst) or value in self.weights
        ]

    def _list_convolutions(self, group: Group) -> list[relax.Call]:
        """Return the convolutions of a group."""
        calls = [self.graph.calls[name] for name in group.steps if name in self.graph.calls]
        return [call for call in calls if self.parts.of(call).op.name == _CONVOLUTION]

    def _is_depthwise(self, group: Group) -> bool:
        """Tell whether a group has one convolution, and that one has groups of channels."""
        found = self._list_convolutions(group)
        return len(found) == 1 and is_depthwise(found[0], self.parts)

    def _find_producer(self, group: Group) -> Group | None:
        """Return the group of a convolution whose result is read by this group alone."""
        given = {read for name in group.steps for read in self.functions.reads[name]}
        others = {self.grouping.of(name) for name in given - set(group.steps)}
        found = [other for other in others if self._find_consumer(other) is group]
        return found[0] if len(found) == 1 else None

    def _find_consumer(self, group: Group) -> Group | None:
        """Return the only group that reads a group of one convolution, if it has one as well."""
        own = set(group.steps)
        results = [name for name in group.steps if self.functions.is_read(name, group.steps)]
        if len(results) != 1 or results[0] in self.graph.returned:
            return None
        reading = self.functions.readers[results[0]]
        readers = {self.grouping.of(name) for name in reading if name not in own}
        found = readers.pop() if len(readers) == 1 else None
        pair = (group, found) if found is not None else ()
        return (
            found if pair and all(len(self._list_convolutions(one)) == 1 for one in pair) else None
        )
