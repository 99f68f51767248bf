"""Types of TVM 0.27, whose wheel has none: the classes and functions that autopipe uses most.

What is not here is `Any`, by `__getattr__` of each module. What depends on the kind of a node, such
as the attributes of `Expr.ty`, is `Any` too.
"""

from typing import Any

from tvm import ir as ir
from tvm import relax as relax
from tvm import runtime as runtime
from tvm import s_tir as s_tir
from tvm import target as target
from tvm import te as te
from tvm import tirx as tirx
from tvm.ir import IRModule as IRModule
from tvm.runtime import Device, Executable

def cpu(dev_id: int = 0) -> Device: ...
def cuda(dev_id: int = 0) -> Device: ...
def device(device_type: str | int, index: int | None = None) -> Device: ...
def compile(
    mod: ir.IRModule | ir.BaseFunc,
    target: target.Target | str | None = None,
    *,
    relax_pipeline: object = "default",
    tir_pipeline: object = "default",
) -> Executable: ...
def __getattr__(name: str) -> Any: ...
