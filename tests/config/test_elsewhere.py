"""Section `tuning.measure` where other machines measure."""

import pytest
from pydantic import ValidationError

from autopipe.config.pipeline import Pipeline
from autopipe.config.tuning import Reach
from tests.support.table import each_row

TARGET = {"mcpu": "znver5", "num_cores": 16}
FARM = {"runner": "farm", "label": "zen5", "scheduler": "tls://farm.example:8786"}


def pipeline(measure, target=TARGET):
    document = {"version": 1, "name": "p", "model": {"path": "m.onnx"}, "target": target}
    return Pipeline.model_validate({**document, "tuning": {"measure": measure}})


def test_where_machines_are_is_in_no_key_and_no_lock(tmp_path):
    found = pipeline({**FARM, "certificates": "keys", "wait_timeout": 5.0})
    written = found.model_dump(mode="json")["tuning"]["measure"]
    assert {name: written[name] for name in ("runner", "label")} == {
        "runner": "farm",
        "label": "zen5",
    }
    assert not written.keys() & Reach.model_fields.keys()
    reach = Reach.of(found.tuning.measure, tmp_path)
    assert (reach.scheduler, reach.certificates) == (FARM["scheduler"], str(tmp_path / "keys"))
    assert reach.wait_timeout == 5.0


@pytest.mark.fault("O11")
@each_row(
    "measure, target, says",
    [
        ({"runner": "farm"}, TARGET, "label\n  Input is needed"),
        ({"label": "zen5"}, TARGET, "is for runner farm, and `runner` is local"),
        ({"runner": "farm", "label": "zen5"}, TARGET, "scheduler\n  Input is needed"),
        ({"runner": "rpc", "key": "pi"}, TARGET, "tracker\n  Input is needed"),
        ({**FARM, "scheduler": "tcp://10.0.0.7:8786"}, TARGET, "worker --make-certificates DIR"),
        ({**FARM, "scheduler": "tls://farm"}, TARGET, "should be an address"),
        ({**FARM, "scheduler": "tls://farm:0"}, TARGET, "should be an address"),
        (FARM, {"num_cores": 2}, "target.mcpu\n  Input is this machine"),
        (FARM, {"mcpu": "znver5"}, "target.num_cores\n  Input is required"),
        (FARM, {"kind": "cuda", "arch": "sm_90", "num_cores": 2}, "processors only"),
    ],
)
def test_what_can_not_be_measured_elsewhere_is_refused(measure, target, says):
    with pytest.raises(ValidationError) as raised:
        pipeline(measure, target)
    assert says in str(raised.value)


@pytest.mark.parametrize("host", ["localhost", "127.0.0.1", "[::1]"])
def test_without_certificates_only_on_this_machine(host):
    address = f"tcp://{host}:8786"
    assert pipeline({**FARM, "scheduler": address}).tuning.measure.scheduler == address
