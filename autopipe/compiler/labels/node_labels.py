"""Labels of the model's nodes on variables of a graph, so that kernel calls name their nodes.

    lv3@4,7 = nn.conv2d(...)       computes nodes 4 and 7, which a rewrite merged
    lv9@+4 = permute_dims(...)     added by the compiler for node 4, as for a layout change

A label is a suffix of a variable's name. Passes keep the names of rewritten variables, and names of
variables enter neither PrimFuncs nor machine code: `strip_label` gives back the name without it.
"""

import re
from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import lru_cache
from types import MappingProxyType
from typing import Final

import tvm
import tvm_ffi
from tvm import relax

from autopipe.compiler.graph.calls import graph_functions, list_bindings, sort_callers_first

_SUFFIX: Final = re.compile(r"@(\+?)(\d+(?:,\d+)*)\Z")

_MOVEMENTS: Final = frozenset({
    "relax.permute_dims", "relax.layout_transform", "relax.reshape", "relax.astype",
    "relax.expand_dims", "relax.squeeze",
})  # fmt: skip
"""Data movement ops that a layout change adds."""


@dataclass(frozen=True, slots=True)
class Label:
    """The model's nodes that a value computes, by position."""

    nodes: tuple[int, ...]
    added: bool = False
    """Whether the compiler added the value: it belongs to no node of the model."""

    @property
    def suffix(self) -> str:
        """Return the suffix of a variable's name."""
        return f"@{'+' * self.added}{','.join(map(str, self.nodes))}"


Labels = dict[relax.Var, Label]


def strip_label(name: str) -> str:
    """Remove the label from the name of a variable."""
    return _SUFFIX.sub("", name)


@lru_cache(1 << 16)
def read_label(name: str) -> Label | None:
    """Parse the label in the name of a variable, or return None."""
    match = _SUFFIX.search(name)
    return match and Label(tuple(map(int, match[2].split(","))), bool(match[1]))


def merge_labels(labels: Iterable[Label | None]) -> Label | None:
    """Merge labels into one; labels of added values count only if there are no others."""
    present_labels = [label for label in labels if label is not None]
    sources = [label for label in present_labels if not label.added] or present_labels
    nodes = sorted({node for label in sources for node in label.nodes})
    return Label(tuple(nodes), all(label.added for label in sources)) if nodes else None


def set_labels(module: tvm.IRModule, labels: Mapping[relax.Var, Label]) -> tvm.IRModule:
    """Rename variables of a module so that they carry these labels."""
    new_variables = {
        var: type(var)(strip_label(var.name) + label.suffix, var.ty)
        for var, label in labels.items()
        if read_label(var.name) != label
    }
    if not new_variables:
        return module
    labelled_module = tvm.IRModule(dict(module.functions_items()), attrs=module.attrs)
    for variable, function in graph_functions(module):
        labelled_function = tvm_ffi.structural_map(
            function, (relax.Var, lambda var: new_variables.get(var, var))
        )
        labelled_module.update_func(variable, labelled_function)
    return labelled_module


def complete_labels(
    module: tvm.IRModule,
    given_labels: Mapping[relax.Var, Label] = MappingProxyType({}),
    *,
    imported: bool = False,
) -> tvm.IRModule:
    """Label unlabelled variables after their readers, their operands, or the caller.

    Variables keep their labels, and have `given_labels` in place of them.
    Data movement then counts as added, unless the module was just `imported`. Computation does not,
    even if only data movement reads it: a convolution that replaces a transposed convolution
    computes that node, and the rest moves its result.
    """
    labels: Labels = {}
    functions = {str(var.name_hint): function for var, function in graph_functions(module)}
    callers: dict[str, Label | None] = {}
    for name in sort_callers_first(functions, "main"):
        graph = _Readers(functions[name], given_labels)
        function_labels = graph.complete(imported=imported)
        if (caller := callers.get(name)) is not None:
            function_labels |= {b.var: caller for b in graph.bound if b.var not in function_labels}
        for binding in graph.bound:
            if isinstance(getattr(binding.value, "op", None), tvm.ir.GlobalVar):
                callee = str(binding.value.op.name_hint)
                caller_labels = callers.get(callee), function_labels.get(binding.var)
                callers[callee] = merge_labels(caller_labels)
        labels |= function_labels
    return set_labels(module, labels)


