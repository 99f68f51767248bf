"""The grammar of section `fusion`."""

import jsonschema  # type: ignore[import-untyped]
import pytest
import tvm
import yaml

from autopipe.config.fusion import RENAMED, Fusion
from autopipe.config.schema import build_json_schema
from tests.config.conftest import GOOD

CONV = "[nn.conv2d, nn.relu]"
TWICE = "[nn.conv2d, nn.relu, nn.conv2d, nn.relu]"


def section(text):
    return f"{GOOD}fusion: {{{text}}}\n"


def test_a_rule_is_a_list_of_ops(read):
    text = section(f"join: [{TWICE}, [nn.*_norm, matmul]], apart: [[nn.layer_norm, matmul]]")
    found = read(text.replace("nn.*_norm", "nn.rms_norm")).fusion
    assert found.join == (("nn.conv2d", "nn.relu") * 2, ("nn.rms_norm", "matmul"))
    assert found.apart == (("nn.layer_norm", "matmul"),)
    jsonschema.validate(yaml.safe_load(text), build_json_schema())
    assert read(GOOD).fusion == Fusion()


@pytest.mark.parametrize(
    ("rules", "said"),
    [
        ("join: [[dense, nn.relu]]", "fusion.join.0.0: 'dense' names no op of Relax; write matmul"),
        ("join: [[relax.matmul, nn.relu]]", "'relax.matmul' names no op; leave out `relax.`"),
        ("apart: [[matmul]]", "fusion.apart.0: should be at least two ops"),
        ("join: [matmul]", "fusion.join.0: 'matmul' should be a list"),
        (f"join: [{CONV}, {CONV}]", "is listed twice"),
        ("split: []", "fusion.split: unknown key"),
    ],
)
def test_what_is_wrong_is_said(refused, rules, said):
    (line,) = refused(section(rules))
    assert said in line


@pytest.mark.parametrize("apart", [TWICE, CONV, "[nn.relu, nn.conv2d]", "['nn.conv*', '*']"])
def test_what_is_joined_can_not_be_kept_apart(refused, apart):
    (line,) = refused(section(f"join: [[matmul, nn.relu], {TWICE}], apart: [{apart}]"))
    assert "fusion.apart.0: " in line
    assert "is what `join` rule 1 joins; leave out one of the two" in line


def test_products_may_be_joined_to_a_softmax_and_kept_apart_from_each_other(read):
    rules = "join: [[matmul, nn.softmax, matmul]], apart: [[matmul, matmul]]"
    assert len(read(section(rules)).fusion.apart) == 1


def test_a_longer_rule_behind_its_part_never_applies(refused, read):
    (line,) = refused(section(f"join: [{CONV}, {TWICE}]"))
    assert "fusion.join.1: " in line
    assert "never applies: rule 0 before it takes its ops; put it first" in line
    assert len(read(section(f"join: [{TWICE}, {CONV}]")).fusion.join) == 2


def test_renamed_ops_are_no_ops_of_relax_and_their_names_are():
    known = {name.removeprefix("relax.") for name in tvm.ir.Op.list_op_names()}
    assert known.isdisjoint(RENAMED)
    assert known.issuperset(RENAMED.values())
