"""Propose the dynamic dimensions of a first pipeline file: names, ranges and likely sizes."""

import re
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Final

from autopipe.api.sizes import InputSizes, is_made_up
from autopipe.config.dimension import Dimension, Sizes, parse_terms

if TYPE_CHECKING:
    from autopipe.compiler.frontends.onnx.facts.hints import SizeHints
    from autopipe.compiler.frontends.onnx.facts.outline import ModelOutline

_BATCHES: Final = 16
_PICTURES: Final = 4
"""Largest batch of images: verification compares all of them at the largest size."""
_LENGTHS: Final = 512
_LENGTH: Final = 128
_IMAGES: Final = 1280
_IMAGE: Final = 640
_LONGEST: Final = 50
"""Characters of a name."""
_MOST_ADDED: Final = 3
_NUMBER: Final = re.compile("[1-9][0-9]{0,8}")
_SIGNAL: Final = 8
"""Smallest stride of a model with a length in samples, not in frames."""
_STEPS: Final = (2, 3, 4, 5, 6, 8, 10, 12, 16, 24, 32, 48, 64)
"""Multiples that are tried."""
_HALVED: Final = 12
"""Largest number of halvings of likely sizes in the search for some that fit."""
_SPATIAL: Final = 4
"""Smallest rank of an image tensor; axes from the third on are spatial."""


def name_dynamic_sizes(inputs: Mapping[str, InputSizes]) -> dict[str, InputSizes]:
    """Name each unknown size of the inputs, including that of the batch.

    A name in the model stays as far as a pipeline file accepts it, and so does a sum of such names:
    exporters call the length of a mask `past + new`.
    """
    names: dict[str, str] = {}
    named_inputs = {}
    single_names = {
        s for one in inputs.values() for s in (*one.assumed.values(), *one.open.values()) if s
    }
    for name, sizes in inputs.items():
        left = {**sizes.assumed, **sizes.open}
        axis_names = {
            axis: " + ".join(
                part
                if _NUMBER.fullmatch(part)
                else _choose_name(
                    f"{name}_{axis}" if is_made_up(part) else part, part or f"{name} {axis}", names
                )
                for part in _split_sum(size_name, single_names)
            )
            for axis, size_name in sorted(left.items())
        }
        shape = tuple(None if axis in left else size for axis, size in enumerate(sizes.shape))
        named_inputs[name] = replace(sizes, shape=shape, open={}, assumed={}, names=axis_names)
    return named_inputs


@dataclass(frozen=True, slots=True)
class SizeProposal:
    """The proposed range of one dynamic dimension."""

    dimension: Dimension
    why: str = ""
    """Its justification, as a comment in the pipeline file."""

    @property
    def is_one_size(self) -> bool:
        """Whether the model accepts no other size, so that the dimension is static."""
        return self.dimension.first == self.dimension.last

    @property
    def text(self) -> str:
        """Format it for a pipeline file."""
        dimension = self.dimension
        multiple = f", multiple: {dimension.multiple}" if dimension.multiple > 1 else ""
        comment = f"  # {self.why}" if self.why else ""
        bounds = f"min: {dimension.min}, max: {dimension.max}{multiple}"
        return f"{{{bounds}, likely: [{dimension.likely[0]}]}}{comment}"


def propose_dimensions(
    inputs: Mapping[str, InputSizes], before: Mapping[str, InputSizes], outline: "ModelOutline"
) -> dict[str, SizeProposal]:
    """Propose a range for each dimension; `before` are the inputs before naming."""
    proposals: dict[str, SizeProposal] = {}
    hints, ranks = outline.hints, {rank for rank in outline.convolutions if rank >= _SPATIAL}
    images = any(len(one.shape) in ranks and max(one.names, default=0) > 1
                 for one in inputs.values())  # fmt: skip
    sums = [text for one in inputs.values() for text in one.names.values() if "+" in text]
    for name, sizes in inputs.items():
        for axis, dimension_name in sizes.names.items():
            if dimension_name in proposals or dimension_name in sums:
                continue
            if axis in before[name].assumed:
                last = _PICTURES if images else _BATCHES
                proposals[dimension_name] = SizeProposal(Dimension(max=last, likely=(1,)))
            elif len(sizes.shape) in ranks and axis > 1:
                proposals[dimension_name] = _propose_image_side(hints.multiples[min(axis - 2, 1)])
            else:
                term_count = max(
                    (len(parse_terms(s)) for s in sums if dimension_name in parse_terms(s)),
                    default=1,
                )
                last = axis == len(sizes.shape) - 1
                proposals[dimension_name] = _propose_length(hints, term_count, of_samples=last)
    return proposals


