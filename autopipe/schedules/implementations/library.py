"""The implementations that call a library for one op, and keep the loops of the others.

Example: in matmul -> add -> relu, OpenBLAS computes the product into a buffer; the template
`library_call` schedules the loops of add and relu behind the call.
"""

from dataclasses import dataclass

import tvm
from tvm.s_tir import SBlock, SBlockRealize, Schedule
from tvm.tirx import BufferType, SeqStmt, stmt_seq

from autopipe.compiler.graph.literals import describe_buffer
from autopipe.compiler.labels.op_info import read_op_info
from autopipe.compiler.library import linking
from autopipe.compiler.loops.copy_loops import copy_root
from autopipe.libraries.library import Library
from autopipe.schedules.analysis import gemm
from autopipe.schedules.analysis.blocks import is_copy
from autopipe.schedules.analysis.product import Product
from autopipe.schedules.analysis.single_reduction import split_at_reduction
from autopipe.schedules.hardware import HardwareParams
from autopipe.schedules.implementations.dispatch import can_take_op
from autopipe.schedules.implementations.library_call import write_library_call
from autopipe.schedules.primitives import inline_blocks, make_schedule
from autopipe.tasks.tensor import Tensor


@dataclass(frozen=True, slots=True)
class LibraryCall:
    """The implementation that calls a library; its name is that of the library."""

    library: Library
    cores: int
    """Number of threads for a matmul."""
    FAST: bool = False

    @property
    def NAME(self) -> str:  # noqa: N802 - a constant of a module
        """Name in YAML, records and reports."""
        return self.library.name

    def rewrite(self, workload: tvm.IRModule) -> tvm.IRModule | None:
        """Insert the call into the workload, or return None if the library does not support it."""
        function = workload["main"]
        if not can_take_op(self.library, read_op_info(function), _list_input_tensors(function)):
            return None
        try:
            return self._insert_call(workload)
        except RuntimeError:  # TIR without blocks, or copies that cannot be inlined
            return None

    def gain(self, workload: tvm.IRModule, hardware: HardwareParams) -> float:  # noqa: ARG002 - a protocol
        """Return 0, so that a library is selected only by measurement or by a rule."""
        return 0.0

    def _insert_call(self, workload: tvm.IRModule) -> tvm.IRModule | None:
        """Insert the call, with the copies of operands inlined where possible."""
        sch = make_schedule(workload)
        parts = split_at_reduction(sch)
        if parts is None:
            return None
        before, total, _ = parts
        copies = tuple(block.name_hint for block in before if is_copy(block))
        for copy_names in dict.fromkeys([copies, ()]):
            trial = make_schedule(workload)
            inline_blocks(trial, copy_names)
            module = self._replace_block(trial, total.name_hint)
            if module is not None:
                return module
        return None

    def _replace_block(self, sch: Schedule, name: str) -> tvm.IRModule | None:
        """Replace the loops around a block by the call."""
        block = sch.get_sblock(name)
        product = Product.of(sch.get(block))
        products = gemm.match_gemm(product) if product else None
        if products is None or products.products < self.library.least:
            return None
        call = write_library_call(
            f"{name}_{self.NAME}", products, self.library.interface, self.cores
        )
        if call is None:
            return None
        loops = sch.get_loops(block)
        if not loops:
            return None
        function = sch.mod["main"]
        body = _replace_statement(function.body.block, sch.get(loops[0]), call)
        function_with_call = function.with_body(body).with_attr(
            linking.ATTRIBUTE, linking.format_label(self.library)
        )
        return tvm.IRModule({"main": function_with_call})


def _list_input_tensors(function: tvm.tirx.PrimFunc) -> tuple[Tensor, ...]:
    """Return shape and dtype of each tensor parameter of a function."""
    buffers = [param for param in function.params if isinstance(param.ty, BufferType)]
    return tuple(map(describe_buffer, buffers))


def _replace_statement(root: SBlock, old: tvm.tirx.Stmt, new: tvm.tirx.Stmt) -> SBlockRealize:
    """Return a copy of the root block with the statement `old` replaced by `new`."""
    nests = list(root.body) if isinstance(root.body, SeqStmt) else [root.body]
    body = stmt_seq(*(new if nest.same_as(old) else nest for nest in nests))
    return SBlockRealize([], True, copy_root(root, body))  # noqa: FBT003 - TVM's signature
