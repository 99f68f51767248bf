"""The base class of backends: the interface that all other code uses.

The RFC "Auto-Schedule from Compute Declaration" (apache/tvm#2954) left open which parts a
description of a backend needs. These are ours.
"""

from collections.abc import Mapping
from types import MappingProxyType
from typing import TYPE_CHECKING, ClassVar

from autopipe.backends.device import DeviceRuntime, KernelCompiler
from autopipe.errors import TargetError

if TYPE_CHECKING:
    import tvm

    from autopipe.schedules.conditions import Conditions
    from autopipe.schedules.engines.engine import Planned
    from autopipe.schedules.implementations.implementation import Implementation
    from autopipe.schedules.templates.template import AnyTemplate


class Backend:
    """One kind of hardware; the defaults are those of a device with only TVM's code generator.

    A method imports what it needs when it is called: the description of a backend loads neither TVM
    nor a schedule.
    """

    kind: ClassVar[str]
    """TVM's target kind, which is `target.kind` in a pipeline file."""
    device: ClassVar[str]
    """TVM's name of the device on which its kernels run."""
    fields: ClassVar[Mapping[str, str]] = MappingProxyType({})
    """Fields of section `target` that only this kind has, with the message for other kinds."""
    limits: ClassVar[Mapping[str, object]] = MappingProxyType({})
    """Attributes of TVM's target that are equal for all hardware of this kind."""
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
    """Whether `numerics` may ask for bfloat16 weights and matmuls."""
    supports_remote_runners: ClassVar[bool] = False
    """Whether tuning may measure on other machines."""
    has_half_arithmetic: ClassVar[bool] = True
    """Whether all its hardware computes in float16 and bfloat16; where only some does, graphs are
    widened to float32 by the features of the target."""
    expands_elementary_functions: ClassVar[bool] = False
    """Whether functions such as `exp` are expanded to arithmetic, which is vectorized; a GPU has
    instructions for them."""
    fuses_attention: ClassVar[bool] = False
    """Whether there is a schedule for attention in one kernel."""

    def target_attributes(self, facts: Mapping[str, object]) -> Mapping[str, object]:  # noqa: ARG002 - the same for all
        """Return the attributes of TVM's target for resolved facts. Raises TargetError."""
        return {"kind": self.kind, **self.limits}

    def resolve_architecture(self, name: str | None) -> str | None:  # noqa: ARG002 - it has none
        """Resolve the architecture of a target: `native` is that of this machine.

        None for hardware without architectures. Raises TargetError if this machine has no device.
        """
        return None

    def required_architecture(self, facts: Mapping[str, object]) -> str | None:  # noqa: ARG002
        """Return the architecture that code for resolved facts requires, for manifests."""
        return None

    def check_device(self, facts: Mapping[str, object]) -> None:  # noqa: ARG002 - none fits
        """Raise TargetError if kernels for resolved facts cannot run on this machine."""
        raise TargetError(f"built for {self}, which does not run here: there is no runtime")

    def describe_device(self) -> Mapping[str, object]:
        """Return the facts of facet `device` besides those of the host."""
        return {}

    def describe_toolchain(self) -> Mapping[str, object]:
        """Return the facts of facet `toolchain` besides the linker."""
        return {}

    def peak_flops(self, cores: int) -> float:  # noqa: ARG002 - of the whole device
        """Return an upper bound of operations per second on so many cores.

        Times below this bound are rejected. The largest GPUs reach a hundredth of it in int8.
        """
        return 1e18

    def schedule(self, module: "tvm.IRModule", conditions: "Conditions") -> "Planned | None":
        """Schedule `main` for engine `default` without measuring; None if it does not apply."""
        from autopipe.schedules.engines import dlight

        return dlight.plan(module, conditions)

    def templates(self) -> "tuple[AnyTemplate, ...]":
        """Return the templates, for engines `static` and `autotvm`.

        Raises SetupError if an extension is broken.
        """
        return ()

    def implementations(self) -> "tuple[Implementation, ...]":
        """Return alternative implementations, such as Winograd. Raises SetupError likewise."""
        return ()

    def compiler(self) -> KernelCompiler | None:
        """Return the kernel compiler, or None if TVM compiles them alone."""
        return None

    def runtime(self) -> DeviceRuntime | None:
        """Return the runtime of the device in this process, or None if kernels cannot run."""
        return None

    def __str__(self) -> str:
        """Return its kind."""
        return self.kind
