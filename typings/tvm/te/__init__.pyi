from collections.abc import Callable, Sequence
from typing import Any

from tvm.ir import Expr, Node
from tvm.tirx import IterVar, PrimFunc

class _Operation(Node):
    name: str
    input_tensors: Sequence[Tensor]
    def output(self, index: int) -> Tensor: ...

class Tensor(Expr):
    shape: Sequence[Expr]
    dtype: Any
    op: Any
    value_index: int
    name: str
    ndim: int
    def __call__(self, *indices: object) -> Expr: ...
    def __getitem__(self, indices: object) -> Any: ...

def placeholder(
    shape: Sequence[object], dtype: object = None, name: str = "placeholder"
) -> Tensor: ...
def compute(
    shape: Sequence[object],
    fcompute: Callable[..., Any],
    name: str = "compute",
    tag: str = "",
    attrs: object = None,
    varargs_names: object = None,
) -> Any: ...
def reduce_axis(dom: object, name: str = "rv", thread_tag: str = "") -> IterVar: ...
def create_prim_func(
    ops: Sequence[object], index_dtype_override: str | None = None
) -> PrimFunc: ...
def __getattr__(name: str) -> Any: ...
