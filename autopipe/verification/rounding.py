"""Verify a build that rounds to bfloat16: its kernels, and the accuracy that the rounding costs.

The build is compared with the model that has the bfloat16 weights, within the usual tolerances, so
that a wrong kernel fails as ever. A build with bfloat16 matmuls is compared with the imported model
in which the same operands are rounded. That model is compared with the unrounded one, by norms:
`|rounded - original| / |original|` of an output.
"""

import shutil
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from math import prod
from pathlib import Path
from typing import Final, Self

import numpy as np

from autopipe.artifacts.library import SHORT
from autopipe.artifacts.model import ImportedModel
from autopipe.config.verify import Verify
from autopipe.errors import GateError
from autopipe.verification.contained_build import ContainedBuild
from autopipe.verification.inputs import Case
from autopipe.verification.oracle import Oracle, ReferenceAnswer
from autopipe.verification.reference import MODEL, MODULE, PLAIN, STORED, WEIGHTS

_WIDTH: Final = 4
"""Bytes of a weight."""


@dataclass(frozen=True, slots=True)
class Rounding:
    """A reference that rounds to bfloat16, and the original one."""

    oracle: Oracle
    """The reference that rounds."""
    original: Oracle
    bound: float
    """The largest allowed change of an output, relative to its norm."""
    inside: bool
    """Whether it rounds intermediate values, so that two correct programs may round a number
    differently."""

    @classmethod
    def of(
        cls,
        build: ContainedBuild,
        import_artifact: Path,
        original: Oracle,
        options: Verify,
        work: Path,
    ) -> Self:
        """Write the reference that rounds like a build into a folder of `work`.

        `import_artifact` is the artifact of *import*. Where operands of matmuls are rounded, or
        the ONNX file holds bfloat16 weights in another form, the reference is `plain`.
        """
        folder = work / "rounded"
        folder.mkdir()
        inside = build.short is not None
        engines: Sequence[str] = (PLAIN,)
        if inside:
            _write_rounded_plain(build.rounded, import_artifact, folder)
            _round_products(build, folder)
        else:
            engines = round_weights(build.rounded, import_artifact, folder, original.engines)
        return cls(Oracle(folder, engines, work), original, options.accuracy, inside)

    def moved_by(self, cases: Sequence[Case], rounded_answers: Sequence[ReferenceAnswer]) -> float:
        """Return the largest relative change of an output due to rounding, edge cases excluded.

        Raises GateError where it exceeds the bound.
        """
        usual = [(case, answer) for case, answer in zip(cases, rounded_answers, strict=False)
                 if not case.edge]  # fmt: skip
        original_answers, _ = self.original.ask([case for case, _ in usual])
        distances = [
            (_compute_distance(answer[name], array), name, case)
            for (case, answer), original in zip(usual, original_answers, strict=True)
            for name, array in original.items()
            if array.dtype.kind == "f"
        ]
        most, name, case = max(distances, key=lambda one: one[0], default=(0.0, "", None))
        if case is not None and not most <= self.bound:
            operand_kind = "products" if self.inside else "weights"
            raise GateError(
                f"{operand_kind} in bfloat16 move output {name!r} by {most:.2%} of its norm on "
                f"case {case.name!r}; verify.accuracy allows {self.bound:.2%}"
            )
        return most


def to_bfloat16(array: np.ndarray) -> np.ndarray:
    """Round float32 numbers to the nearest bfloat16; return them as float32."""
    import ml_dtypes

    return array.astype(ml_dtypes.bfloat16).astype(np.float32)


def round_weights(
    names: Collection[str], import_artifact: Path, folder: Path, engines: Sequence[str]
) -> Sequence[str]:
    """Write the reference with the named weights in bfloat16; return the engines that run it."""
    if _write_rounded_onnx(names, import_artifact, folder):
        return engines
    _write_rounded_plain(names, import_artifact, folder)
    return (PLAIN,)


def _write_rounded_onnx(names: Collection[str], import_artifact: Path, folder: Path) -> bool:
    """Write the ONNX reference with bfloat16 weights; return whether it has all of them.

    Weights count only where the ONNX file places them inside the file of weights beside it.
    """
    if not (import_artifact / MODEL).exists():
        return False
    import onnx
    from onnx.external_data_helper import ExternalDataInfo

    graph = onnx.load(import_artifact / MODEL, load_external_data=False).graph
    size = (import_artifact / STORED).stat().st_size
    places: dict[str, tuple[int, tuple[int, ...]]] = {}
    for tensor in graph.initializer:
        outside = tensor.data_location == onnx.TensorProto.EXTERNAL
        if tensor.name in names and outside and tensor.data_type == onnx.TensorProto.FLOAT:
            place, shape = ExternalDataInfo(tensor), tuple(tensor.dims)
            start = place.offset or 0
            if place.location == STORED and 0 <= start <= size - _WIDTH * prod(shape):
                places[tensor.name] = start, shape
    if places.keys() != set(names):
        return False
    for name in (MODEL, STORED):
        shutil.copyfile(import_artifact / name, folder / name)
    for start, shape in places.values():
        weights = np.memmap(folder / STORED, "<f4", "r+", start, shape)
        weights[...] = to_bfloat16(weights)
        weights.flush()
    return True


def _round_products(build: ContainedBuild, folder: Path) -> None:
    """Replace the imported model by one with matmul operands that are rounded like a build's.

    The build only states that it rounds; the operands are chosen anew.
    """
    from autopipe.compiler import lowering, module_io
    from autopipe.compiler.target.target import make_target

    rounding = lowering.round_products_as_built(
        module_io.load_module(folder / MODULE),
        ImportedModel.read(folder).arguments,
        make_target(build.target),
        channels_last=build.short == SHORT[1],
    )
    module_io.save_module(rounding, folder / MODULE)


def _write_rounded_plain(names: Collection[str], import_artifact: Path, folder: Path) -> None:
    """Write the module of the reference `plain` with bfloat16 weights."""
    from autopipe.compiler import module_io

    for name in (MODULE, ImportedModel.FILE):
        shutil.copyfile(import_artifact / name, folder / name)
    original_weights: Mapping[str, np.ndarray] = module_io.load_weights(import_artifact / WEIGHTS)
    weights = {
        name: to_bfloat16(array) if name in names else array
        for name, array in original_weights.items()
    }
    module_io.save_weights(weights, folder / WEIGHTS)


def _compute_distance(rounded_output: np.ndarray, original_output: np.ndarray) -> float:
    """Return the norm of the difference relative to the original's, where both are finite."""
    finite = np.isfinite(rounded_output) & np.isfinite(original_output)
    ours, theirs = (array[finite].astype(np.float64) for array in (rounded_output, original_output))
    norm = float(np.linalg.norm(theirs))
    return float(np.linalg.norm(ours - theirs)) / norm if norm else 0.0
