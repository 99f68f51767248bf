"""All that a build is compared on, a batch at a time: with open sizes it may be a lot of memory."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from autopipe.artifacts.model import ImportedModel
from autopipe.artifacts.signature import Port, Signature
from autopipe.compiler.library import samples
from autopipe.config.dimension import Sizes, list_end_sizes, list_likely_sizes
from autopipe.config.verify import Verify
from autopipe.errors import ConfigError
from autopipe.verification.inputs import Case, cases, draw_inputs, list_special_cases, redraw_case
from autopipe.verification.limits import find_input_limits
from autopipe.verification.sizes import choose_trial_sizes

_AT_ONCE: Final = 256 << 20
"""Bytes of inputs in a batch of several sizes, about."""


@dataclass(frozen=True, slots=True)
class Batch:
    """Cases that are compared together."""

    drawn: Sequence[Case]
    """What a model is made for, and edges near it."""
    special: Sequence[Case] = ()
    """What most models never see."""
    real: frozenset[str] = field(default=frozenset())
    """Names of the cases that are real inputs."""


class CaseSource:
    """Makes the cases of a build."""

    def __init__(self, signature: Signature, imported: Path, options: Verify) -> None:
        """Take how the build is called, and the artifact of *import* that it was built from."""
        self._signature, self._imported, self._options = signature, imported, options
        self._likely = list_likely_sizes(signature.dimensions) or ({},)
        self._selects = ImportedModel.read(imported).selects
        self._limits = find_input_limits(imported, signature.at(self._likely[0]))
        self._vary = bool(signature.dimensions) and self._depends_on_sizes()

    def batches(self, given: Mapping[str, Path]) -> Iterator[Batch]:
        """Yield every likely size with all cases, then the others with a random case each.

        The library for every size is asked at likely sizes, too. A build without open sizes is one
        batch. `given` are files of real inputs by the names of their cases.
        """
        for place, sizes in enumerate(self._likely):
            batch = self._build_full_batch(sizes)
            yield self._add_real_cases(batch, given) if place == 0 else batch
        if self._signature.dimensions:
            yield from self._list_other_batches()

    def find_case(self, given: Mapping[str, Path], name: str | None) -> Case:
        """Return the first case, or the first of a name. Raises ConfigError where none has it."""
        known: dict[str, None] = {}
        for batch in self.batches(given):
            for case in (*batch.drawn, *batch.special):
                if name in {None, case.name}:
                    return case
                known[case.name] = None
        raise ConfigError(f"there is no case {name!r}; there are {', '.join(known)}")

    def count_sizes(self) -> int:
        """Return at how many sizes the batches are, those of real inputs apart."""
        dimensions = self._signature.dimensions
        others = len(list(choose_trial_sizes(dimensions, self._options.seed))) if dimensions else 0
        return len(self._likely) + others

    def redrawn(self, case: Case, place: int) -> Iterator[Case]:
        """Yield other inputs for a case, the one at some place of its batch."""
        ports, limits = self._bind_ports(case.sizes)
        return redraw_case(case, ports, limits, (self._options.seed, place))

    def _depends_on_sizes(self) -> bool:
        """Tell whether integers have to be smaller at some sizes: a length is no longer than that.

        At the smallest sizes they are, if they are anywhere; where there are no integers, none is.
        """
        known, dimensions = self._selects, self._signature.dimensions
        first = {
            name: size or dimensions[name].multiple
            for name, size in list_end_sizes(dimensions)[0].items()
        }
        smallest = self._signature.at(first)
        return self._limits != known or find_input_limits(self._imported, smallest) != known

    def _build_full_batch(self, sizes: Sizes) -> Batch:
        ports, limits = self._bind_ports(sizes)
        count, seed = self._options.cases, self._options.seed
        drawn = list(cases(ports, limits, count=count, seed=seed, sizes=sizes))
        if sizes:
            drawn.append(self._draw_case(sizes, generic=True))
        return Batch(drawn, list(list_special_cases(ports, limits, seed=seed, sizes=sizes)))

    def _add_real_cases(self, batch: Batch, given: Mapping[str, Path]) -> Batch:
        """Return a batch with real inputs, each at its own sizes."""
        drawn = [*batch.drawn]
        inputs, dimensions = self._signature.inputs, self._signature.dimensions
        for name, file in given.items():
            sizes = samples.read_sizes(file, inputs, dimensions)
            # not the limits that inputs are drawn within
            arrays = samples.load(file, self._signature.at(sizes), self._selects)
            drawn.append(Case(name, edge=False, arrays=arrays, sizes=sizes))
        return Batch(drawn, batch.special, frozenset(given))

    def _list_other_batches(self) -> Iterator[Batch]:
        held: list[Case] = []
        for sizes in choose_trial_sizes(self._signature.dimensions, self._options.seed):
            held.append(self._draw_case(sizes))
            if sum(a.nbytes for case in held for a in case.arrays.values()) > _AT_ONCE:
                yield Batch(held)
                held = []
        if held:
            yield Batch(held)

    def _draw_case(self, sizes: Sizes, *, generic: bool = False) -> Case:
        ports, limits = self._bind_ports(sizes)
        arrays = draw_inputs(ports, limits, (self._options.seed, 0))
        return Case("random-0", edge=False, arrays=arrays, sizes=sizes, generic=generic)

    def _bind_ports(self, sizes: Sizes) -> tuple[tuple[Port, ...], Mapping[str, int]]:
        """Return the inputs at certain sizes, and how large their integers may be there."""
        ports = self._signature.at(sizes)
        return ports, find_input_limits(self._imported, ports) if self._vary else self._limits
