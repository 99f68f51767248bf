"""Labels of the model's nodes on variables of a graph, so that kernel calls name their nodes.

    lv3@4,7 = nn.conv2d(...)       computed for nodes 4 and 7, which a rewrite merged
    lv9@+4 = permute_dims(...)     added by the compiler for node 4, as where a layout changes

A label is a suffix of a variable's name. Passes keep the names of what they rewrite, and names of
variables enter neither PrimFuncs nor machine code: `strip_label` gives back the name without it.
"""

import re
from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
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
"""Operators that a change of layout adds."""


@dataclass(frozen=True, slots=True)
class Label:
    """Nodes of the model that a value is computed for, by position."""

    nodes: tuple[int, ...]
    added: bool = False
    """Whether the compiler added it: no node of the model computes it."""

    @property
    def suffix(self) -> str:
        """Return what a variable's name ends with."""
        return f"@{'+' * self.added}{','.join(map(str, self.nodes))}"


Labels = dict[relax.Var, Label]


def strip_label(name: str) -> str:
    """Return the name of a variable without its label."""
    return _SUFFIX.sub("", name)


def read_label(name: str) -> Label | None:
    """Return the label in the name of a variable, or None."""
    found = _SUFFIX.search(name)
    return found and Label(tuple(map(int, found[2].split(","))), bool(found[1]))


def merge_labels(labels: Iterable[Label | None]) -> Label | None:
    """Return the label of what is computed for several; additions count where there is no other."""
    known = [label for label in labels if label is not None]
    kept = [label for label in known if not label.added] or known
    nodes = sorted({node for label in kept for node in label.nodes})
    return Label(tuple(nodes), all(label.added for label in kept)) if nodes else None


def set_labels(module: tvm.IRModule, labels: Mapping[relax.Var, Label]) -> tvm.IRModule:
    """Return the module with these labels in the names of its variables, which nothing else has."""
    renamed = {
        var: type(var)(strip_label(var.name) + label.suffix, var.ty)
        for var, label in labels.items()
        if read_label(var.name) != label
    }
    if not renamed:
        return module
    changed = tvm.IRModule(dict(module.functions_items()), attrs=module.attrs)
    for variable, function in graph_functions(module):
        written = tvm_ffi.structural_map(function, (relax.Var, lambda var: renamed.get(var, var)))
        changed.update_func(variable, written)
    return changed


def complete_labels(module: tvm.IRModule, *, imported: bool = False) -> tvm.IRModule:
    """Label what has no label after those that read it, after what it reads, or after the caller.

    What moves data then counts as added, unless the module was just `imported`. What computes does
    not, even where only such a movement reads it: a convolution in the place of a transposed one is
    that node, whose results the rest moves.
    """
    labels: Labels = {}
    functions = {str(var.name_hint): function for var, function in graph_functions(module)}
    callers: dict[str, Label | None] = {}
    for name in sort_callers_first(functions, "main"):
        graph = _Readers(functions[name])
        found = graph.complete(imported=imported)
        if (caller := callers.get(name)) is not None:
            found |= {one.var: caller for one in graph.bound if one.var not in found}
        for binding in graph.bound:
            if isinstance(getattr(binding.value, "op", None), tvm.ir.GlobalVar):
                called = str(binding.value.op.name_hint)
                known = callers.get(called), found.get(binding.var)
                callers[called] = merge_labels(known)
        labels |= found
    return set_labels(module, labels)


def keep_merged(before: tvm.IRModule, after: tvm.IRModule) -> tvm.IRModule:
    """Return a rewritten module whose variables name the nodes that the rewrite merged, too.

    Example: MatMul, Softmax and MatMul became one call of attention, bound to the variable of the
    last. A node that is gone is named with the next that reads its result and is still there.
    """
    after = _find_added(before, after)
    own = _read_labels(after)
    present = {node for label in own.values() if not label.added for node in label.nodes}
    gone = {node for label in _read_labels(before).values() for node in label.nodes} - present
    if not gone:
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
    for var, label in own.items():
        merged = set().union(*(successors[node] for node in label.nodes if node in successors))
        if merged and not label.added:
            labels[var] = Label(tuple(sorted({*label.nodes, *merged})))
    return set_labels(after, labels)


def _find_added(before: tvm.IRModule, after: tvm.IRModule) -> tvm.IRModule:
    """Label what moves the result of a node that moved nothing before, and has its variable now.

    Example: behind `lv = relu(x); gv@5 = permute_dims(lv)`, where node 5 is a Relu, `lv` is node 5.
    """
    moving = {
        node
        for _, function in graph_functions(before)
        for binding in list_bindings(function) if _is_movement(binding.value)
        for node in (read_label(binding.var.name) or Label(())).nodes
    }  # fmt: skip
    found: Labels = {}
    for _, function in graph_functions(after):
        for binding in reversed(list_bindings(function)):
            label = found.get(binding.var) or read_label(binding.var.name)
            if label is None or not _is_movement(binding.value) or moving.intersection(label.nodes):
                continue
            source = binding.value.args[0]
            if isinstance(source, relax.Var) and read_label(source.name) is None:
                found |= {binding.var: Label(label.nodes, added=True), source: Label(label.nodes)}
    return set_labels(after, found)


def _read_labels(module: tvm.IRModule) -> Labels:
    """Return the labels of a module's variables."""
    variables = (
        one.var for _, function in graph_functions(module) for one in list_bindings(function)
    )
    return {var: label for var in variables if (label := read_label(var.name)) is not None}


class _Readers:
    """Which variables of a function read which."""

    def __init__(self, function: relax.Function) -> None:
        self.bound = list_bindings(function)
        self.own: Labels = {
            binding.var: label for binding in self.bound
            if (label := read_label(binding.var.name)) is not None
        }  # fmt: skip
        self.readers: dict[relax.Var, list[relax.Var]] = defaultdict(list)
        self.read: dict[relax.Var, list[relax.Var]] = {}
        for binding in self.bound:
            self.read[binding.var] = _list_variables(binding.value)
            for var in self.read[binding.var]:
                self.readers[var].append(binding.var)

    def complete(self, *, imported: bool) -> Labels:
        """Return a label for each variable that has one, or gets one of its neighbours."""
        found = dict(self.own)
        bare = [binding for binding in self.bound if binding.var not in found]
        steps = [(binding, self.readers[binding.var]) for binding in reversed(bare)]
        steps += [(binding, self.read[binding.var]) for binding in bare]
        for binding, others in steps:
            if binding.var in found:
                continue
            label = merge_labels(found.get(var) for var in others)
            if label is not None:
                moves = _is_movement(binding.value)
                added = moves and (label.added or not imported)
                found[binding.var] = Label(label.nodes, added)
        return found

    def find_reader(self, var: relax.Var, present: set[int]) -> set[int]:
        """Return the nodes of the nearest readers, direct or not, that are among some."""
        level, seen = self.readers[var], {var}
        while level:
            found = {
                node for one in level if one in self.own
                for node in self.own[one].nodes if node in present
            }  # fmt: skip
            if found:
                return found
            seen.update(level)
            level = [more for one in level for more in self.readers[one] if more not in seen]
        return set()


def _list_variables(value: relax.Expr) -> list[relax.Var]:
    found = list(relax.analysis.free_vars(value))
    if isinstance(value, relax.If):
        for branch in (value.true_branch, value.false_branch):
            found += relax.analysis.free_vars(branch.body)
    return found


def _is_movement(value: relax.Expr) -> bool:
    return isinstance(value, relax.Call) and getattr(value.op, "name", "") in _MOVEMENTS
