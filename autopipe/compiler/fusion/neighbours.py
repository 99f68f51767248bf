"""Fuse consecutive convolutions into one function, where that is expected to be faster.

    lv1 = relu(conv2d(x, w1))                       # 1x1, to many channels
    lv2 = relu(conv2d(lv1, w2))                     # depthwise
    lv3 = add(conv2d(lv2, w3), x)                   # 1x1, to few channels

TVM makes three functions of these. Here all three become one, or else the first two, if the cost
model of the schedules, which knows the caches, predicts a gain.
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
from autopipe.compiler.labels.op_info import CallInfo, CallInfos
from autopipe.compiler.module_io import list_prim_funcs
from autopipe.compiler.tasks import make_workload

Pays = Callable[[tvm.IRModule], bool]
"""Predicate: the function of a workload module is expected to be faster than its parts."""

_CONVOLUTION: Final = "nn.conv2d"


def can_join(module: tvm.IRModule, parts: CallInfos) -> bool:
    """Tell whether a legalized module has a depthwise convolution of static shape."""
    if not any(map(_is_depthwise_part, parts.by_site.values())):
        return False
    values = (b.value for _, function in graph_functions(module) for b in list_bindings(function))
    calls = (value for value in values if is_kernel_call(value))
    depthwise = (call for call in calls if is_depthwise(call, parts))
    return any(
        min(tensor.shape, default=0) >= 0 for call in depthwise for tensor in list_tensors(call.ty)
    )


def is_depthwise(call: relax.Call, parts: CallInfos) -> bool:
    """Tell whether a call is a grouped convolution."""
    return _is_depthwise_part(parts.of(call))


def _is_depthwise_part(part: CallInfo) -> bool:
    return part.op.name == _CONVOLUTION and part.op.attributes.get("groups", 1) != 1


def join_neighbours(
    module: tvm.IRModule, fused_module: tvm.IRModule, graph: Unfused, parts: CallInfos, pays: Pays
) -> tvm.IRModule:
    """Join the functions of consecutive convolutions in a fused module.

    Args:
        module: The legalized module.
        fused_module: The result of `FuseOps` on it.
        graph: The steps of the legalized module.
        parts: The op of each call of a PrimFunc.
        pays: Predicate of the functions to join.
    """
    fused_groups = read_groups(fused_module, graph)
    grouping = Grouping(graph.steps, fused_groups.groups)
    main = module["main"]
    count = int((main.attrs or {}).get(COUNT, len(main.params)))
    weights = frozenset(main.params[count:])
    neighbours = _Neighbours(graph, grouping, Functions(fused_module, graph), parts, weights, pays)
    if not neighbours.join():
        return fused_module
    return replace_groups(fused_module, graph, fused_groups, [group.steps for group in grouping])


@dataclass(frozen=True, slots=True)
class _Neighbours:
    """The groups of a graph, and the search for groups to join."""

    graph: Unfused
    grouping: Grouping
    functions: Functions
    parts: CallInfos
    weights: frozenset[relax.Var]
    pays: Pays
    tried: dict[str, bool] = field(default_factory=dict)
    """Results of `pays`, by the identity of the workload."""

    def join(self) -> bool:
        """Join groups; return whether any were joined."""
        has_joined = False
        for group in list(self.grouping):
            if self.grouping.of(group.steps[0]) is not group or not self._is_depthwise(group):
                continue
            before, after = self._find_producer(group), self._find_consumer(group)
            if before is not None:
                wider = [[before, group, after]] if after is not None else []
                has_joined |= any(self._join_groups(groups) for groups in (*wider, [before, group]))
        return has_joined

    def _join_groups(self, groups: list[Group]) -> bool:
        """Join groups if that is expected to be faster; return whether they are joined."""
        try:
            joint_group = self.grouping.around([name for group in groups for name in group.steps])
        except ValueError:  # a step cannot be moved
            return False
        if len(joint_group.steps) != sum(len(group.steps) for group in groups):
            return False
        if not self._is_paying(joint_group):
            return False
        self.grouping.unite(joint_group)
        return True

    def _is_paying(self, group: Group) -> bool:
        """Tell whether a group is expected to be faster; cached for equal workloads."""
        try:
            module = FuseTIR()(self.functions.alone(group.steps))
        except (RuntimeError, ValueError, TypeError):  # TVM cannot merge them
            return False
        ((_, function),) = [pair for pair in list_prim_funcs(module) if pair[0] == "fused"]
        workload = make_workload(
            function.with_attr("layout_free_buffers", self._find_weight_params(group))
        )
        if workload.identity not in self.tried:
            self.tried[workload.identity] = self.pays(workload.module)
        return self.tried[workload.identity]

    def _find_weight_params(self, group: Group) -> list[int]:
        """Return the positions of weights among the parameters of a group's function."""
        _, arguments = self.functions.function(group.steps, group.steps[-1:])
        return [
            at
            for at, value in enumerate(arguments)
            if isinstance(value, tvm.ir.GenericConst) or value in self.weights
        ]

    def _list_convolutions(self, group: Group) -> list[relax.Call]:
        """List the convolutions of a group."""
        calls = [self.graph.calls[name] for name in group.steps if name in self.graph.calls]
        return [call for call in calls if self.parts.of(call).op.name == _CONVOLUTION]

    def _is_depthwise(self, group: Group) -> bool:
        """Tell whether a group has exactly one convolution, a grouped one."""
        convolutions = self._list_convolutions(group)
        return len(convolutions) == 1 and is_depthwise(convolutions[0], self.parts)

    def _find_producer(self, group: Group) -> Group | None:
        """Find the group of a convolution with this group as its only consumer, or None."""
        read_names = {read for name in group.steps for read in self.functions.reads[name]}
        read_groups = {self.grouping.of(name) for name in read_names - set(group.steps)}
        producers = [producer for producer in read_groups if self._find_consumer(producer) is group]
        return producers[0] if len(producers) == 1 else None

    def _find_consumer(self, group: Group) -> Group | None:
        """Find the only consumer of a group of one convolution, if it has one as well, or None."""
        step_names = set(group.steps)
        results = [name for name in group.steps if self.functions.is_read(name, group.steps)]
        if len(results) != 1 or results[0] in self.graph.returned:
            return None
        reading = self.functions.readers[results[0]]
        readers = {self.grouping.of(name) for name in reading if name not in step_names}
        consumer = readers.pop() if len(readers) == 1 else None
        pair = (group, consumer) if consumer is not None else ()
        return (
            consumer if pair and all(len(self._list_convolutions(g)) == 1 for g in pair) else None
        )
