"""Named passes with a reason, and lists of them.

Each pass is registered with TVM's pass infrastructure under its name, so that TVM's instruments see
it. Passes of TVM keep TVM's names, such as `FoldConstant`; ours are verbs in lower case.
"""

import logging
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Final, Generic, TypeVar

import tvm
from tvm import tirx

from autopipe.compiler.graph.contents import list_contents
from autopipe.compiler.step_counter import count_each

_LOG: Final = logging.getLogger(__name__)

State_contra = TypeVar("State_contra", contravariant=True)
"""The options of one run of a list, and the results of its passes besides the module."""

ModulePass = Callable[[tvm.IRModule], tvm.IRModule]
KernelRewrite = Callable[[tirx.PrimFunc], tirx.PrimFunc]


@dataclass(frozen=True, slots=True)
class NamedPass(Generic[State_contra]):
    """A pass over a module."""

    name: str
    reason: str
    """The purpose of the pass, in a line for the reference page."""
    apply: Callable[[tvm.IRModule, State_contra], tvm.IRModule]
    is_wanted: Callable[[State_contra], bool] = lambda _: True
    condition: str = ""
    """The option that enables it, for the reference page; empty if it is always enabled."""
    rewrites: frozenset[str] = frozenset()
    """Entries of `list_contents` that it rewrites. It is skipped for a graph without any of these;
    an empty set never skips it."""

    def describe_condition(self) -> str:
        """Describe the condition of the pass for the reference page; empty if it always runs."""
        parts = ", ".join(f"`{name.removeprefix('relax.')}`" for name in sorted(self.rewrites))
        return "; ".join(filter(None, (self.condition, parts and f"the graph has {parts}")))


@dataclass(frozen=True, slots=True)
class KernelPass:
    """A pass over kernels: each separately, or all of them with functions that they call."""

    name: str
    reason: str
    to_tvm: Callable[[], tvm.transform.Pass]
    """Creates the pass of TVM."""


@dataclass(frozen=True, slots=True)
class PassPhase(Generic[State_contra]):
    """Consecutive passes with one purpose."""

    name: str
    passes: tuple[NamedPass[State_contra], ...]


def tvm_pass(make: Callable[[], tvm.transform.Pass], reason: str) -> NamedPass[object]:
    """Wrap a pass of TVM, under TVM's name."""
    name = str(getattr(make, "__name__", make))
    return NamedPass(name, reason, lambda module, _: make()(module))


def module_pass(
    function: ModulePass, reason: str, rewrites: Iterable[str] = ()
) -> NamedPass[object]:
    """Wrap a function of the module alone as a pass, under the function's name."""
    return NamedPass(
        str(getattr(function, "__name__", "")), reason, lambda module, _: function(module),
        rewrites=frozenset(rewrites),
    )  # fmt: skip


def kernel_pass(rewrite: KernelRewrite, reason: str) -> KernelPass:
    """Wrap a rewrite of each kernel as a pass, under the function's name."""
    name = str(getattr(rewrite, "__name__", ""))
    return KernelPass(name, reason, lambda: tirx.transform.prim_func_pass(
        lambda function, *_: rewrite(function), opt_level=0, name=name
    ))  # fmt: skip


def kernel_module_pass(function: ModulePass, reason: str) -> KernelPass:
    """Wrap a function of all kernels, which may add others, as a pass under its name."""
    name = str(getattr(function, "__name__", ""))
    return KernelPass(name, reason, lambda: tvm.transform.module_pass(
        lambda module, _: function(module), opt_level=0, name=name
    ))  # fmt: skip


def run_passes(
    module: tvm.IRModule, phases: Iterable[PassPhase[State_contra]], state: State_contra
) -> tvm.IRModule:
    """Run the enabled passes of all phases in order, each on the result of the previous one.

    Passes that would find nothing to rewrite are skipped. Raises the errors of passes.
    """
    enabled_passes = [p for phase in phases for p in phase.passes if p.is_wanted(state)]
    contents: frozenset[str] | None = None
    for next_pass in count_each("passes run", enabled_passes, is_even=False):
        if next_pass.rewrites:
            contents = list_contents(module) if contents is None else contents
            if next_pass.rewrites.isdisjoint(contents):
                continue
        new_module = _run_pass(next_pass, module, state)
        if not new_module.same_as(module):
            module, contents = new_module, None
    return module


def _run_pass(
    named_pass: NamedPass[State_contra], module: tvm.IRModule, state: State_contra
) -> tvm.IRModule:
    """Run a pass as one of TVM's. TVM wraps Python errors as its own: the first is re-raised."""
    errors: list[Exception] = []

    def apply(current: tvm.IRModule, _: tvm.transform.PassContext) -> tvm.IRModule:
        try:
            return named_pass.apply(current, state)
        except Exception as error:
            errors.append(error)
            raise

    _LOG.debug("pass %s", named_pass.name)  # before it: native code may end the process
    try:
        return tvm.transform.module_pass(apply, opt_level=0, name=named_pass.name)(module)
    except Exception:
        if errors:
            raise errors[0] from errors[0].__cause__
        raise
