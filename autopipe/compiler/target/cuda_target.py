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
"""What CUDA 13 compiles for, the CUDA of TVM's wheel."""


def find_arch_attributes(arch: str) -> Mapping[str, object]:
    """Return the attributes of an architecture, or of a GPU that TVM has a tag for.

    Raises TargetError for an architecture that CUDA 13 does not compile for.
    """
    named = _read_tag_attributes(arch) if arch.startswith("nvidia/") else {"arch": arch}
    if str(named["arch"]).rstrip("af") not in ARCHITECTURES:
        known = ", ".join(ARCHITECTURES)
        raise TargetError(
            f"target.arch: CUDA 13 does not compile for {named['arch']}, but for {known}"
        )
    return named


def _read_tag_attributes(name: str) -> dict[str, object]:
    """Return the attributes that TVM has for the name of a GPU, such as `nvidia/nvidia-a100`."""
    tags = [str(tag) for tag in tvm.target.list_tags()]
    if name not in tags:
        near = find_closest(name, tags)
        hint = f"; did you mean {near!r}?" if near else ""
        raise TargetError(f"target.arch: TVM knows no GPU {name!r}{hint}")
    found = tvm.target.Target(name)
    if str(found.kind.name) != CUDA.kind:
        raise TargetError(f"target.arch: {name!r} is not a GPU but {found.kind.name}")
    return dict(found.attrs)
