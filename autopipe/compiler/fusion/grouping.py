"""Groups of steps that become one function: those of TVM's fusion, and changes to them.

After the RFC "A general task extraction mechanism for auto_scheduler": a task need not be a group
that a compiler would fuse. This file works on the graph alone, as plain values; `regroup` builds
the functions.

Example: conv -> add -> relu -> pool -> dense, of which TVM fused the first three.

    groups                      (conv, add, relu) (pool) (dense)
    around(["relu", "pool"])    ValueError: they bring nn.conv2d, which the rule does not name
    cut("conv", ["relu"])       (conv, add) (relu) (pool) (dense)
    around(["relu", "pool"])    (relu, pool), not united yet: its pieces are (relu) and (pool)
    around(["conv", "dense"])   ValueError: they bring nn.max_pool2d, which lies between them
"""

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from autopipe.compiler.fusion.chains import FusionStep


@dataclass(frozen=True, slots=True)
class Group:
    """Steps that become one function."""

    steps: tuple[str, ...]
    """Names of the steps, in the order of the graph."""
    pieces: tuple["Group", ...] = ()
    """The groups it is split into if it cannot be one function; a single step has none."""
    rule: str | None = None
    """The rule that joined it; None for a group of TVM."""


class Grouping:
    """A partition of the steps of a graph into groups without cyclic dependencies."""

    def __init__(self, steps: Sequence[FusionStep], fused_groups: Iterable[Sequence[str]]) -> None:
        self._steps = {step.name: step for step in steps}
        self._order = {step.name: position for position, step in enumerate(steps)}
        self._reads: Mapping[str, Sequence[str]] = {step.name: step.reads for step in steps}
        readers: dict[str, list[str]] = {step.name: [] for step in steps}
        for step in steps:
            for read in step.reads:
                readers[read].append(step.name)
        self._readers: Mapping[str, Sequence[str]] = readers
        self._groups = {step.name: Group((step.name,)) for step in steps}
        self._last_positions = list(range(len(self._order)))
        """For each position, at least the last one of all groups that begin at it or before."""
        for names in fused_groups:
            self._assign_group(_make_group(names))

    def __iter__(self) -> Iterator[Group]:
        """Yield the groups, in the order of their first steps."""
        yield from dict.fromkeys(self._groups.values())

    def of(self, step: str) -> Group:
        """Return the group of a step."""
        return self._groups[step]

    def named(self, group: Group) -> str:
        """Format the names of the ops of a group, separated by commas."""
        ops = {self._steps[name].owner: self._steps[name].op for name in group.steps}
        return ", ".join(op for op in ops.values() if op)

    def obstacle(self, group: Group) -> str | None:
        """Return the reason why a group cannot be changed, or None."""
        obstacles = ((name, self._steps[name].obstacle) for name in group.steps)
        return next((f"{self._describe_op(name)} {why}" for name, why in obstacles if why), None)

    def split(self, group: Group) -> None:
        """Replace a group by its pieces."""
        for piece in group.pieces:
            self._assign_group(piece)

    def around(self, steps: Collection[str]) -> Group:
        """Return the smallest group that holds the groups of some steps; it is not united yet.

        It also holds the steps between them: a step outside that reads the group and is read by it
        would be a cyclic dependency. Raises ValueError, with the end of a sentence, if this adds a
        reduction, or if a step cannot be moved.
        """
        members = {name for step in steps for name in self.of(step).steps}
        window = self._find_window(members)
        between = self._find_reachable_steps(
            members, self._readers, window
        ) & self._find_reachable_steps(members, self._reads, window)
        names = self._sort_steps(members | between)
        for name in names:
            if not self._steps[name].simple and name not in steps:
                raise ValueError(
                    f"they bring {self._describe_op(name)}, which the rule does not name"
                )
        group = Group(names, tuple(dict.fromkeys(map(self.of, names))))
        self._check_obstacle(group)
        return group

    def unite(self, group: Group) -> None:
        """Replace the pieces of a group that `around` returned by that group."""
        self._assign_group(group)

    def cut(self, before: str, after: Collection[str]) -> None:
        """Cut the group of `before` above the steps `after`, if it holds any of them.

        The steps that depend on `after` become one group, the rest another; each is split further
        into its connected components. Raises ValueError, with the end of a sentence, if the group
        cannot be changed.
        """
        group = self.of(before)
        if not set(group.steps).intersection(after):
            return
        self._check_obstacle(group)
        inside = set(group.steps)
        below = self._find_connected_steps(inside.intersection(after), inside, [self._readers])
        for part in (inside - below, below):
            left = set(part)
            while left:
                piece = self._find_connected_steps(
                    {self._sort_steps(left)[0]}, left, [self._readers, self._reads]
                )
                left -= piece
                self._assign_group(_make_group(self._sort_steps(piece)))

    def _find_window(self, members: Collection[str]) -> range:
        """Find positions around a group that no group crosses: all cycles through it are inside.

        A step reads earlier ones only, so that no path returns from behind the window.
        """
        positions = [self._order[name] for name in members]
        first, last = min(positions), max(positions)
        while first > 0 and self._last_positions[first - 1] >= first:
            first -= 1
        while self._last_positions[last] > last:
            last = self._last_positions[last]
        return range(first, last + 1)

    def _find_reachable_steps(
        self, members: Collection[str], neighbours: Mapping[str, Sequence[str]], window: range
    ) -> set[str]:
        """Find the steps of a window outside of a group that are reachable from the group.

        Groups are reached as a whole.
        """
        reachable: set[str] = set()
        queue = [neighbour for name in members for neighbour in neighbours[name]]
        while queue:
            name = queue.pop()
            if name not in reachable and name not in members and self._order[name] in window:
                group_steps = self.of(name).steps
                reachable.update(group_steps)
                queue.extend(neighbour for step in group_steps for neighbour in neighbours[step])
        return reachable

    def _find_connected_steps(
        self,
        start: Collection[str],
        inside: Collection[str],
        ways: Iterable[Mapping[str, Sequence[str]]],
    ) -> set[str]:
        """Find the steps of `inside` that are reachable from `start`, including `start`."""
        component = set(start)
        queue = list(start)
        while queue:
            name = queue.pop()
            neighbours = {neighbour for way in ways for neighbour in way[name]}
            new = {neighbour for neighbour in neighbours if neighbour in inside} - component
            component |= new
            queue.extend(new)
        return component

    def _check_obstacle(self, group: Group) -> None:
        """Raise ValueError if a group cannot be changed."""
        if obstacle := self.obstacle(group):
            raise ValueError(obstacle)

    def _sort_steps(self, names: Iterable[str]) -> tuple[str, ...]:
        return tuple(sorted(names, key=self._order.__getitem__))

    def _describe_op(self, name: str) -> str:
        return self._steps[name].op or "something that is no op"

    def _assign_group(self, group: Group) -> None:
        """Set the group of all of its steps."""
        self._groups.update(dict.fromkeys(group.steps, group))
        positions = [self._order[name] for name in group.steps]
        last = max(positions)
        for position in range(min(positions), last):  # not lowered for parts: a bound is enough
            self._last_positions[position] = max(self._last_positions[position], last)


def _make_group(names: Iterable[str]) -> Group:
    """Build a group of steps with the single steps as pieces."""
    steps = tuple(names)
    return Group(steps, tuple(Group((name,)) for name in steps) if len(steps) > 1 else ())
