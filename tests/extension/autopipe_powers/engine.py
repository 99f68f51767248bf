"""Engine `widest`: the settings of template `chunks`, the longest loops first."""

from autopipe.schedules.primitives import make_schedule
from autopipe.schedules.templates.template import dump

from .template import CHUNKS


class Widest:
    """Proposes what `chunks` has, and learns nothing from it."""

    name = "widest"

    def __init__(self, conditions):
        self._hardware = conditions.hardware

    def search(self, problem):
        """Begin a search, or return None for a function that is no product."""
        match = CHUNKS.match(make_schedule(problem.module))
        if match is None:
            return None
        known = {each.schedule for each in problem.known}
        every = [dump(CHUNKS, knobs) for knobs in CHUNKS.settings(match, self._hardware)]
        return Longest([schedule for schedule in every if schedule not in known])


class Longest:
    """The search of one task."""

    def __init__(self, schedules):
        self._left = schedules

    def propose(self, count):
        """Return the longest that are left."""
        left, self._left = self._left[-count:], self._left[:-count]
        return left

    def learn(self, measured):
        """Learn nothing."""
