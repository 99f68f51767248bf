"""Runs kernels for AArch64 under QEMU, and counts the instructions that they take.

Wanted: Debian's `gcc-aarch64-linux-gnu` (or another compiler of that name), `qemu-user` and, to
count, a C compiler for this machine.
"""

import os
import shutil
import subprocess
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import tvm
from tvm.s_tir.meta_schedule.arg_info import ArgInfo

from autopipe.environment.toolchain import Linker
from autopipe.measure.build import compile_module, without_weights
from autopipe.measure.linked import write_library

COMPILER: Final = "aarch64-linux-gnu-gcc"
EMULATOR: Final = "qemu-aarch64"
ROOT: Final = Path(f"/usr/{COMPILER.removesuffix('-gcc')}")
_SOURCES: Final = Path(__file__).parent
_SECONDS: Final = 60

Array = npt.NDArray[Any]


def has_emulator() -> bool:
    """Return whether code for AArch64 can be linked and run here."""
    return bool(shutil.which(COMPILER) and shutil.which(EMULATOR) and ROOT.is_dir())


@dataclass(frozen=True, slots=True)
class InstructionCounts:
    """The instructions that a program or a call ran, by their text."""

    counts: Counter[str]

    def __sub__(self, other: "InstructionCounts") -> "InstructionCounts":
        """Return the instructions that ran here and not there."""
        return InstructionCounts(self.counts - other.counts)

    @property
    def total(self) -> int:
        """All instructions."""
        return self.counts.total()

    @property
    def multiply_adds(self) -> int:
        """Elements that were multiplied and added in one instruction."""
        return sum(count * _elements(text) for text, count in self.counts.items())

    @property
    def vectors(self) -> int:
        """Multiply-adds of vectors of 128 bits."""
        return sum(count for text, count in self.counts.items() if _elements(text) == 4)

    @property
    def loads(self) -> int:
        """Instructions that load."""
        return self._number("ld")

    @property
    def stores(self) -> int:
        """Instructions that store."""
        return self._number("st")

    @property
    def spills(self) -> int:
        """Loads and stores of vectors on the stack."""
        return sum(
            count
            for text, count in self.counts.items()
            if text[:2] in {"ld", "st"} and "[sp" in text and text.split(" ", 1)[1][0] == "q"
        )

    def _number(self, start: str) -> int:
        return sum(count for text, count in self.counts.items() if text.startswith(start))


def _elements(text: str) -> int:
    """Return how many float32 a multiply-add computes; 0 for other instructions."""
    name, _, operands = text.partition(" ")
    if name in {"fmadd", "fmsub", "fnmadd", "fnmsub"}:
        return 1
    if name not in {"fmla", "fmls"}:
        return 0
    first = operands.split(",")[0]
    return int(first.split(".")[1].removesuffix("s")) if first.startswith("v") else 1


class Emulator:
    """Runs programs and kernels for AArch64 in a folder."""

    def __init__(self, folder: Path) -> None:
        """Compile the program that calls a kernel. Raises CalledProcessError."""
        self._folder = folder
        self._driver = folder / "run_kernel"
        options = ["-ldl", "-Wl,--no-as-needed", "-lm"]
        _compile(COMPILER, "-O1", "-o", self._driver, _SOURCES / "run_kernel.c", *options)

    def call(self, library: Path, arrays: Sequence[Array]) -> list[Array]:
        """Return the arguments of a kernel after one call."""
        words = self._write(library, arrays)
        self._run([], [self._driver, library, *words], {})
        return [
            np.fromfile(library.with_name(f"{number}.bin"), array.dtype).reshape(array.shape)
            for number, array in enumerate(arrays)
        ]

    def count_call(self, scheduled: tvm.IRModule, target: tvm.target.Target) -> InstructionCounts:
        """Return the instructions of one call of a kernel: those of three calls without two.

        It takes weights as the build of a model leaves them, and random numbers.
        """
        kernel = without_weights(scheduled)
        random = np.random.default_rng(0)
        arrays = [
            random.standard_normal(tuple(map(int, info.shape))).astype(str(info.dtype))
            for info in ArgInfo.from_prim_func(kernel["main"])
        ]
        library = self._folder / "counted.so"
        write_library(compile_module(kernel, target), library, Linker.of(COMPILER, None))
        two, three = (self._count_calls(library, arrays, calls) for calls in (2, 3))
        return three - two

    def count(self, *words: str | Path, **variables: str) -> InstructionCounts:
        """Return the instructions of a program."""
        plugin, out = self._folder / "count_instructions.so", self._folder / "counts.txt"
        if not plugin.exists():
            source = _SOURCES / "count_instructions.c"
            _compile("cc", "-O2", "-shared", "-fPIC", "-o", plugin, source)
        self._run(["-plugin", f"{plugin},out={out}"], words, variables)
        counts: Counter[str] = Counter()
        for line in out.read_text(encoding="ascii").splitlines():
            number, _, text = line.partition("\t")
            counts[text] += int(number)
        return InstructionCounts(counts)

    def _count_calls(self, library: Path, arrays: Sequence[Array], calls: int) -> InstructionCounts:
        return self.count(self._driver, library, *self._write(library, arrays), CALLS=str(calls))

    @staticmethod
    def _write(library: Path, arrays: Sequence[Array]) -> list[str]:
        """Write arguments beside a library, and return them as the program takes them."""
        words = []
        for number, array in enumerate(arrays):
            file = library.with_name(f"{number}.bin")
            array.tofile(file)
            kind = f"{array.dtype.kind}{array.itemsize}"
            words.append(f"{file}:{kind}:{','.join(map(str, array.shape))}")
        return words

    @staticmethod
    def _run(
        options: Sequence[str], words: Sequence[str | Path], variables: dict[str, str]
    ) -> None:
        subprocess.run(
            [EMULATOR, "-L", ROOT, *options, *words], check=True, timeout=_SECONDS,
            env={**os.environ, **variables},
        )  # fmt: skip


def _compile(*words: str | Path) -> None:
    subprocess.run(words, check=True)
