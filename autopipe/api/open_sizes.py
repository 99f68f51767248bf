"""Proposes open sizes for a first pipeline file: names, ranges, multiples and likely sizes."""

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
"""Images in a batch: all are compared at their largest size."""
_LENGTHS: Final = 512
_LENGTH: Final = 128
_IMAGES: Final = 1280
_IMAGE: Final = 640
_LONGEST: Final = 50
"""Characters of a name."""
_MOST_ADDED: Final = 3
_NUMBER: Final = re.compile("[1-9][0-9]{0,8}")
_SIGNAL: Final = 8
"""Strides from which a length is one of samples, not of frames."""
_STEPS: Final = (2, 3, 4, 5, 6, 8, 10, 12, 16, 24, 32, 48, 64)
"""Multiples that are tried."""
_HALVED: Final = 12
"""How often likely sizes are halved at most, to find some that fit."""
_SPATIAL: Final = 4
"""Dimensions from which the ones behind the second are those of an image."""


def name_open_sizes(inputs: Mapping[str, InputSizes]) -> dict[str, InputSizes]:
    """Return the inputs with a name for each size that nobody gave; that of a batch, too.

    A name of the model's own stays, as far as a pipeline file takes it, and so does a sum of such
    names: exporters call the length of a mask `past + new`.
    """
    names: dict[str, str] = {}
    found = {}
    alone = {s for one in inputs.values() for s in (*one.assumed.values(), *one.open.values()) if s}
    for name, known in inputs.items():
        left = {**known.assumed, **known.open}
        called = {
            axis: " + ".join(
                part
                if _NUMBER.fullmatch(part)
                else _choose_name(
                    f"{name}_{axis}" if is_made_up(part) else part, part or f"{name} {axis}", names
                )
                for part in _split_sum(said, alone)
            )
            for axis, said in sorted(left.items())
        }
        shape = tuple(None if axis in left else size for axis, size in enumerate(known.shape))
        found[name] = replace(known, shape=shape, open={}, assumed={}, names=called)
    return found


@dataclass(frozen=True, slots=True)
class SizeProposal:
    """What is proposed of one dimension."""

    dimension: Dimension
    why: str = ""
    """Where it comes from."""

    @property
    def is_one_size(self) -> bool:
        """Whether the model takes no other, so that a number does."""
        return self.dimension.first == self.dimension.last

    @property
    def text(self) -> str:
        """Return it as a pipeline file has it."""
        one = self.dimension
        multiple = f", multiple: {one.multiple}" if one.multiple > 1 else ""
        comment = f"  # {self.why}" if self.why else ""
        return f"{{min: {one.min}, max: {one.max}{multiple}, likely: [{one.likely[0]}]}}{comment}"


def propose_dimensions(
    inputs: Mapping[str, InputSizes], before: Mapping[str, InputSizes], outline: "ModelOutline"
) -> dict[str, SizeProposal]:
    """Return a proposal for each dimension; `before` is what was known before there were names."""
    found: dict[str, SizeProposal] = {}
    hints, ranks = outline.hints, {rank for rank in outline.convolutions if rank >= _SPATIAL}
    images = any(len(one.shape) in ranks and max(one.names, default=0) > 1
                 for one in inputs.values())  # fmt: skip
    sums = [called for one in inputs.values() for called in one.names.values() if "+" in called]
    for name, known in inputs.items():
        for axis, called in known.names.items():
            if called in found or called in sums:
                continue
            if axis in before[name].assumed:
                last = _PICTURES if images else _BATCHES
                found[called] = SizeProposal(Dimension(max=last, likely=(1,)))
            elif len(known.shape) in ranks and axis > 1:
                found[called] = _propose_image_side(hints.multiples[min(axis - 2, 1)])
            else:
                added = max(
                    (len(parse_terms(s)) for s in sums if called in parse_terms(s)), default=1
                )
                last = axis == len(known.shape) - 1
                found[called] = _propose_length(hints, added, of_samples=last)
    return found


def fit_proposals(
    found: Mapping[str, SizeProposal], fits: Callable[[Sizes], bool]
) -> dict[str, SizeProposal]:
    """Return proposals without sizes that the model does not take.

    A window of 400 samples has no place in 399, an odd number of frames makes no pairs, and a
    state of one row goes with a batch of 1. `fits` tells whether the model takes certain sizes.
    """
    found = _fit_likely_sizes(found, fits)
    likely = _list_likely_sizes(found, 0)
    if not fits(likely):
        return dict(found)
    return {
        name: _bound_proposal(one, partial(_can_take_size, fits, likely, name))
        for name, one in found.items()
    }


def _fit_likely_sizes(
    found: Mapping[str, SizeProposal], fits: Callable[[Sizes], bool]
) -> Mapping[str, SizeProposal]:
    """Return proposals whose likely sizes the model takes, where those do not.

    All sizes but those of a batch are halved until they fit, then each goes back as far as it can:
    of 640 x 640 a reader of lines that are 48 high leaves 48 x 640.
    """
    times = next((n for n in range(_HALVED) if fits(_list_likely_sizes(found, n))), 0)
    halved = dict.fromkeys(found, times)
    for name in found:
        tries = ({**halved, name: less} for less in range(times))
        halved = next((one for one in tries if fits(_list_likely_sizes(found, one))), halved)
    return {name: _halve_likely_size(one, halved[name]) for name, one in found.items()}


