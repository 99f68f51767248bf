from collections.abc import Callable
from typing import Any

from tvm.ir import Expr

image: Any
nn: Any
vision: Any
memory: Any
builtin: Any
grad: Any
ccl: Any
distributed: Any
op_attrs: Any
create: Any
index: Any
manipulate: Any

def __getattr__(name: str) -> Callable[..., Expr]: ...
