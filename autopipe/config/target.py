"""Section `target`: the hardware that is compiled for."""

from collections.abc import Iterator
from typing import Annotated, Literal, Self

from pydantic import Field, StringConstraints, model_validator

from autopipe.config.contradiction import Contradiction, refuse
from autopipe.config.frozen import Frozen

Word = Annotated[str, StringConstraints(pattern=r"^[A-Za-z0-9_.+-]+$")]
Feature = Annotated[str, StringConstraints(pattern=r"^[+-][A-Za-z0-9_.-]+$")]
Arch = Annotated[
    str, StringConstraints(pattern=r"^(native|sm_[0-9]+[af]?|nvidia/[A-Za-z0-9,_.-]+)$")
]


class Target(Frozen, frozen=True):
    """A TVM target. `native` is resolved to this machine before anything is keyed by it."""

    kind: Literal["llvm", "cuda"] = "llvm"
    """TVM's target kind: `llvm` is a processor, `cuda` an NVIDIA GPU in this machine."""
    arch: Arch | None = None
    """The GPU: `sm_90`, TVM's name of one (`nvidia/nvidia-h100`), or `native`, which null is for
    `cuda`: the first one here."""
    mcpu: Word = "native"
    """LLVM's name of the processor, or `native` for the one autopipe runs on."""
    mattr: tuple[Feature, ...] = ()
    """LLVM features to add (`+avx512bf16`) or to take away (`-avx512f`)."""
    mtriple: Word | None = None
    """LLVM triple to compile for; null is the host's. Another machine's is never measured here."""
    num_cores: Annotated[int, Field(ge=1, le=1024)] | None = None
    """Threads the model runs on: in tuning, verification, benchmark and the package. Null is
    every core this process may use."""

    @model_validator(mode="after")
    def _consistent(self) -> Self:
        refuse("target", self._contradictions())
        return self

    def _contradictions(self) -> Iterator[Contradiction]:
        """Yield each field that is not for this kind."""
        if self.kind == "llvm" and self.arch is not None:
            yield ("arch",), self.arch, "is for kind cuda; a processor is named by mcpu"
        if self.kind == "cuda":
            for name in ("mcpu", "mattr", "mtriple"):
                value = getattr(self, name)
                if value != type(self).model_fields[name].default:
                    yield (name,), value, "is for kind llvm; the host of a GPU is this machine"
