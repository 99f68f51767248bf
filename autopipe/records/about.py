"""What people, and searches for look-alikes, want to know of a workload: a note beside its hash."""

import json
import math
from collections.abc import Mapping, Sequence
from typing import Any, Final, NamedTuple, Self

from autopipe import foreign
from autopipe.records import fields
from autopipe.store.canonical import digest_json
from autopipe.tasks.task import Task

_LISTS: Final = ("ops", "inputs", "outputs")
_FIELDS: Final = {*_LISTS, "flops", "likeness"}


class WorkloadInfo(NamedTuple):
    """What a workload computes."""

    ops: tuple[str, ...]
    """Names of its operators; of its blocks where no operators are known."""
    inputs: tuple[str, ...]
    """Tensors that it reads, such as `float32[1,3,224,224]`."""
    outputs: tuple[str, ...]
    """Tensors that it writes."""
    flops: float
    """Floating-point operations of one call; 0 if that is not known."""
    likeness: str | None = None
    """Digest of its operators with their attributes and shapes, which outlasts a release of TVM:
    sha256, 64 hex digits. Null if they are not known."""

    @classmethod
    def of(cls, task: Task) -> Self:
        """Describe the workload of a task."""
        tensors = [(str(t.dtype), list(t.shape)) for t in (*task.inputs, *task.outputs)]
        content = {"info": task.info.model_dump(mode="json"), "tensors": tensors}
        names = [_format_tensor(*tensor) for tensor in tensors]
        count = len(task.inputs)
        return cls(
            task.info.names or (task.name,), tuple(names[:count]), tuple(names[count:]),
            task.flops if math.isfinite(task.flops) else 0.0,
            digest_json(content) if task.info.ops else None,
        )  # fmt: skip

    @classmethod
    def of_module(cls, module: str) -> Self | None:
        """Describe a workload by its module's JSON alone; None if it is not a module.

        Blocks stand for operators, and its last argument for what it writes.
        """
        try:
            return cls._read(json.loads(module)["nodes"])
        except (ValueError, LookupError, TypeError, AttributeError, RecursionError):
            return None

    @classmethod
    def _read(cls, nodes: Sequence[Mapping[str, Any]]) -> Self:
        blocks = [
            nodes[node["data"]["name_hint"]]["data"]
            for node in nodes
            if node["type"] == "s_tir.SBlock"
        ]
        (function,) = (node["data"] for node in nodes if node["type"] == "tirx.PrimFunc")
        types = [nodes[nodes[i]["data"]["ty"]] for i in nodes[function["params"]]["data"]]
        tensors = [
            _format_tensor(nodes[ty["data"]["dtype"]]["data"]["dtype"], _read_shape(nodes, ty))
            for ty in types
            if ty["type"] == "tirx.BufferType"
        ]
        names = tuple(name for name in blocks if name != "root")
        return cls(names, tuple(tensors[:-1]), tuple(tensors[-1:]), 0.0)

    @classmethod
    def parse(cls, text: str | None) -> Self | None:
        """Parse the output of `text`; None if it is damaged."""
        try:
            return cls.from_json(foreign.parse(text or ""))
        except ValueError:
            return None

    @classmethod
    def from_json(cls, content: object) -> Self:
        """Parse the output of `json`. Raises ValueError."""
        if not isinstance(content, dict) or content.keys() != _FIELDS:
            raise ValueError("about is no note of a workload")
        ops, inputs, outputs = (fields.check_texts(content[name], name) for name in _LISTS)
        return cls(
            ops, inputs, outputs, fields.check_count(content["flops"], "flops"),
            fields.check_optional_text(content["likeness"], "likeness"),
        )  # fmt: skip

    def json(self) -> dict[str, object]:
        """Return it as a JSON object."""
        return {
            "ops": list(self.ops), "inputs": list(self.inputs), "outputs": list(self.outputs),
            "flops": self.flops, "likeness": self.likeness,
        }  # fmt: skip

    def text(self) -> str:
        """Write it as canonical JSON."""
        return json.dumps(self.json(), sort_keys=True, separators=(",", ":"))


def _format_tensor(dtype: str, shape: Sequence[int]) -> str:
    return f"{dtype}[{','.join(str(n) if n >= 0 else '?' for n in shape)}]"


def _read_shape(nodes: Sequence[Mapping[str, Any]], ty: Mapping[str, Any]) -> list[int]:
    extents = (nodes[i] for i in nodes[ty["data"]["shape"]]["data"])
    return [nodes[n["data"]["value"]]["data"] if n["type"] == "ir.IntImm" else -1 for n in extents]