def fit_proposals(
    proposals: Mapping[str, SizeProposal], fits: Callable[[Sizes], bool]
) -> dict[str, SizeProposal]:
    """Restrict proposals to sizes that the model accepts.

    A window of 400 samples does not fit in 399, an odd number of frames makes no pairs, and a
    state of one row requires a batch of 1. `fits` tests whether the model accepts certain sizes.
    """
    proposals = _fit_likely_sizes(proposals, fits)
    likely = _list_likely_sizes(proposals, 0)
    if not fits(likely):
        return dict(proposals)
    return {
        name: _bound_proposal(one, partial(_can_take_size, fits, likely, name))
        for name, one in proposals.items()
    }


def _fit_likely_sizes(
    proposals: Mapping[str, SizeProposal], fits: Callable[[Sizes], bool]
) -> Mapping[str, SizeProposal]:
    """Replace likely sizes that the model refuses by smaller ones that it accepts.

    All sizes but the batch are halved until they fit, then each is restored as far as possible: a
    recognizer of text lines 48 pixels high turns 640 x 640 into 48 x 640.
    """
    times = next((n for n in range(_HALVED) if fits(_list_likely_sizes(proposals, n))), 0)
    halvings = dict.fromkeys(proposals, times)
    for name in proposals:
        tries = ({**halvings, name: less} for less in range(times))
        halvings = next(
            (one for one in tries if fits(_list_likely_sizes(proposals, one))), halvings
        )
    return {name: _halve_likely_size(one, halvings[name]) for name, one in proposals.items()}


def _list_likely_sizes(
    proposals: Mapping[str, SizeProposal], halvings: int | Mapping[str, int]
) -> Sizes:
    """Return the first likely size of each proposal after some halvings."""
    times = halvings if isinstance(halvings, Mapping) else dict.fromkeys(proposals, halvings)
    return {
        n: _halve_likely_size(one, times[n]).dimension.likely[0] for n, one in proposals.items()
    }


def _halve_likely_size(proposal: SizeProposal, times: int) -> SizeProposal:
    """Halve the likely size of a proposal some times, in whole multiples."""
    dimension = proposal.dimension
    likely = max(
        dimension.likely[0] // 2**times // dimension.multiple * dimension.multiple, dimension.first
    )
    return replace(proposal, dimension=dimension.model_copy(update={"likely": (likely,)}))


def _can_take_size(fits: Callable[[Sizes], bool], likely: Sizes, name: str, size: int) -> bool:
    """Whether the model accepts a size of one dimension at the likely sizes of the others."""
    return fits({**likely, name: size})


def _bound_proposal(proposal: SizeProposal, fits: Callable[[int], bool]) -> SizeProposal:
    """Restrict a proposal to sizes that fit, judged by a few samples."""
    return _lower_max(_fit_multiple(_raise_min(proposal, fits), fits), fits)


def _raise_min(proposal: SizeProposal, fits: Callable[[int], bool]) -> SizeProposal:
    """Raise the minimum of a proposal to the smallest size that fits."""
    dimension = proposal.dimension
    if fits(dimension.first):
        return proposal
    first = _bisect_fitting_size(dimension.likely[0], dimension.first, dimension.multiple, fits)
    return _update_proposal(proposal, {"min": first}, "of fewer the model leaves nothing")


