"""`autopipe doctor --machine`: measure this machine, and compare it with its row of the table."""

import tempfile
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Final

from autopipe.environment.caches import SYSTEM_FOLDER
from autopipe.environment.machines import Machine, find_machine
from autopipe.environment.toolchain import find_architecture as architecture_of
from autopipe.pipeline.isolate import Entry, Zygote

FACTOR: Final = 1.5
"""The table is off where a number is this many times the measured one, or the reverse."""

_COUNTS: Final = ("line_bytes", "fma_latency_cycles", "fma_ports", "vector_bits_of_units")
"""Numbers that have to be equal, rounded."""

_SECONDS: Final = 300.0
"""Time limit of the measurement, which takes about five."""
_MEASURE: Final = "autopipe.measure.measure_machine:measure_numbers"


@dataclass(frozen=True, slots=True)
class ComparedNumber:
    """A measured number beside that of the machine table, which schedules are planned with."""

    name: str
    measured: float | None
    """None where it cannot be measured here."""
    source: str
    """The method of measurement, or the reason of its failure."""
    table: float
    """The number in the machine table."""

    @property
    def off_by(self) -> float | None:
        """The ratio of the measured number to that of the table."""
        return None if self.measured is None else self.measured / self.table

    @property
    def is_off(self) -> bool:
        """Whether the row is wrong for this machine."""
        if self.measured is None:
            return False
        if self.name in _COUNTS:
            return round(self.measured) != round(self.table)
        return not 1 / FACTOR <= self.measured / self.table <= FACTOR

    def __str__(self) -> str:
        """Format its line of the table."""
        start = f"{self.name:<21}"
        if self.measured is None:
            return f"{start}  {'-':>8}  {_format_number(self.table):>8}  {'-':>6}  {self.source}"
        mark = "OFF, " if self.is_off else ""
        cells = (
            f"{_format_number(self.measured):>8}  {_format_number(self.table):>8}  "
            f"{self.off_by:>6.2f}"
        )
        return f"{start}  {cells}  {mark}{self.source}"


@dataclass(frozen=True, slots=True)
class MachineReport:
    """The measurements of this machine beside its row of the machine table."""

    mcpu: str
    """LLVM's name of the processor."""
    row: str
    """The family of the row."""
    derived: bool
    """Whether the row is derived, since none names this processor."""
    numbers: tuple[ComparedNumber, ...]

    def lines(self) -> Iterator[str]:
        """Yield the lines of the table, then the names of the numbers that are off."""
        row_text = f"derived as {self.row}: no row names it" if self.derived else f"row {self.row}"
        yield f"{self.mcpu}: {row_text}"
        yield f"{'number':<21}  {'measured':>8}  {'table':>8}  {'ratio':>6}"
        yield from map(str, self.numbers)
        off = [number.name for number in self.numbers if number.is_off]
        if off:
            yield f"the table is off in {len(off)} of {len(self.numbers)}: {', '.join(off)}"
        else:
            yield f"the table is within a factor of {FACTOR} of all that was measured"

    def fields(self) -> dict[str, Any]:
        """Return the report as JSON values."""
        numbers = [
            {**asdict(number), "off_by": number.off_by, "is_off": number.is_off}
            for number in self.numbers
        ]
        return {**asdict(self), "numbers": numbers}


def measure_here(entry: Entry[dict[str, Any]] = _MEASURE) -> MachineReport:
    """Measure this machine in a child process for some seconds, and compare it with its row.

    Raises SetupError where TVM does not work, and any other error of the child.
    """
    argument = {"folder": str(SYSTEM_FOLDER)}
    with (
        tempfile.TemporaryDirectory(prefix="autopipe-") as folder,
        Zygote(("autopipe.compiler.import_tvm",), Path(folder)) as tvm,
    ):
        answer = tvm.call(entry, argument, Path(folder, "log"), lambda _: None, _SECONDS)
    row = find_machine(answer["mcpu"], architecture_of(None), answer["features"])
    return compare_numbers(answer["mcpu"], answer["numbers"], row)


def compare_numbers(mcpu: str, numbers: list[dict[str, Any]], row: Machine) -> MachineReport:
    """Compare measured numbers, each with the fields of a `Number`, with those of a row."""
    compared_numbers = tuple(
        ComparedNumber(
            number["name"], number["value"], number["source"], float(getattr(row, number["name"]))
        )
        for number in numbers
    )
    return MachineReport(mcpu, row.family, not row.processors, compared_numbers)


def _format_number(value: float) -> str:
    return f"{value:.0f}" if value >= 1000 or value == int(value) else f"{value:.3g}"  # noqa: PLR2004 -- digits
