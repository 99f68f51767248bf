"""What makes schedules in tests, and keeps what fails."""

from autopipe.building.choice import Asked, Choices
from autopipe.building.prepared_checks import PreparedChecks
from autopipe.pipeline.counted import Watch
from autopipe.safety.failures import Failures
from autopipe.safety.maker import Maker
from autopipe.safety.quarantine import Quarantine
from tests.schedules.tasks import CONDITIONS
from tests.support import here

FACTS = here.facts()


def failures(folder, said=None, *, fatal=False):
    """Return failures that are told to a list."""
    said = [] if said is None else said
    return Failures(Quarantine(folder / "failed", FACTS), CONDITIONS, said.append, fatal)


def choose(folder, asked, policy, judge):
    """Return what each task is built with."""
    with Maker({each.task.name: each.workload for each in asked}, failures(folder)) as maker:
        checks = PreparedChecks(judge, folder)
        choices = Choices(asked, policy, maker, checks, Watch("build", lambda _: None))
        while not choices.check():
            pass
        return choices.chosen


def choose_one(folder, task, workload, record, policy, judge, share=0.0):  # noqa: PLR0917
    """Return what one task is built with."""
    (found,) = choose(folder, [Asked(task, workload, record, share)], policy, judge)
    return found
