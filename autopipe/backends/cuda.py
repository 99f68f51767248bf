"""Backend `cuda`: NVIDIA's GPUs. Machine code is made by nvcc, with or without a GPU."""

from typing import Final

from autopipe.backends.backend import Backend

CUDA: Final = Backend(
    kind="cuda",
    device="cuda",
    fields={"arch": "is for kind cuda; a processor is named by mcpu"},
    limits={
        "max_shared_memory_per_block": 48 << 10,
        "max_threads_per_block": 1024,
        "thread_warp_size": 32,
        "registers_per_block": 1 << 16,
    },  # what every GPU of these architectures gives a block, without asking for more
    target="autopipe.compiler.target.cuda_target:target",
    native="autopipe.environment.cuda:native",
    needs="autopipe.compiler.target.gpu:required",
    check="autopipe.compiler.target.gpu:check",
    facts={
        "device": "autopipe.environment.cuda:device",
        "toolchain": "autopipe.environment.cuda:toolchain",
    },
    compiler="autopipe.compiler.library.nvcc",
    runtime="autopipe.compiler.library.cuda_runtime",
)
