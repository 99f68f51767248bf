"""Kernels compiled without one of the passes for a processor, to see what it changes."""

from functools import partial

from tvm.tirx.compilation_pipeline import register_tir_pipeline

from autopipe.compiler.codegen import compile_kernels
from autopipe.compiler.pass_lists import HOST_KERNELS, KERNELS


def omit_host_pass(monkeypatch, name):
    """Compile all kernels without the pass of this name until the patch ends."""
    assert name in {one.name for one in HOST_KERNELS}
    rest = tuple(one for one in HOST_KERNELS if one.name != name)
    register_tir_pipeline(
        f"without {name}", partial(compile_kernels.make_kernel_pipeline, KERNELS, rest)
    )
    monkeypatch.setattr(compile_kernels, "_choose_pipeline", lambda _: f"without {name}")
