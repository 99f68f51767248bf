"""Backend `llvm`: processors, by LLVM."""

from typing import Final

from autopipe.backends.backend import Backend

_HOST: Final = "is for kind llvm; the host of a GPU is this machine"

CPU: Final = Backend(
    kind="llvm",
    device="cpu",
    fields=dict.fromkeys(("mcpu", "mattr", "mtriple", "linker", "sysroot", "hardware"), _HOST),
    processor=True,
    target="autopipe.compiler.target.target:host_alone",
    default="autopipe.schedules.engines.default:loops",
    sketches="from-target",
    templates="autopipe.schedules.templates:templates",
    implementations="autopipe.schedules.implementations:rewrites",
    peak=4e13,  # of a core: a hundred times two units of 512 bits at 6 GHz, 32 bits an element
)
