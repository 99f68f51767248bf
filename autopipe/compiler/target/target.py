"""Makes TVM's `Target` from the resolved facts of a target."""

from collections.abc import Mapping
from typing import Final

import tvm
from tvm.target import codegen

from autopipe.config.suggestion import closest
from autopipe.errors import TargetError

ARCHITECTURES: Final = (
    "sm_75", "sm_80", "sm_86", "sm_87", "sm_88", "sm_89", "sm_90", "sm_100", "sm_103", "sm_110",
    "sm_120", "sm_121",
)  # fmt: skip
"""What CUDA 13 compiles for, the CUDA of TVM's wheel."""

_LIMITS: Final = {
    "max_shared_memory_per_block": 48 << 10,
    "max_threads_per_block": 1024,
    "thread_warp_size": 32,
    "registers_per_block": 1 << 16,
}
"""What every GPU of these architectures gives a block, without asking for more."""


def tvm_target(facts: Mapping[str, object]) -> tvm.target.Target:
    """Return TVM's target for the resolved facts of `Facet.TARGET`.

    Raises TargetError for a processor or GPU that LLVM or nvcc does not know, and for anything else
    that TVM refuses.
    """
    here = processor(facts)
    return _gpu(str(facts["arch"]), here) if facts["kind"] == "cuda" else here


def processor(facts: Mapping[str, object]) -> tvm.target.Target:
    """Return the processor among the facts: what is compiled for, or the host of the GPU.

    Raises TargetError for a processor that LLVM does not know. TVM would only log that, and compile
    for `generic`.
    """
    names = ("mcpu", "mattr", "mtriple")
    entries = {"kind": "llvm", **{name: facts[name] for name in names if facts.get(name)}}
    if "mattr" in entries:
        entries["mattr"] = list(facts["mattr"])  # type: ignore[call-overload]
    entries["num-cores"] = facts["num_cores"]
    _check_processor(str(facts["mcpu"]), facts.get("mtriple"))
    return _target(entries)


def is_gpu(target: tvm.target.Target) -> bool:
    """Tell whether kernels of the target run on a GPU."""
    return str(target.kind.name) == "cuda"


def host(cores: int) -> tvm.target.Target:
    """Return a target that every processor of this machine's architecture can run.

    Weights are transformed with code for it: that code has to run on this machine, whatever the
    model is built for, and has to give the same bits on every machine.
    """
    return tvm.target.Target({"kind": "llvm", "num-cores": cores})


def _gpu(arch: str, here: tvm.target.Target) -> tvm.target.Target:
    entries = {"kind": "cuda", "arch": arch, **_LIMITS}
    if arch.startswith("nvidia/"):
        entries = {"kind": "cuda", **_tagged(arch), **_LIMITS}
    if str(entries["arch"]).rstrip("af") not in ARCHITECTURES:
        known = ", ".join(ARCHITECTURES)
        raise TargetError(
            f"target.arch: CUDA 13 does not compile for {entries['arch']}, but for {known}"
        )
    return tvm.target.Target(entries, host=here)


def _tagged(name: str) -> dict[str, object]:
    """Return TVM's target for the name of a GPU, such as `nvidia/nvidia-a100`."""
    tags = [str(tag) for tag in tvm.target.list_tags()]
    if name not in tags:
        near = closest(name, tags)
        hint = f"; did you mean {near!r}?" if near else ""
        raise TargetError(f"target.arch: TVM knows no GPU {name!r}{hint}")
    found = tvm.target.Target(name)
    if not is_gpu(found):
        raise TargetError(f"target.arch: {name!r} is not a GPU but {found.kind.name}")
    return dict(found.attrs)


def _check_processor(mcpu: str, mtriple: object) -> None:
    triple = str(mtriple or codegen.llvm_get_system_triple())
    if codegen.llvm_is_valid_cpu(mcpu, triple):
        return
    if not codegen.llvm_is_valid_cpu("generic", triple):
        raise TargetError(f"target.mtriple: LLVM knows no processor for {triple!r}")
    target = tvm.target.Target({"kind": "llvm", "mtriple": triple})
    near = closest(mcpu, map(str, codegen.llvm_get_cpu_archlist(target)))
    hint = f"; did you mean {near!r}?" if near else ""
    raise TargetError(f"target.mcpu: LLVM knows no processor {mcpu!r} for {triple}{hint}")


def _target(entries: Mapping[str, object]) -> tvm.target.Target:
    try:
        return tvm.target.Target(entries)
    except (RuntimeError, ValueError, TypeError) as error:
        reason = str(error).strip().splitlines()[-1]
        raise TargetError(f"TVM refuses the target {entries}: {reason}") from None
