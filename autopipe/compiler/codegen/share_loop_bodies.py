"""Compile the body of a loop that is parallel or serial once, as a function that both loops call.

Where the amount of work is known only when a kernel is called, its loops are written twice, behind
a condition on the sizes. Their bodies are equal, and would be lowered and compiled twice.

    if height * width >= 16384:            if height * width >= 16384:
        for i in parallel(height):             for i in parallel(height):
            ...                                    body(i, height, width, x, y)
    else:                       becomes    else:
        for i in range(height):                for i in range(height):
            ...                                    body(i, height, width, x, y)
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from itertools import product
from typing import Any, Final

import tvm
import tvm_ffi
from tvm import tirx
from tvm.ir import Call, GlobalVar, PointerType, PrimType, StringImm, Var
from tvm.s_tir import SBlock, SBlockRealize
from tvm.sym import Analyzer

from autopipe.compiler.dynamic_sizes.kernel_sizes import open_variables
from autopipe.compiler.find_nodes import is_among
from autopipe.compiler.loops.copy_loops import copy_root, list_blocks, replace_variables

_STEPS: Final = 96
"""Minimum statements that a shared body runs: a call takes as long as some rows of few elements."""

_ATTRIBUTES: Final = ("target", "s_tir", "tirx.noalias")
"""Attributes of a kernel that the bodies of its loops have, too."""

_DEVICE: Final = {"device_type": 1, "device_id": 0}
"""TVM's attributes for the device that memory is allocated on, and the numbers of the processor."""

_INT32_MAX: Final = (1 << 31) - 1

_STATUS: Final = "int32"
"""Dtype of the result of a function: 0, or -1 where it could not allocate memory."""


def share_loop_bodies(module: tvm.IRModule) -> tvm.IRModule:
    """Move the equal bodies of parallel and serial loops to functions that kernels call."""
    functions = dict(module.functions_items())
    for variable, function in module.functions_items():
        if isinstance(function, tirx.PrimFunc) and isinstance(function.body, SBlockRealize):
            kernel = _LoopedKernel(variable.name_hint, function, open_variables(function))
            functions[variable] = kernel.share_bodies()
            functions |= kernel.bodies
    return tvm.IRModule(functions, attrs=module.attrs)


def state_device(function: tirx.PrimFunc) -> tirx.PrimFunc:
    """State the device of a shared body, as the packed interface of a kernel does."""
    if "global_symbol" in function.attrs:
        return function
    body = function.body
    for key, number in _DEVICE.items():
        body = tirx.AttrStmt(StringImm("default"), key, tirx.const(number, "int32"), body)
    return function.with_body(body)


@dataclass(slots=True)
class _LoopedKernel:
    """A kernel whose loops may share bodies."""

    name: str
    function: tirx.PrimFunc
    sizes: Sequence[Var]
    """The variables of its dynamic sizes; no loops are written twice without any."""
    bodies: dict[GlobalVar, tirx.PrimFunc] = field(default_factory=dict)
    """The functions of shared bodies."""

    def share_bodies(self) -> tirx.PrimFunc:
        """Return the kernel with calls in place of shared bodies, which are added to `bodies`."""
        root = self.function.body.block
        loops = list(_list_outer_loops(root.body)) if self.sizes else []
        calls: list[tuple[tirx.For, Call]] = []
        moved_buffers: list[Var] = []
        for parallel, serial in product(loops, loops):
            if not _may_share(parallel, serial):
                continue
            own, copies = (_list_own_buffers(root, loops, one) for one in (parallel, serial))
            if not _has_equal_body(parallel, own, serial, copies):
                continue
            call = self._add_body(parallel, own)
            if call is not None:
                calls += [(parallel, call), (serial, call)]
                moved_buffers += [*own, *copies]
        if not calls:
            return self.function
        kept_buffers = [one for one in root.alloc_buffers if not is_among(one, moved_buffers)]
        new_root = copy_root(root, _replace_bodies(root.body, calls), kept_buffers)
        return self.function.with_body(SBlockRealize([], predicate=True, block=new_root))

    def _add_body(self, loop: tirx.For, own_buffers: Sequence[Var]) -> Call | None:
        """Add the body of a loop as a function, and return its call.

        None if it needs other values than the loop's variable, sizes and buffers.
        """
        scalars = [loop.loop_var, *self.sizes]
        axes = [axis.var for block in list_blocks(loop) for axis in block.iter_vars]
        used = _list_free(loop.body, [*axes, *own_buffers])
        buffers = [one for one in used if isinstance(one.ty, tirx.BufferType)]
        values = [one for one in used if not isinstance(one.ty, tirx.BufferType)]
        values += [one for buffer in buffers for n in buffer.ty.shape for one in _list_free(n)]
        if not all(is_among(value, scalars) for value in values):
            return None
        pointers = [_make_pointer(buffer) for buffer in buffers]
        place = _make_place(loop)
        bound = tirx.Bind(loop.loop_var, place.astype(loop.loop_var.ty.dtype))
        # TVM knows by the condition what it knows of the variable of a loop
        inner = tirx.IfThenElse(place >= 0, tirx.stmt_seq(bound, loop.body), None)
        statements = tirx.stmt_seq(*map(_declare_buffer, buffers, pointers), inner)
        root = SBlock([], [], [], "root", statements, alloc_buffers=own_buffers)
        realized = SBlockRealize([], predicate=True, block=root)
        body = tirx.PrimFunc([place, *self.sizes, *pointers], realized, PrimType(_STATUS))
        body = body.without_attr("global_symbol")
        for key in _ATTRIBUTES:
            if key in self.function.attrs:
                body = body.with_attr(key, self.function.attrs[key])
        variable = GlobalVar(f"{self.name}_body{len(self.bodies)}")
        self.bodies[variable] = body
        arguments = [place, *self.sizes, *(buffer.data for buffer in buffers)]
        return Call(variable, arguments, ret_ty=body.ret_type)


