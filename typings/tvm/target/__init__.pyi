from collections.abc import Mapping
from types import TracebackType
from typing import Any, Self

from tvm.ir import Node

class TargetKind(Node):
    name: str

class Target(Node):
    kind: TargetKind
    attrs: Mapping[str, Any]
    host: Target
    def __init__(self, target: object, host: object = None) -> None: ...
    def export(self) -> Mapping[str, Any]: ...
    def with_host(self, host: object = None) -> Target: ...
    @staticmethod
    def current(allow_none: bool = True) -> Target | None: ...
    def __enter__(self) -> Self: ...
    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None: ...

def list_tags() -> Mapping[str, Target]: ...
def __getattr__(name: str) -> Any: ...
