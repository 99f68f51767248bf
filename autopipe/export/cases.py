"""Test cases of an exported folder: inputs, and expected outputs.

The build was compared with a reference before; `run --self-test` repeats that on the machine of the
folder, against the outputs of the verified package instead of the reference. For a package that
cannot run on this machine, the expected outputs are those of the reference itself.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Final

import numpy as np

from autopipe.artifacts.signature import Signature
from autopipe.artifacts.verification import Tolerance
from autopipe.compiler.library import samples
from autopipe.compiler.library.runtime import Model
from autopipe.config.dimension import list_likely_sizes
from autopipe.runtime.description import encode_name
from autopipe.verification.compare import compute_rms, compute_tolerance
from autopipe.verification.inputs import Case, cases

CASES: Final = "cases"
LIST: Final = "cases.txt"
ORIGIN: Final = "ORIGIN"
"""The file that names the origin of the expected outputs."""
OWN: Final = "the package itself"
"""Origin of expected outputs that are not from a reference."""

_COUNT: Final = 1
"""Number of random cases, besides the edge cases."""
_SELECTED: Final = 2
"""Upper bound of random integers: they may be indices into a table of unknown length."""


Answer = Callable[[Case], Mapping[str, tuple[np.ndarray, Tolerance]] | None]
"""Returns the expected outputs with their tolerances; None omits a case."""


def make_answer_function(model: Model) -> Answer:
    """Return a function that computes the expected outputs with the package itself."""

    def answer(case: Case) -> dict[str, tuple[np.ndarray, Tolerance]]:
        return {
            name: (
                array,
                compute_tolerance(array.dtype, compute_rms(array), None, None, edge=case.edge),
            )
            for name, array in model(case.arrays).items()
        }

    return answer


def read_origin(folder: Path) -> str:
    """Return the origin of the expected outputs of an exported folder."""
    return (folder / CASES / ORIGIN).read_text(encoding="utf-8").strip()


def write_cases(
    folder: Path, signature: Signature, answer: Answer, input_files: Sequence[Path]
) -> None:
    """Write arrays and `cases.txt`; `input_files` are `.npz` files of real inputs.

    Raises ConfigError for a file that does not fit, StageError if the model fails.
    """
    folder.mkdir()
    lines = []
    for index, case in enumerate(_list_cases(signature, input_files)):
        if (expected_outputs := answer(case)) is None:
            continue
        lines.append(f"case {encode_name(case.name)}")
        for place, (name, array) in enumerate(case.arrays.items()):
            file = f"{index}.input.{place}.npy"
            np.save(folder / file, array, allow_pickle=False)
            lines.append(f"input {encode_name(name)} {file}")
        for place, (name, (array, tolerance)) in enumerate(expected_outputs.items()):
            file = f"{index}.output.{place}.npy"
            np.save(folder / file, array, allow_pickle=False)
            lines.append(
                f"output {encode_name(name)} {file} {tolerance.rtol:.6g} {tolerance.atol:.6g}"
            )
    (folder / LIST).write_text("\n".join([*lines, ""]), encoding="utf-8")


def _list_cases(signature: Signature, input_files: Sequence[Path]) -> Iterator[Case]:
    dimensions = signature.dimensions
    for path in input_files:
        sizes = samples.read_sizes(path, signature.inputs, dimensions)
        arrays = samples.load(path, signature.at(sizes))
        yield Case(path.stem, edge=False, arrays=arrays, sizes=sizes)
    sizes = next(iter(list_likely_sizes(dimensions)), {})
    ports = signature.at(sizes)
    limits: Mapping[str, int] = {
        port.name: _SELECTED for port in ports if np.dtype(port.dtype).kind in "iu"
    }
    random_cases = cases(ports, limits, count=_COUNT, seed=0, sizes=sizes)
    yield from (case for case in random_cases if case.name in ("random-0", "zeros"))