def keep_merged(before: tvm.IRModule, after: tvm.IRModule) -> tvm.IRModule:
    """Add the nodes that a rewrite merged to the labels of the rewritten module.

    Example: MatMul, Softmax and MatMul became one call of attention, bound to the variable of the
    last. A removed node is added to the label of the nearest remaining reader of its result.
    """
    after = _find_added(before, after)
    labels_after = _read_labels(after)
    present = {node for label in labels_after.values() if not label.added for node in label.nodes}
    missing_nodes = {
        node for label in _read_labels(before).values() for node in label.nodes
    } - present
    if not missing_nodes:
        return after
    successors: dict[int, set[int]] = defaultdict(set)
    for _, function in graph_functions(before):
        graph = _Readers(function)
        for var, label in graph.own.items():
            missing = set(label.nodes) - present
            if missing and not label.added and (next_ := graph.find_reader(var, present)):
                for node in next_:
                    successors[node] |= missing
    labels = {}
    for var, label in labels_after.items():
        merged_nodes = set().union(
            *(successors[node] for node in label.nodes if node in successors)
        )
        if merged_nodes and not label.added:
            labels[var] = Label(tuple(sorted({*label.nodes, *merged_nodes})))
    return set_labels(after, labels)


def _find_added(before: tvm.IRModule, after: tvm.IRModule) -> tvm.IRModule:
    """Mark data movement as added where it has taken over the variable of a computing node.

    Example: in `lv = relu(x); gv@5 = permute_dims(lv)`, where node 5 is a Relu, `lv` is node 5.
    """
    moving = {
        node
        for _, function in graph_functions(before)
        for binding in list_bindings(function) if _is_movement(binding.value)
        for node in (read_label(binding.var.name) or Label(())).nodes
    }  # fmt: skip
    new_labels: Labels = {}
    for _, function in graph_functions(after):
        for binding in reversed(list_bindings(function)):
            label = new_labels.get(binding.var) or read_label(binding.var.name)
            if label is None or not _is_movement(binding.value) or moving.intersection(label.nodes):
                continue
            source = binding.value.args[0]
            if isinstance(source, relax.Var) and read_label(source.name) is None:
                new_labels |= {
                    binding.var: Label(label.nodes, added=True),
                    source: Label(label.nodes),
                }
    return set_labels(after, new_labels)


def _read_labels(module: tvm.IRModule) -> Labels:
    """Read the labels of a module's variables."""
    variables = (
        binding.var
        for _, function in graph_functions(module)
        for binding in list_bindings(function)
    )
    return {var: label for var in variables if (label := read_label(var.name)) is not None}


class _Readers:
    """The def-use chains of a function."""

    def __init__(
        self,
        function: relax.Function,
        given_labels: Mapping[relax.Var, Label] = MappingProxyType({}),
    ) -> None:
        self.bound = list_bindings(function)
        variables = [binding.var for binding in self.bound]
        self.own: Labels = {
            var: label for var in variables
            if (label := given_labels.get(var) or read_label(var.name)) is not None
        }  # fmt: skip
        self.readers: dict[relax.Var, list[relax.Var]] = defaultdict(list)
        self.read: dict[relax.Var, list[relax.Var]] = {}
        for binding in self.bound:
            self.read[binding.var] = _list_variables(binding.value)
            for var in self.read[binding.var]:
                self.readers[var].append(binding.var)

    def complete(self, *, imported: bool) -> Labels:
        """Return a label for each variable that has one or inherits one of a neighbour."""
        labels = dict(self.own)
        bare = [binding for binding in self.bound if binding.var not in labels]
        steps = [(binding, self.readers[binding.var]) for binding in reversed(bare)]
        steps += [(binding, self.read[binding.var]) for binding in bare]
        for binding, neighbours in steps:
            if binding.var in labels:
                continue
            label = merge_labels(labels.get(var) for var in neighbours)
            if label is not None:
                moves = _is_movement(binding.value)
                is_added = moves and (label.added or not imported)
                labels[binding.var] = Label(label.nodes, is_added)
        return labels

    def find_reader(self, var: relax.Var, present: set[int]) -> set[int]:
        """Return the nodes of the nearest transitive readers that are among `present`."""
        level, visited = self.readers[var], {var}
        while level:
            nodes = {
                node for reader in level if reader in self.own
                for node in self.own[reader].nodes if node in present
            }  # fmt: skip
            if nodes:
                return nodes
            visited.update(level)
            level = [n for reader in level for n in self.readers[reader] if n not in visited]
        return set()


def _list_variables(value: relax.Expr) -> list[relax.Var]:
    variables = list(relax.analysis.free_vars(value))
    if isinstance(value, relax.If):
        for branch in (value.true_branch, value.false_branch):
            variables += relax.analysis.free_vars(branch.body)
    return variables


def _is_movement(value: relax.Expr) -> bool:
    return isinstance(value, relax.Call) and getattr(value.op, "name", "") in _MOVEMENTS
