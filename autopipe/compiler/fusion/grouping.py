"""Which steps become one function: what TVM's fusion chose, and how that can be changed.

After the RFC "A general task extraction mechanism for auto_scheduler": what is one function need
not be what a compiler would fuse. This is about the graph alone; `regroup` makes the functions.
"""

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from autopipe.compiler.fusion.chains import Step


@dataclass(frozen=True, slots=True)
class Group:
    """Steps that become one function."""

    steps: tuple[str, ...]
    """In order."""
    pieces: tuple["Group", ...] = ()
    """What is left of it if it can not be one function; none of a single step."""
    rule: str | None = None
    """The rule that joined it."""


class Grouping:
    """The groups of a graph: each step is in one, and no two of them wait for each other."""

    def __init__(self, steps: Sequence[Step], fused: Iterable[Sequence[str]]) -> None:
        self._steps = {step.name: step for step in steps}
        self._order = {step.name: position for position, step in enumerate(steps)}
        self._reads: Mapping[str, Sequence[str]] = {step.name: step.reads for step in steps}
        readers: dict[str, list[str]] = {step.name: [] for step in steps}
        for step in steps:
            for read in step.reads:
                readers[read].append(step.name)
        self._readers: Mapping[str, Sequence[str]] = readers
        self._groups = {step.name: Group((step.name,)) for step in steps}
        for names in fused:
            self._put(_whole(names))

    def __iter__(self) -> Iterator[Group]:
        """Yield the groups, by their first steps."""
        yield from dict.fromkeys(self._groups.values())

    def of(self, step: str) -> Group:
        """Return the group of a step."""
        return self._groups[step]

    def named(self, group: Group) -> str:
        """Name the ops of a group."""
        ops = {self._steps[name].owner: self._steps[name].op for name in group.steps}
        return ", ".join(op for op in ops.values() if op)

    def obstacle(self, group: Group) -> str | None:
        """Say why a group has to stay as it is, if it has to."""
        found = ((name, self._steps[name].obstacle) for name in group.steps)
        return next((f"{self._op(name)} {why}" for name, why in found if why), None)

    def split(self, group: Group) -> None:
        """Put the pieces of a group in its place."""
        for piece in group.pieces:
            self._put(piece)

    def around(self, steps: Collection[str]) -> Group:
        """Return the least group that holds the groups of some steps.

        Raises ValueError, with the end of a sentence, if there is none: what is fused with a step,
        or leaves the group and comes back, sums too.
        """
        members = {name for step in steps for name in self.of(step).steps}
        between = self._reached(members, self._readers) & self._reached(members, self._reads)
        names = self._sorted(members | between)
        for name in names:
            if not self._steps[name].simple and name not in steps:
                raise ValueError(f"they bring {self._op(name)}, which the rule does not name")
        group = Group(names, tuple(dict.fromkeys(map(self.of, names))))
        self._refuse(group)
        return group

    def unite(self, group: Group) -> None:
        """Put a group that `around` gave in the place of its pieces."""
        self._put(group)

    def cut(self, before: str, after: Collection[str]) -> None:
        """Cut a group that holds a step and others it leads to, above these.

        Raises ValueError, with the end of a sentence, if the group has to stay as it is.
        """
        group = self.of(before)
        if not set(group.steps).intersection(after):
            return
        self._refuse(group)
        inside = set(group.steps)
        below = self._spread(inside.intersection(after), inside, [self._readers])
        for part in (inside - below, below):
            left = set(part)
            while left:
                piece = self._spread({self._sorted(left)[0]}, left, [self._readers, self._reads])
                left -= piece
                self._put(_whole(self._sorted(piece)))

    def _reached(
        self, members: Collection[str], neighbours: Mapping[str, Sequence[str]]
    ) -> set[str]:
        """Return all outside of a group that it leads to, whole groups at a time."""
        found: set[str] = set()
        queue = [each for name in members for each in neighbours[name]]
        while queue:
            name = queue.pop()
            if name not in found and name not in members:
                whole = self.of(name).steps
                found.update(whole)
                queue.extend(each for step in whole for each in neighbours[step])
        return found

    def _spread(
        self,
        start: Collection[str],
        inside: Collection[str],
        ways: Iterable[Mapping[str, Sequence[str]]],
    ) -> set[str]:
        """Return what can be reached inside of some steps, with the start."""
        found = set(start)
        queue = list(start)
        while queue:
            name = queue.pop()
            new = {each for way in ways for each in way[name] if each in inside} - found
            found |= new
            queue.extend(new)
        return found

    def _refuse(self, group: Group) -> None:
        if obstacle := self.obstacle(group):
            raise ValueError(obstacle)

    def _sorted(self, names: Iterable[str]) -> tuple[str, ...]:
        return tuple(sorted(names, key=self._order.__getitem__))

    def _op(self, name: str) -> str:
        return self._steps[name].op or "something that is no op"

    def _put(self, group: Group) -> None:
        self._groups.update(dict.fromkeys(group.steps, group))


def _whole(names: Iterable[str]) -> Group:
    """Return the group of some steps, which falls to single ones."""
    steps = tuple(names)
    return Group(steps, tuple(Group((name,)) for name in steps) if len(steps) > 1 else ())
