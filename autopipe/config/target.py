"""Section `target`: the hardware that is compiled for."""

from typing import Annotated, Literal

from pydantic import Field, StringConstraints

from autopipe.config.frozen import Frozen

Word = Annotated[str, StringConstraints(pattern=r"^[A-Za-z0-9_.+-]+$")]
Feature = Annotated[str, StringConstraints(pattern=r"^[+-][A-Za-z0-9_.-]+$")]


class Target(Frozen, frozen=True):
    """A TVM target. `native` is resolved to this machine before anything is keyed by it."""

    kind: Literal["llvm"] = "llvm"
    """TVM's target kind."""
    mcpu: Word = "native"
    """LLVM's name of the processor, or `native` for the one autopipe runs on."""
    mattr: tuple[Feature, ...] = ()
    """LLVM features to add (`+avx512bf16`) or to take away (`-avx512f`)."""
    mtriple: Word | None = None
    """LLVM triple to compile for; null is the host's. Another machine's is never measured here."""
    num_cores: Annotated[int, Field(ge=1, le=1024)] | None = None
    """Threads the model runs on: in tuning, verification, benchmark and the package. Null is
    every core this process may use."""
