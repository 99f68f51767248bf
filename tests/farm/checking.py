"""Has a worker check schedules of a small product: `python -m tests.farm.checking SCHEDULER KEYS`.

Prints a line of JSON for the plain loops, a right schedule, and one that fits nothing.
"""

import json
import sys

from autopipe.compiler.tvm_probe import examine_tvm
from autopipe.config.tuning import Measure, Reach
from autopipe.environment.facet import Facet
from autopipe.farm.bench import select_shared_versions
from autopipe.measure.turn import Turn
from autopipe.safety.job import Piece
from autopipe.safety.verdict import Checked
from autopipe.schedules.conditions import Conditions
from autopipe.tuning.runners.farm import open_runner
from autopipe.tuning.runners.runner import Wanted
from tests.schedules.engines.test_ansor import search
from tests.schedules.tensors import matmul
from tests.stages.small_tuning import FACTS


def main():
    facts = {**FACTS, **select_shared_versions(examine_tvm({}, lambda _: None))}
    measure = Measure.model_validate({"runner": "farm", "label": "here"})
    reach = Reach(scheduler=sys.argv[1], certificates=sys.argv[2], wait_timeout=60.0)
    wanted = Wanted(
        Conditions.of(facts[Facet.TARGET], fast_algorithms=True), facts, measure, reach,
        Turn(lambda _: None), 0, lambda _: None,
    )  # fmt: skip
    runner = open_runner(wanted)
    module = matmul(32)
    trace = search(module).propose(1)[0]
    right, wrong = (
        Piece("checking", "matmul", module, "ansor", "direct", schedule)
        for schedule in (trace, "[]")
    )
    checked, refused = runner.checker.check([right, wrong])
    sys.stdout.write(json.dumps([runner.checker.plain_runs(right), _told(checked), _told(refused)]))
    runner.close()


def _told(outcome):
    return str(outcome) if not isinstance(outcome, Checked) else outcome.finding


if __name__ == "__main__":
    main()
