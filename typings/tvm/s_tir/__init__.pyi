from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from tvm.ir import Expr, TensorRegion, Var
from tvm.s_tir.schedule import Schedule as Schedule
from tvm.s_tir.schedule import ScheduleError as ScheduleError
from tvm.tirx import IterVar, Stmt

class SBlock(Stmt):
    iter_vars: Sequence[IterVar]
    reads: Sequence[TensorRegion]
    writes: Sequence[TensorRegion]
    name_hint: str
    body: Any
    init: Any
    alloc_buffers: Sequence[Var]
    match_buffers: Sequence[Any]
    annotations: Mapping[str, Any]
    def __init__(
        self,
        iter_vars: Iterable[IterVar],
        reads: Iterable[TensorRegion],
        writes: Iterable[TensorRegion],
        name_hint: str,
        body: Stmt,
        init: Stmt | None = None,
        alloc_buffers: Iterable[Var] | None = None,
        match_buffers: Iterable[Any] | None = None,
        annotations: Mapping[str, Any] | None = None,
    ) -> None: ...

class SBlockRealize(Stmt):
    iter_values: Sequence[Expr]
    predicate: Expr
    block: SBlock
    def __init__(
        self,
        iter_values: Iterable[Expr],
        predicate: object,
        block: SBlock,
    ) -> None: ...

def __getattr__(name: str) -> Any: ...
