"""What a backend is: the base class with the questions that all other code asks.

The RFC "Auto-Schedule from Compute Declaration" (apache/tvm#2954) was asked what the key pieces of
a backend's description are, and left it open. These are ours.
"""

from collections.abc import Mapping
from types import MappingProxyType
from typing import TYPE_CHECKING, ClassVar

from autopipe.backends.device import DeviceRuntime, KernelCompiler
from autopipe.errors import TargetError

if TYPE_CHECKING:
    import tvm

    from autopipe.schedules.conditions import Conditions
    from autopipe.schedules.implementations.implementation import Implementation
    from autopipe.schedules.planned import Planned
    from autopipe.schedules.templates.template import AnyTemplate


class Backend:
    """One kind of hardware, by default a device of which TVM only has the code generator.

    A method imports what it needs when it is called: the description of a backend loads neither TVM
    nor a schedule.
    """

    kind: ClassVar[str]
    """TVM's target kind, which is `target.kind` in a pipeline file."""
    device: ClassVar[str]
    """TVM's name of the device on which its kernels run."""
    fields: ClassVar[Mapping[str, str]] = MappingProxyType({})
    """Fields of section `target` that are for this kind alone, each with the message for a target
    of another kind that states it."""
    limits: ClassVar[Mapping[str, object]] = MappingProxyType({})
    """Attributes of TVM's target that are the same for all hardware of this kind."""
    sketches: ClassVar[str] = "cuda"
    """Rules of engine `ansor`, by MetaSchedule's name."""

    runs_on_host: ClassVar[bool] = False
    """Whether kernels run on the processor that calls them, in its memory: nothing is copied to a
    device, and caches, memory limits and forks are those of the process."""
    runs_unscheduled_loops: ClassVar[bool] = False
    """Whether a kernel runs without a schedule that binds its loops to threads of the device."""
    supports_dynamic_shapes: ClassVar[bool] = False
    """Whether kernels may be compiled for dimensions that are known only when they are called."""
    supports_bfloat16_rounding: ClassVar[bool] = False
    """Whether weights and products may be rounded to bfloat16, as `numerics` asks for."""
    supports_remote_runners: ClassVar[bool] = False
    """Whether tuning may measure on other machines."""
    has_half_arithmetic: ClassVar[bool] = True
    """Whether all its hardware computes in float16 and bfloat16; where only some does, graphs are
    widened to float32 by the features of the target."""
    expands_elementary_functions: ClassVar[bool] = False
    """Whether `exp` and the like are compiled as arithmetic, which is vectorized; a GPU has
    instructions for them."""
    fuses_attention: ClassVar[bool] = False
    """Whether there is a schedule for attention in one kernel."""

    def target_attributes(self, facts: Mapping[str, object]) -> Mapping[str, object]:  # noqa: ARG002 - the same for all
        """Return the attributes of TVM's target for resolved facts. Raises TargetError."""
        return {"kind": self.kind, **self.limits}

    def resolve_architecture(self, named: str | None) -> str | None:  # noqa: ARG002 - it has none
        """Return the architecture of a target: the named one, or this machine's for `native`.

        None for hardware without architectures. Raises TargetError where this machine has none.
        """
        return None

    def required_architecture(self, facts: Mapping[str, object]) -> str | None:  # noqa: ARG002
        """Return what code for resolved facts needs of a device, as manifests keep it."""
        return None

    def check_device(self, facts: Mapping[str, object]) -> None:  # noqa: ARG002 - none fits
        """Raise TargetError where kernels for resolved facts cannot run on this machine."""
        raise TargetError(f"built for {self}, which does not run here: there is no runtime")

    def describe_device(self) -> Mapping[str, object]:
        """Return what facet `device` states beside the host."""
        return {}

    def describe_toolchain(self) -> Mapping[str, object]:
        """Return what facet `toolchain` states beside the linker."""
        return {}

    def peak_flops(self, cores: int) -> float:  # noqa: ARG002 - of the whole device
        """Return operations per second that no hardware of this kind reaches on so many cores.

        Faster times are wrong. The largest GPUs do a hundredth of this in 8 bits.
        """
        return 1e18

    def schedule(self, module: "tvm.IRModule", conditions: "Conditions") -> "Planned | None":
        """Schedule `main` for engine `default`, without measuring; None if that serves no such."""
        from autopipe.schedules.engines import dlight

        return dlight.plan(module, conditions)

    def templates(self) -> "tuple[AnyTemplate, ...]":
        """Return the templates, for engines `static` and `autotvm`.

        Raises SetupError if an extension is broken.
        """
        return ()

    def implementations(self) -> "tuple[Implementation, ...]":
        """Return the other ways to compute a function, such as Winograd; raises likewise."""
        return ()

    def compiler(self) -> KernelCompiler | None:
        """Return what compiles kernels, or None if TVM does it alone."""
        return None

    def runtime(self) -> DeviceRuntime | None:
        """Return what kernels need of this process; without it, a device runs nothing here."""
        return None

    def __str__(self) -> str:
        """Return its kind."""
        return self.kind
