"""Judges a build that rounds to bfloat16: by a model that rounds so, and by what that changes.

The build is compared with the model that has the rounded weights, within the usual tolerances, so
that a wrong kernel fails as ever. A build with products of bfloat16 is compared with the imported
model in which the same operands are rounded. That model is compared with the one as it was read, by
norms: `|rounded - original| / |original|` of an output.
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
    """A reference that rounds, and the one that the model came with."""

    oracle: Oracle
    """The reference that rounds."""
    original: Oracle
    bound: float
    """How far an output may be moved, relative to its norm."""
    inside: bool
    """Whether it rounds what it computes, so that two right programs part where a number lies
    between two roundings."""

    @classmethod
    def of(
        cls, build: ContainedBuild, imported: Path, original: Oracle, options: Verify, work: Path
    ) -> Self:
        """Write the reference that rounds as a build does into a folder of `work`.

        `imported` is the artifact of *import*. Where products are rounded, or the ONNX file holds
        rounded weights in another form, the imported model is asked, as the reference `plain`.
        """
        folder = work / "rounded"
        folder.mkdir()
        inside = build.short is not None
        engines: Sequence[str] = (PLAIN,)
        if inside:
            _write_rounded_plain(build.rounded, imported, folder)
            _round_products(build, folder)
        else:
            engines = round_weights(build.rounded, imported, folder, original.engines)
        return cls(Oracle(folder, engines, work), original, options.accuracy, inside)

    def moved_by(self, cases: Sequence[Case], rounded: Sequence[ReferenceAnswer]) -> float:
        """Return how far the rounding moves an output of random or real inputs, at most.

        Raises GateError where that is more than is allowed.
        """
        usual = [(case, answer) for case, answer in zip(cases, rounded, strict=False)
                 if not case.edge]  # fmt: skip
        known, _ = self.original.ask([case for case, _ in usual])
        found = [
            (_compute_distance(answer[name], array), name, case)
            for (case, answer), original in zip(usual, known, strict=True)
            for name, array in original.items()
            if array.dtype.kind == "f"
        ]
        most, name, case = max(found, key=lambda one: one[0], default=(0.0, "", None))
        if case is not None and not most <= self.bound:
            what = "products" if self.inside else "weights"
            raise GateError(
                f"{what} in bfloat16 move output {name!r} by {most:.2%} of its norm on case "
                f"{case.name!r}; verify.accuracy allows {self.bound:.2%}"
            )
        return most


def to_bfloat16(array: np.ndarray) -> np.ndarray:
    """Return float32 numbers rounded to bfloat16, the nearest one, as float32."""
    import ml_dtypes

    return array.astype(ml_dtypes.bfloat16).astype(np.float32)


def round_weights(
    names: Collection[str], imported: Path, folder: Path, engines: Sequence[str]
) -> Sequence[str]:
    """Write the reference whose named weights are rounded; return which of the engines run it."""
    if _write_rounded_onnx(names, imported, folder):
        return engines
    _write_rounded_plain(names, imported, folder)
    return (PLAIN,)


def _write_rounded_onnx(names: Collection[str], imported: Path, folder: Path) -> bool:
    """Write the ONNX reference with rounded weights; return whether it has all of them.

    What the file says of its weights is believed only where they lie in the file beside it.
    """
    if not (imported / MODEL).exists():
        return False
    import onnx
    from onnx.external_data_helper import ExternalDataInfo

    graph = onnx.load(imported / MODEL, load_external_data=False).graph
    size = (imported / STORED).stat().st_size
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
        shutil.copyfile(imported / name, folder / name)
    for start, shape in places.values():
        stored = np.memmap(folder / STORED, "<f4", "r+", start, shape)
        stored[...] = to_bfloat16(stored)
        stored.flush()
    return True


def _round_products(build: ContainedBuild, folder: Path) -> None:
    """Put the model whose products are rounded as a build's in the place of the imported one.

    Of the build only that it rounds is believed, not what.
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


def _write_rounded_plain(names: Collection[str], imported: Path, folder: Path) -> None:
    """Write what the reference `plain` runs, with rounded weights."""
    from autopipe.compiler import module_io

    for name in (MODULE, ImportedModel.FILE):
        shutil.copyfile(imported / name, folder / name)
    stored: Mapping[str, np.ndarray] = module_io.load_weights(imported / WEIGHTS)
    weights = {
        name: to_bfloat16(array) if name in names else array for name, array in stored.items()
    }
    module_io.save_weights(weights, folder / WEIGHTS)


def _compute_distance(rounded: np.ndarray, original: np.ndarray) -> float:
    """Return the norm of the difference where both are finite, relative to the original's."""
    finite = np.isfinite(rounded) & np.isfinite(original)
    ours, theirs = (array[finite].astype(np.float64) for array in (rounded, original))
    norm = float(np.linalg.norm(theirs))
    return float(np.linalg.norm(ours - theirs)) / norm if norm else 0.0
