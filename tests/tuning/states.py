"""Tasks on their way through tuning, as the tests of its steps need them."""

from autopipe.config.schedules import Rule
from autopipe.config.tuning import Budget
from autopipe.records.record import Platform
from autopipe.schedules.policy import Contender
from autopipe.tuning.bandit import Arm, Bandit
from autopipe.tuning.task_state import TaskState
from autopipe.tuning.trials import Trials
from tests.schedules.tasks import CONDITIONS, task

ANSOR = Contender("ansor", "direct")
TEMPLATES = Contender("autotvm", "direct")
STATIC = Contender("static", "direct")
HERE = Platform("target", "versions", "device")


def bandit(*contenders, rule=None):
    """Return a bandit of these; without a rule, of one that names their engines."""
    rule = rule or Rule(engines=tuple(dict.fromkeys(by.engine for by in contenders)))
    return Bandit(rule, 0, {by: Arm() for by in contenders})


def state_of(found, contenders=(ANSOR,), *, rule=None, starts=(), text="{}", **progress):
    """Return how far the tuning of a task has come: nowhere, but for what is said."""
    game = bandit(*contenders, rule=rule)
    return TaskState(found, text, None, dict(starts), game, found.share, **progress)  # type: ignore[arg-type]


def state(index=0, contenders=(ANSOR,), *, rule=None, starts=(), **fields):
    """Return the state of a task that nothing was done for."""
    return state_of(task(index, **fields), contenders, rule=rule, starts=starts)


def trials_of(journal, states, measurer=None, told=lambda: None, **budget):
    """Return who measures what these tasks propose."""
    return Trials(states, Budget(**budget), journal, measurer, CONDITIONS, told)
