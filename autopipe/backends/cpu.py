"""Backend `llvm`: processors, compiled by LLVM."""

from collections.abc import Mapping
from typing import TYPE_CHECKING, ClassVar, Final

from autopipe.backends.backend import Backend

if TYPE_CHECKING:
    import tvm

    from autopipe.schedules.conditions import Conditions
    from autopipe.schedules.engines.engine import Planned
    from autopipe.schedules.implementations.implementation import Implementation
    from autopipe.schedules.templates.template import AnyTemplate

_HOST: Final = "is for kind llvm; the host of a GPU is this machine"

_CORE_PEAK: Final = 4e13
"""A hundred times two units of 512 bits at 6 GHz, 32 bits an element."""


class Cpu(Backend):
    """Processors."""

    kind = "llvm"
    device = "cpu"
    fields: ClassVar[Mapping[str, str]] = dict.fromkeys(
        ("mcpu", "mattr", "mtriple", "linker", "sysroot", "hardware"), _HOST
    )
    sketches = "from-target"

    runs_on_host = True
    runs_unscheduled_loops = True
    supports_dynamic_shapes = True
    supports_bfloat16_rounding = True
    supports_remote_runners = True
    has_half_arithmetic = False
    expands_elementary_functions = True
    fuses_attention = True

    def check_device(self, facts: Mapping[str, object]) -> None:
        """Do nothing: the features of the host processor are checked for every target."""

    def peak_flops(self, cores: int) -> float:  # noqa: D102 - as in Backend
        return cores * _CORE_PEAK

    def schedule(self, module: "tvm.IRModule", conditions: "Conditions") -> "Planned | None":  # noqa: D102
        from autopipe.schedules.engines import default

        return default.plan_loops(module, conditions)

    def templates(self) -> "tuple[AnyTemplate, ...]":  # noqa: D102
        from autopipe.schedules.templates import list_templates

        return list_templates()

    def implementations(self) -> "tuple[Implementation, ...]":  # noqa: D102
        from autopipe.schedules.implementations import load_implementations

        return load_implementations()


CPU: Final = Cpu()
