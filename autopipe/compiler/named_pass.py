"""A pass with a name and a reason, and how a list of them is run.

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
"""The options of one run of a list, and what its passes report."""

ModulePass = Callable[[tvm.IRModule], tvm.IRModule]
KernelRewrite = Callable[[tirx.PrimFunc], tirx.PrimFunc]


@dataclass(frozen=True, slots=True)
class NamedPass(Generic[State_contra]):
    """A pass over a module."""

    name: str
    reason: str
    """Why it is run, in a line for the reference page."""
    apply: Callable[[tvm.IRModule, State_contra], tvm.IRModule]
    is_wanted: Callable[[State_contra], bool] = lambda _: True
    condition: str = ""
    """What an option has to be for it, for the reference page; empty if it depends on none."""
    rewrites: frozenset[str] = frozenset()
    """What `list_contents` calls the parts of a graph that it rewrites. It is skipped where the
    graph has none of these; without any it is always run."""

    def describe_condition(self) -> str:
        """Return when it is run, for the reference page; empty if always."""
        parts = ", ".join(f"`{name.removeprefix('relax.')}`" for name in sorted(self.rewrites))
        return "; ".join(filter(None, (self.condition, parts and f"the graph has {parts}")))


@dataclass(frozen=True, slots=True)
class KernelPass:
    """A pass that rewrites each kernel by itself."""

    name: str
    reason: str
    rewrite: KernelRewrite

    def to_tvm(self) -> tvm.transform.Pass:
        """Return the pass as TVM runs it."""
        return tirx.transform.prim_func_pass(
            lambda function, *_: self.rewrite(function), opt_level=0, name=self.name
        )


@dataclass(frozen=True, slots=True)
class PassPhase(Generic[State_contra]):
    """Passes that follow each other for one purpose."""

    name: str
    passes: tuple[NamedPass[State_contra], ...]


def tvm_pass(make: Callable[[], tvm.transform.Pass], reason: str) -> NamedPass[object]:
    """Return a pass of TVM, under the name that TVM gives it."""
    name = str(getattr(make, "__name__", make))
    return NamedPass(name, reason, lambda module, _: make()(module))


def module_pass(
    function: ModulePass, reason: str, rewrites: Iterable[str] = ()
) -> NamedPass[object]:
    """Return a pass that needs nothing but the module, under the name of its function."""
    return NamedPass(
        str(getattr(function, "__name__", "")), reason, lambda module, _: function(module),
        rewrites=frozenset(rewrites),
    )  # fmt: skip


def kernel_pass(rewrite: KernelRewrite, reason: str) -> KernelPass:
    """Return a pass over kernels, under the name of its function."""
    return KernelPass(str(getattr(rewrite, "__name__", "")), reason, rewrite)


def run_passes(
    module: tvm.IRModule, phases: Iterable[PassPhase[State_contra]], state: State_contra
) -> tvm.IRModule:
    """Run the passes of all phases that are wanted, in order; each sees what the one before made.

    Passes that would find nothing to rewrite are skipped. Raises what a pass raises.
    """
    wanted = [one for phase in phases for one in phase.passes if one.is_wanted(state)]
    contents: frozenset[str] | None = None
    for one in count_each("passes run", wanted, is_even=False):
        if one.rewrites:
            contents = list_contents(module) if contents is None else contents
            if one.rewrites.isdisjoint(contents):
                continue
        module, contents = _run_pass(one, module, state), None
    return module


def _run_pass(
    one: NamedPass[State_contra], module: tvm.IRModule, state: State_contra
) -> tvm.IRModule:
    """Run a pass as one of TVM's. TVM raises errors of Python as its own: the first is kept."""
    raised: list[Exception] = []

    def apply(given: tvm.IRModule, _: tvm.transform.PassContext) -> tvm.IRModule:
        try:
            return one.apply(given, state)
        except Exception as error:
            raised.append(error)
            raise

    _LOG.debug("pass %s", one.name)  # before it: native code may end the process
    try:
        return tvm.transform.module_pass(apply, opt_level=0, name=one.name)(module)
    except Exception:
        if raised:
            raise raised[0] from raised[0].__cause__
        raise