def _lower_max(proposal: SizeProposal, fits: Callable[[int], bool]) -> SizeProposal:
    """Lower the maximum of a proposal to the largest size that fits."""
    dimension = proposal.dimension
    if fits(dimension.last):
        return proposal
    last = _bisect_fitting_size(dimension.likely[0], dimension.last, dimension.multiple, fits)
    return _update_proposal(proposal, {"max": last}, "more the model does not take")


def _bisect_fitting_size(good: int, bad: int, step: int, fits: Callable[[int], bool]) -> int:
    """Bisect for the last size that fits between a fitting and a non-fitting one."""
    good, bad = good // step, bad // step
    while abs(bad - good) > 1:
        middle = (good + bad) // 2
        good, bad = (middle, bad) if fits(middle * step) else (good, middle)
    return good * step


def _update_proposal(proposal: SizeProposal, changes: Mapping[str, int], why: str) -> SizeProposal:
    """Apply changes to a proposal, and append their reason."""
    reasons = "; ".join(filter(None, [proposal.why, why]))
    return SizeProposal(proposal.dimension.model_copy(update=dict(changes)), reasons)


def _fit_multiple(proposal: SizeProposal, fits: Callable[[int], bool]) -> SizeProposal:
    """Set the multiple of a proposal where the model accepts only multiples of a step."""
    dimension = proposal.dimension
    if dimension.first == dimension.last or fits(dimension.first + dimension.multiple):
        return proposal
    for by in _STEPS:
        step = dimension.multiple * by
        sizes = [-(-dimension.min // step) * step + more * step for more in range(3)]
        if dimension.likely[0] % step == 0 and sizes[-1] <= dimension.max and all(map(fits, sizes)):
            changes = {"min": sizes[0], "multiple": step, "max": dimension.max // step * step}
            return SizeProposal(
                dimension.model_copy(update=changes), f"the model takes multiples of {step}"
            )
    return proposal


def _propose_image_side(step: int) -> SizeProposal:
    """Propose the height or width of an image that the model downsamples by `step`."""
    likely = max(_IMAGE // step, 1) * step
    last = max(_IMAGES // step * step, likely)
    dimension = Dimension(min=step, max=last, multiple=step, likely=(likely,))
    return SizeProposal(dimension, f"strides in the model: {step}" if step > 1 else "")


def _propose_length(hints: "SizeHints", added: int, *, of_samples: bool) -> SizeProposal:
    """Propose a sequence length that occurs `added` times in a sum of sizes.

    Only a last dimension may be one `of_samples`, along which windows slide.
    """
    if of_samples and hints.bound is None and hints.stride >= _SIGNAL:
        dimension = Dimension(max=_LENGTHS * hints.stride, likely=(_LENGTH * hints.stride,))
        return SizeProposal(dimension, f"strides in the model: {hints.stride}")
    why = "" if hints.bound is None else f"rows of a table in the model: {hints.bound}"
    last = max(1, (hints.bound or _LENGTHS) // added)
    return SizeProposal(Dimension(max=last, likely=(min(_LENGTH, last),)), why)


def _split_sum(text: str, single_names: Collection[str]) -> list[str]:
    """Split a name that is a sum of other inputs' sizes into its terms; otherwise return it."""
    first, *rest = parts = [part.strip() for part in text.split("+")]
    is_sum = first in single_names and all(
        part in single_names or _NUMBER.fullmatch(part) for part in rest
    )
    return parts if 0 < len(rest) <= _MOST_ADDED and is_sum else [text]


def _choose_name(text: str, key: str, names: dict[str, str]) -> str:
    """Choose the name of a dimension in the file; equal keys identify the same dimension."""
    if key not in names:
        plain = re.sub(r"[^A-Za-z0-9_]+", "_", text).strip("_")[:_LONGEST] or "size"
        plain = f"_{plain}" if plain[0].isdigit() else plain
        while plain in names.values():
            plain += "_"
        names[key] = plain
    return names[key]
