"""Tunes a small product: `python -m tests.farm.tuning FOLDER SCHEDULER CERTIFICATES [LABEL]`."""

import sys
from pathlib import Path

from autopipe.compiler.tvm_probe import examine_tvm
from autopipe.config.pipeline import Pipeline
from autopipe.environment.facet import Facet
from autopipe.farm.bench import select_shared_versions
from autopipe.stages.tune import TuneStage
from tests.stages.small_tuning import FACTS, context


def main():
    folder, scheduler, certificates, label = Path(sys.argv[1]), *[*sys.argv[2:], "here"][:3]
    target = FACTS[Facet.TARGET]
    measure = {
        "runner": "farm", "label": label, "scheduler": scheduler, "certificates": certificates,
        "repeat": 3, "min_repeat": 0.0005, "wait_timeout": 60.0,
    }  # fmt: skip
    document = {
        "version": 1, "name": "small", "model": {"path": "x.onnx"},
        "target": {"mcpu": target["mcpu"], "num_cores": target["num_cores"]},
        "tuning": {"budget": {"trials": 10}, "batch": 4, "measure": measure},
    }  # fmt: skip
    stage = TuneStage.of(Pipeline.model_validate(document), folder)
    assert stage is not None
    facts = {**FACTS, **select_shared_versions(examine_tvm({}, lambda _: None))}
    sys.stdout.write(stage.run(context(folder)._replace(facts=facts)))


if __name__ == "__main__":
    main()