def _may_share(parallel: tirx.For, serial: tirx.For) -> bool:
    """Tell whether one loop is parallel, the other one serial, and the body long enough."""
    if parallel.kind != tirx.ForKind.PARALLEL or serial.kind != tirx.ForKind.SERIAL:
        return False
    return _count_steps(parallel.body) >= _STEPS


def _count_steps(statement: tirx.Stmt) -> int:
    """Count the statements that a statement runs, with one step of loops of dynamic extents."""
    if isinstance(statement, tirx.For):
        steps = int(statement.extent) if isinstance(statement.extent, tirx.IntImm) else 1
        return steps * _count_steps(statement.body)
    if isinstance(statement, tirx.SeqStmt):
        return sum(map(_count_steps, statement.seq))
    if isinstance(statement, SBlockRealize):
        return _count_steps(statement.block.body)
    bodies = [getattr(statement, name, None) for name in ("body", "then_case", "else_case")]
    return sum(_count_steps(body) for body in bodies if body is not None) or 1


def _has_equal_body(
    parallel: tirx.For, own: Sequence[Var], serial: tirx.For, copies: Sequence[Var]
) -> bool:
    """Tell whether two loops are equal but for their kind, and the buffers that each alone uses."""
    if len(own) != len(copies):
        return False
    renamed_body = replace_variables(parallel.body, list(zip(own, copies, strict=True)))
    return tvm_ffi.structural_equal(_rebuild_loop(parallel, renamed_body, serial.kind), serial)


def _replace_bodies(body: tirx.Stmt, calls: Sequence[tuple[tirx.For, Call]]) -> tirx.Stmt:
    """Replace the bodies of loops by calls, which end the kernel if they fail."""

    def replace(loop: tirx.For) -> tirx.For:
        call = next((call for one, call in calls if one.same_as(loop)), None)
        if call is None:
            return loop
        place = loop.loop_var.astype(call.args[0].ty.dtype)
        own_call = Call(call.op, [place, *list(call.args)[1:]], ret_ty=call.ty)
        stop = tirx.Evaluate(tirx.tvm_throw_last_error())
        return _rebuild_loop(loop, tirx.IfThenElse(own_call != 0, stop, None), loop.kind)

    return tvm_ffi.structural_map(body, (tirx.For, replace))


def _rebuild_loop(loop: tirx.For, body: tirx.Stmt, kind: tirx.ForKind) -> tirx.For:
    return tirx.For(
        loop.loop_var, loop.min, loop.extent, kind, body, loop.thread_binding, loop.annotations
    )


def _make_place(loop: tirx.For) -> Var:
    """Return the parameter for the place in a loop.

    TVM makes the variables of loops of few steps narrower, but not parameters.
    """
    is_short = Analyzer().const_int_bound(loop.extent).max_value <= _INT32_MAX
    dtype = "int32" if is_short else str(loop.loop_var.ty.dtype)
    return Var(str(loop.loop_var.name), PrimType(dtype))


def _make_pointer(buffer: Var) -> Var:
    return Var(f"{buffer.name}_data", PointerType(PrimType(str(buffer.ty.dtype))))


def _declare_buffer(buffer: Var, pointer: Var) -> tirx.Stmt:
    return tirx.DeclBuffer(buffer, data=pointer)


def _list_outer_loops(statement: tirx.Stmt) -> Iterator[tirx.For]:
    """Yield the outermost loops of a statement, in and outside of conditions."""
    if isinstance(statement, tirx.For):
        yield statement
    elif isinstance(statement, tirx.SeqStmt):
        for part in statement.seq:
            yield from _list_outer_loops(part)
    elif isinstance(statement, tirx.IfThenElse):
        yield from _list_outer_loops(statement.then_case)
        if statement.else_case is not None:
            yield from _list_outer_loops(statement.else_case)


def _list_own_buffers(root: SBlock, loops: Sequence[tirx.For], loop: tirx.For) -> list[Var]:
    """List the buffers of a root block that only one of its loops uses."""
    others = [used for one in loops if not one.same_as(loop) for used in _list_free(one)]
    own = _list_free(loop, others)
    return [buffer for buffer in root.alloc_buffers if is_among(buffer, own)]


def _list_free(node: Any, defined: Sequence[Var] = ()) -> list[Var]:  # noqa: ANN401 - any node
    """List the variables that a statement or an expression uses, without those that are defined."""
    return [one for one in tirx.analysis.undefined_vars(node) if not is_among(one, defined)]
