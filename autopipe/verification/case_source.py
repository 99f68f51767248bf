"""Generate the cases that a build is compared on, in batches that bound the memory."""

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
    """Typical inputs, and edge cases near them."""
    special: Sequence[Case] = ()
    """Inputs with special values, which most models never receive."""
    real: frozenset[str] = field(default=frozenset())
    """Names of the cases that are real inputs."""


class CaseSource:
    """Generates the cases of a build."""

    def __init__(self, signature: Signature, import_artifact: Path, options: Verify) -> None:
        """Set the signature of a build, and the artifact of *import* that it was built from."""
        self._signature, self._imported, self._options = signature, import_artifact, options
        self._likely = list_likely_sizes(signature.dimensions) or ({},)
        self._selects = ImportedModel.read(import_artifact).selects
        self._limits = find_input_limits(import_artifact, signature.at(self._likely[0]))
        self._vary = bool(signature.dimensions) and self._depends_on_sizes()

    def batches(self, real_inputs: Mapping[str, Path]) -> Iterator[Batch]:
        """Yield a full batch for each specialized size, then one random case for each other size.

        The generic library runs at specialized sizes, too. A build with static shapes is one batch.
        `real_inputs` maps the names of cases to files.
        """
        for place, sizes in enumerate(self._likely):
            batch = self._build_full_batch(sizes)
            yield self._add_real_cases(batch, real_inputs) if place == 0 else batch
        if self._signature.dimensions:
            yield from self._list_other_batches()

    def find_case(self, real_inputs: Mapping[str, Path], name: str | None) -> Case:
        """Return the first case with a name, or the first of all. Raises ConfigError if none."""
        names: dict[str, None] = {}
        for batch in self.batches(real_inputs):
            for case in (*batch.drawn, *batch.special):
                if name in {None, case.name}:
                    return case
                names[case.name] = None
        raise ConfigError(f"there is no case {name!r}; there are {', '.join(names)}")

    def count_sizes(self) -> int:
        """Count the distinct sizes of all batches, except those of real inputs."""
        dimensions = self._signature.dimensions
        trial_count = (
            len(list(choose_trial_sizes(dimensions, self._options.seed))) if dimensions else 0
        )
        return len(self._likely) + trial_count

    def redrawn(self, case: Case, place: int) -> Iterator[Case]:
        """Yield alternative inputs for the case at an index of its batch."""
        ports, limits = self._bind_ports(case.sizes)
        return redraw_case(case, ports, limits, (self._options.seed, place))

    def _depends_on_sizes(self) -> bool:
        """Whether the bounds of integer inputs depend on the sizes, such as those of a length.

        It suffices to look at the smallest sizes. False without integer inputs.
        """
        index_limits, dimensions = self._selects, self._signature.dimensions
        first = {
            name: size or dimensions[name].multiple
            for name, size in list_end_sizes(dimensions)[0].items()
        }
        smallest = self._signature.at(first)
        return (
            self._limits != index_limits
            or find_input_limits(self._imported, smallest) != index_limits
        )

    def _build_full_batch(self, sizes: Sizes) -> Batch:
        ports, limits = self._bind_ports(sizes)
        count, seed = self._options.cases, self._options.seed
        drawn_cases = list(cases(ports, limits, count=count, seed=seed, sizes=sizes))
        if sizes:
            drawn_cases.append(self._draw_case(sizes, generic=True))
        return Batch(drawn_cases, list(list_special_cases(ports, limits, seed=seed, sizes=sizes)))

    def _add_real_cases(self, batch: Batch, real_inputs: Mapping[str, Path]) -> Batch:
        """Append the cases of real inputs, each at its own sizes."""
        cases_of_batch = [*batch.drawn]
        inputs, dimensions = self._signature.inputs, self._signature.dimensions
        for name, file in real_inputs.items():
            sizes = samples.read_sizes(file, inputs, dimensions)
            # not the limits of random inputs
            arrays = samples.load(file, self._signature.at(sizes), self._selects)
            cases_of_batch.append(Case(name, edge=False, arrays=arrays, sizes=sizes))
        return Batch(cases_of_batch, batch.special, frozenset(real_inputs))

    def _list_other_batches(self) -> Iterator[Batch]:
        batch: list[Case] = []
        for sizes in choose_trial_sizes(self._signature.dimensions, self._options.seed):
            batch.append(self._draw_case(sizes))
            if sum(a.nbytes for case in batch for a in case.arrays.values()) > _AT_ONCE:
                yield Batch(batch)
                batch = []
        if batch:
            yield Batch(batch)

    def _draw_case(self, sizes: Sizes, *, generic: bool = False) -> Case:
        ports, limits = self._bind_ports(sizes)
        arrays = draw_inputs(ports, limits, (self._options.seed, 0))
        return Case("random-0", edge=False, arrays=arrays, sizes=sizes, generic=generic)

    def _bind_ports(self, sizes: Sizes) -> tuple[tuple[Port, ...], Mapping[str, int]]:
        """Return the inputs at certain sizes, and the bounds of their integers there."""
        ports = self._signature.at(sizes)
        return ports, find_input_limits(self._imported, ports) if self._vary else self._limits
