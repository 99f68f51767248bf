"""A report that others wrote is refused where nothing could be drawn of it."""

import json

import pytest

from autopipe.errors import ConfigError
from autopipe.report.document import read_report
from tests.report.reports import full


@pytest.mark.parametrize(
    ("forge", "why"),
    [
        (lambda d: d["graphs"][0]["calls"][0].update(reads=[0]), "calls.0.reads"),
        (lambda d: d["graphs"][0]["calls"][2].update(reads=[-1]), "calls.2.reads"),
        (lambda d: d["tasks"][0].update(seconds=1e308), "tasks.0.seconds"),
        (lambda d: d["tasks"][0].update(calls=10**30), "tasks.0.calls"),
        (lambda d: d["tasks"][0].update(result_bytes=-1), "tasks.0.result_bytes"),
        (lambda d: d["tuning"].update(curves=[]), "tuning.curves"),
        (lambda d: d["tuning"]["curves"][0].update(points=[]), "tuning.curves.0.points"),
        (lambda d: d["profile"]["kernels"][0].update(seconds=-1.0), "profile.kernels.0.seconds"),
    ],
)
def test_a_forged_report_is_refused(tmp_path, forge, why):
    document = json.loads(full().text())
    forge(document)
    file = tmp_path / "run.json"
    file.write_text(json.dumps(document))
    with pytest.raises(ConfigError, match=f"not the report of a run: .*{why}"):
        read_report(file)
