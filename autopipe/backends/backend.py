"""What a backend is made of: the pieces that all other code asks for, by name.

The RFC "Auto-Schedule from Compute Declaration" (apache/tvm#2954) was asked what the key pieces of
a backend's description are, and left it open. These are ours.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from pkgutil import resolve_name
from typing import Any


@dataclass(frozen=True, slots=True, eq=False)
class Backend:
    """One kind of hardware. A piece is named `module:object`, and imported when it is used."""

    kind: str
    """TVM's target kind, which is `target.kind` in a pipeline file."""
    device: str
    """TVM's name of the device on which its kernels run."""
    fields: Mapping[str, str] = field(default_factory=dict)
    """Fields of section `target` that are for this kind alone, each with what to tell who states
    it for another."""
    processor: bool = False
    """Whether its kernels run where the program runs: then loops that nobody scheduled run, too,
    sizes may be open, and elementary functions are compiled as arithmetic."""
    limits: Mapping[str, object] = field(default_factory=dict)
    """Attributes of TVM's target that are the same for all hardware of this kind."""
    target: str = "autopipe.compiler.target.target:beside_host"
    """Makes TVM's target of resolved facts and the host's target."""
    native: str | None = None
    """Returns the architecture of this machine's device, or raises TargetError; without it, the
    target has none."""
    needs: str | None = None
    """Returns what code for resolved facts needs of a device, as manifests keep it."""
    check: str | None = None
    """Raises TargetError where what `needs` returned can not run here; without it, no code of this
    kind runs on this machine."""
    facts: Mapping[str, str] = field(default_factory=dict)
    """What facets say besides, for this kind: functions without arguments, by facet."""
    default: str = "autopipe.schedules.engines.dlight:plan"
    """Engine `default`: schedules a function without measuring."""
    sketches: str = "cuda"
    """Rules of engine `ansor`, by MetaSchedule's name."""
    templates: str | None = None
    """Returns the templates, for engines `static` and `autotvm`; without it there are none."""
    implementations: str | None = None
    """Returns the other ways to compute a function, such as Winograd; without it there are none."""
    compiler: str | None = None
    """Module with `install`, `portable` and `FAILED`: what compiles kernels, if TVM alone does not;
    `autopipe.compiler.library.nvcc` is one."""
    runtime: str | None = None
    """Module with `load`, `untouched`, `Staging` and `NUMBER`: what kernels need of this process;
    `autopipe.compiler.library.cuda_runtime` is one. Without it, a device runs nothing here."""
    peak: float = 1e18
    """Operations in a second that no core of a processor, and no whole device, reaches: faster
    times are wrong. The largest GPUs do a hundredth of this in 8 bits."""

    def piece(self, name: str) -> Any:  # noqa: ANN401 - what the field of this name says
        """Return the object that a field names, or None where it names none."""
        where = getattr(self, name)
        return None if where is None else resolve_name(where)

    def __str__(self) -> str:
        """Return its kind."""
        return self.kind
