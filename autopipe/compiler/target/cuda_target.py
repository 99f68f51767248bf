"""The architectures of NVIDIA's GPUs, as attributes of TVM's target."""

from collections.abc import Mapping
from typing import Final

import tvm

from autopipe.backends.cuda import CUDA
from autopipe.config.suggestion import find_closest
from autopipe.errors import TargetError

ARCHITECTURES: Final = (
    "sm_75", "sm_80", "sm_86", "sm_87", "sm_88", "sm_89", "sm_90", "sm_100", "sm_103", "sm_110",
    "sm_120", "sm_121",
)  # fmt: skip
"""Architectures that CUDA 13, the version of TVM's wheel, compiles for."""


def find_arch_attributes(arch: str) -> Mapping[str, object]:
    """Return the attributes of an architecture, or of a GPU that TVM has a tag for.

    Raises TargetError for an architecture that CUDA 13 does not compile for.
    """
    attributes = _read_tag_attributes(arch) if arch.startswith("nvidia/") else {"arch": arch}
    if str(attributes["arch"]).rstrip("af") not in ARCHITECTURES:
        architectures = ", ".join(ARCHITECTURES)
        raise TargetError(
            f"target.arch: CUDA 13 does not compile for {attributes['arch']}, "
            f"but for {architectures}"
        )
    return attributes


def _read_tag_attributes(name: str) -> dict[str, object]:
    """Return the attributes of TVM's tag for a GPU, such as `nvidia/nvidia-a100`."""
    tags = [str(tag) for tag in tvm.target.list_tags()]
    if name not in tags:
        near = find_closest(name, tags)
        hint = f"; did you mean {near!r}?" if near else ""
        raise TargetError(f"target.arch: TVM knows no GPU {name!r}{hint}")
    target = tvm.target.Target(name)
    if str(target.kind.name) != CUDA.kind:
        raise TargetError(f"target.arch: {name!r} is not a GPU but {target.kind.name}")
    return dict(target.attrs)
