"""Decides what one task is: TVM's fusion, then the user's rules, then what can be scheduled.

A function that no engine can schedule is split again. Example: a rule joins two convolutions, and
no template, nor sketch search, serves the function of both. It falls back into the groups it was
joined from, and a warning says why.
"""

import fnmatch
from collections import Counter, deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import tvm
from tvm import relax
from tvm.relax.transform import FuseOps, FuseTIR

from autopipe.compiler.fusion import fusion_rules
from autopipe.compiler.fusion.fusion_rules import FusionRules, Warn
from autopipe.compiler.fusion.graph_steps import describe_steps
from autopipe.compiler.fusion.grouping import Group, Grouping
from autopipe.compiler.fusion.neighbours import Pays, can_join, join_neighbours
from autopipe.compiler.fusion.regroup import Functions, read_groups, replace_groups
from autopipe.compiler.labels.op_info import CallInfos
from autopipe.compiler.module_io import list_prim_funcs
from autopipe.compiler.tasks import make_workload
from autopipe.config.suggestion import find_closest
from autopipe.errors import ConfigError

Refusal = Callable[[tvm.IRModule], str | None]
"""Returns why no engine can schedule a workload module, or None if one can."""


@dataclass(frozen=True, slots=True)
class Scope:
    """How the groups of TVM's fusion are changed."""

    rules: FusionRules
    refusal: Refusal
    warn: Warn
    """Told which rules, or parts of them, had no effect."""
    try_all: bool = False
    """Whether all fused functions are tried, not only those that rules joined."""


def fuse_calls(
    module: tvm.IRModule,
    ops: Mapping[str, relax.Expr],
    parts: CallInfos,
    scope: Scope | None,
    pays: Pays | None = None,
) -> tvm.IRModule:
    """Return the legalized module with its calls fused.

    Args:
        module: The legalized module.
        ops: What each name in `main` was bound to before legalization.
        parts: What each call of a PrimFunc computes.
        scope: How TVM's groups are changed; None leaves them as they are.
        pays: Without a scope, says which neighbouring convolutions become one function.
    """
    fused = FuseOps()(module)
    if scope is None:
        if pays is None or not can_join(module, parts):
            return fused
        before = describe_steps(module, ops, parts)
        return join_neighbours(module, fused, before, parts, pays)
    before = describe_steps(module, ops, parts)
    chosen = read_groups(fused, before)
    grouping = Grouping(before.steps, chosen.groups)
    fusion_rules.apply_rules(scope.rules, before.steps, grouping, scope.warn)
    _split_infeasible(grouping, _Trial(Functions(fused, before), scope), scope)
    return replace_groups(fused, before, chosen, [group.steps for group in grouping])


def check_rules(rules: FusionRules) -> None:
    """Raise ConfigError if a rule names no op of Relax, so that it could match nothing."""
    ops_of_relax = [name for name in tvm.ir.Op.list_op_names() if name.startswith("relax.")]
    names = sorted(name.removeprefix("relax.") for name in ops_of_relax)
    wrong = [
        f"fusion.{section}.{position}: {op!r} fits no op of Relax{_suggest_op(op, names)}"
        for section, patterns in (("join", rules.join), ("apart", rules.apart))
        for position, ops in enumerate(patterns)
        for op in ops
        if not fnmatch.filter(names, op)
    ]
    if wrong:
        raise ConfigError("; ".join(wrong))


def _suggest_op(op: str, names: Sequence[str]) -> str:
    """Return a hint for a wrong name: the op that was probably meant, or examples."""
    last = op.rpartition(".")[2].strip("*?")
    same = [name for name in names if name.rpartition(".")[2] == last]
    meant = next(iter(same), None) or find_closest(op, names)
    return f"; did you mean `{meant}`?" if meant else ", such as nn.conv2d or matmul"


class _Trial:
    """Tries functions, each workload once."""

    def __init__(self, functions: Functions, scope: Scope) -> None:
        self._functions = functions
        self._scope = scope
        self._tried: dict[str, str | None] = {}

    def refusal(self, group: Group) -> str | None:
        """Return why a group can not be one function."""
        try:
            merged = FuseTIR()(self._functions.alone(group.steps))
        except (RuntimeError, ValueError, TypeError) as error:
            return f"TVM can not merge them: {str(error).strip().splitlines()[-1]}"
        ((_, function),) = [pair for pair in list_prim_funcs(merged) if pair[0] == "fused"]
        merged_workload = make_workload(function)
        identity = merged_workload.identity
        if identity not in self._tried:
            self._tried[identity] = self._scope.refusal(merged_workload.module)
        return self._tried[identity]


def _split_infeasible(grouping: Grouping, trial: _Trial, scope: Scope) -> None:
    """Split each group that can not be one function, then its pieces likewise, until all can."""
    said: Counter[str] = Counter()
    waiting = deque(grouping)
    while waiting:
        group = waiting.popleft()
        tried = len(group.steps) > 1 and (group.rule or scope.try_all)
        if not tried or grouping.obstacle(group):
            continue
        why = trial.refusal(group)
        if why is not None:
            who = f"{group.rule}: " if group.rule else ""
            said[f"{who}one function of {grouping.named(group)} is split again: {why}"] += 1
            grouping.split(group)
            waiting.extend(group.pieces)
    for text, count in said.items():
        scope.warn(text if count == 1 else f"{text} ({count} times)")
