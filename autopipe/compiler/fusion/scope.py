"""Define tasks: TVM's fusion, then the user's rules, then splits of unschedulable groups.

A function that no engine can schedule is split again. Example: a rule joins two convolutions, and
neither a template nor sketch search can schedule the joint function. It is split into the groups it
was joined from, with a warning.
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
"""Returns the reason why no engine can schedule a workload module, or None."""


@dataclass(frozen=True, slots=True)
class Scope:
    """Options for changing the groups of TVM's fusion."""

    rules: FusionRules
    refusal: Refusal
    warn: Warn
    """Receives the rules, or parts of them, that had no effect."""
    try_all: bool = False
    """Whether all fused functions are checked, not only those that rules joined."""


def fuse_calls(
    module: tvm.IRModule,
    ops: Mapping[str, relax.Expr],
    parts: CallInfos,
    scope: Scope | None,
    pays: Pays | None = None,
) -> tvm.IRModule:
    """Fuse the calls of a legalized module.

    Args:
        module: The legalized module.
        ops: The value of each name in `main` before legalization.
        parts: The op of each call of a PrimFunc.
        scope: Changes to TVM's groups; None leaves them as they are.
        pays: Without a scope, predicate of consecutive convolutions that become one function.
    """
    fused_module = FuseOps()(module)
    if scope is None:
        if pays is None or not can_join(module, parts):
            return fused_module
        before = describe_steps(module, ops, parts)
        return join_neighbours(module, fused_module, before, parts, pays)
    before = describe_steps(module, ops, parts)
    fused_groups = read_groups(fused_module, before)
    grouping = Grouping(before.steps, fused_groups.groups)
    fusion_rules.apply_rules(scope.rules, before.steps, grouping, scope.warn)
    _split_infeasible(grouping, _Trial(Functions(fused_module, before), scope), scope)
    return replace_groups(fused_module, before, fused_groups, [group.steps for group in grouping])


def check_rules(rules: FusionRules) -> None:
    """Raise ConfigError if a pattern of a rule matches no op of Relax."""
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
    """Suggest the closest op for a wrong name, or examples."""
    last = op.rpartition(".")[2].strip("*?")
    same_names = [name for name in names if name.rpartition(".")[2] == last]
    suggestion = next(iter(same_names), None) or find_closest(op, names)
    return f"; did you mean `{suggestion}`?" if suggestion else ", such as nn.conv2d or matmul"


class _Trial:
    """Checks whether functions can be scheduled, each workload once."""

    def __init__(self, functions: Functions, scope: Scope) -> None:
        self._functions = functions
        self._scope = scope
        self._tried: dict[str, str | None] = {}

    def refusal(self, group: Group) -> str | None:
        """Return the reason why a group cannot be one function, or None."""
        try:
            fused_module = FuseTIR()(self._functions.alone(group.steps))
        except (RuntimeError, ValueError, TypeError) as error:
            return f"TVM cannot merge them: {str(error).strip().splitlines()[-1]}"
        ((_, function),) = [pair for pair in list_prim_funcs(fused_module) if pair[0] == "fused"]
        merged_workload = make_workload(function)
        identity = merged_workload.identity
        if identity not in self._tried:
            self._tried[identity] = self._scope.refusal(merged_workload.module)
        return self._tried[identity]


def _split_infeasible(grouping: Grouping, trial: _Trial, scope: Scope) -> None:
    """Split each group that cannot be one function, recursively."""
    warning_counts: Counter[str] = Counter()
    waiting = deque(grouping)
    while waiting:
        group = waiting.popleft()
        is_candidate = len(group.steps) > 1 and (group.rule or scope.try_all)
        if not is_candidate or grouping.obstacle(group):
            continue
        reason = trial.refusal(group)
        if reason is not None:
            rule_prefix = f"{group.rule}: " if group.rule else ""
            warning_counts[
                f"{rule_prefix}one function of {grouping.named(group)} is split again: {reason}"
            ] += 1
            grouping.split(group)
            waiting.extend(group.pieces)
    for text, count in warning_counts.items():
        scope.warn(text if count == 1 else f"{text} ({count} times)")