def _list_likely_sizes(found: Mapping[str, SizeProposal], halved: int | Mapping[str, int]) -> Sizes:
    """Return the first likely size of each, halved so often."""
    times = halved if isinstance(halved, Mapping) else dict.fromkeys(found, halved)
    return {n: _halve_likely_size(one, times[n]).dimension.likely[0] for n, one in found.items()}


def _halve_likely_size(proposal: SizeProposal, times: int) -> SizeProposal:
    """Return a proposal whose likely size is halved so often, in whole multiples."""
    one = proposal.dimension
    likely = max(one.likely[0] // 2**times // one.multiple * one.multiple, one.first)
    return replace(proposal, dimension=one.model_copy(update={"likely": (likely,)}))


def _can_take_size(fits: Callable[[Sizes], bool], likely: Sizes, name: str, size: int) -> bool:
    """Tell whether the model takes a size of one dimension, where the others are likely ones."""
    return fits({**likely, name: size})


def _bound_proposal(proposal: SizeProposal, fits: Callable[[int], bool]) -> SizeProposal:
    """Return a proposal of sizes that fit, all of them, as far as it can be told by a few."""
    return _lower_max(_fit_multiple(_raise_min(proposal, fits), fits), fits)


def _raise_min(proposal: SizeProposal, fits: Callable[[int], bool]) -> SizeProposal:
    """Return a proposal that begins with the smallest size that fits, if smaller ones do not."""
    one = proposal.dimension
    if fits(one.first):
        return proposal
    first = _bisect_fitting_size(one.likely[0], one.first, one.multiple, fits)
    return _update_proposal(proposal, {"min": first}, "of fewer the model leaves nothing")


def _lower_max(proposal: SizeProposal, fits: Callable[[int], bool]) -> SizeProposal:
    """Return a proposal that ends with the largest size that fits, if larger ones do not."""
    one = proposal.dimension
    if fits(one.last):
        return proposal
    last = _bisect_fitting_size(one.likely[0], one.last, one.multiple, fits)
    return _update_proposal(proposal, {"max": last}, "more the model does not take")


def _bisect_fitting_size(good: int, bad: int, step: int, fits: Callable[[int], bool]) -> int:
    """Return the last size that fits on the way from one that does to one that does not."""
    good, bad = good // step, bad // step
    while abs(bad - good) > 1:
        middle = (good + bad) // 2
        good, bad = (middle, bad) if fits(middle * step) else (good, middle)
    return good * step


def _update_proposal(proposal: SizeProposal, changes: Mapping[str, int], why: str) -> SizeProposal:
    """Return a proposal with changes, and a reason more."""
    reasons = "; ".join(filter(None, [proposal.why, why]))
    return SizeProposal(proposal.dimension.model_copy(update=dict(changes)), reasons)


def _fit_multiple(proposal: SizeProposal, fits: Callable[[int], bool]) -> SizeProposal:
    """Return a proposal of multiples where the model does not take the second size, but those."""
    one = proposal.dimension
    if one.first == one.last or fits(one.first + one.multiple):
        return proposal
    for by in _STEPS:
        step = one.multiple * by
        sizes = [-(-one.min // step) * step + more * step for more in range(3)]
        if one.likely[0] % step == 0 and sizes[-1] <= one.max and all(map(fits, sizes)):
            changes = {"min": sizes[0], "multiple": step, "max": one.max // step * step}
            return SizeProposal(
                one.model_copy(update=changes), f"the model takes multiples of {step}"
            )
    return proposal


def _propose_image_side(step: int) -> SizeProposal:
    """Return what is proposed of a side of an image, which gets so many times smaller."""
    likely = max(_IMAGE // step, 1) * step
    last = max(_IMAGES // step * step, likely)
    one = Dimension(min=step, max=last, multiple=step, likely=(likely,))
    return SizeProposal(one, f"strides in the model: {step}" if step > 1 else "")


def _propose_length(hints: "SizeHints", added: int, *, of_samples: bool) -> SizeProposal:
    """Return what is proposed of a length, of which so many are added up somewhere.

    Only a last dimension may be one `of_samples`, along which windows run.
    """
    if of_samples and hints.bound is None and hints.stride >= _SIGNAL:
        one = Dimension(max=_LENGTHS * hints.stride, likely=(_LENGTH * hints.stride,))
        return SizeProposal(one, f"strides in the model: {hints.stride}")
    why = "" if hints.bound is None else f"rows of a table in the model: {hints.bound}"
    last = max(1, (hints.bound or _LENGTHS) // added)
    return SizeProposal(Dimension(max=last, likely=(min(_LENGTH, last),)), why)


def _split_sum(said: str, alone: Collection[str]) -> list[str]:
    """Return the parts of a name that is a sum of sizes which other inputs tell, else the name."""
    first, *rest = parts = [part.strip() for part in said.split("+")]
    summed = first in alone and all(part in alone or _NUMBER.fullmatch(part) for part in rest)
    return parts if 0 < len(rest) <= _MOST_ADDED and summed else [said]


def _choose_name(text: str, key: str, names: dict[str, str]) -> str:
    """Return the name of a dimension in the file; `key` is the same for the same dimension."""
    if key not in names:
        plain = re.sub(r"[^A-Za-z0-9_]+", "_", text).strip("_")[:_LONGEST] or "size"
        plain = f"_{plain}" if plain[0].isdigit() else plain
        while plain in names.values():
            plain += "_"
        names[key] = plain
    return names[key]
