"""The table of templates, and their versions beside it."""

import inspect
import re

from autopipe.environment.template_versions import TEMPLATE_VERSIONS, schedule_version
from autopipe.schedules import templates
from autopipe.schedules.templates import TEMPLATES


def test_commands_without_tvm_know_the_version_of_every_template():
    versions = {template.name: template.version for template in TEMPLATES}
    assert len(versions) == len(TEMPLATES)
    assert versions == {name: schedule_version(name) for name in TEMPLATE_VERSIONS}


def test_versions_are_of_schedules_and_of_choices():
    assert all(
        len(parts := version.split(".")) == 2 and all(map(str.isdecimal, parts))
        for version in TEMPLATE_VERSIONS.values()
    )


def test_every_place_in_the_table_has_its_reason():
    lines = re.findall(r"^    ([A-Z_]+),(.*)$", inspect.getsource(templates), re.MULTILINE)
    assert len(lines) == len(TEMPLATES)
    assert [name for name, reason in lines if not re.match(r"  # \w.{20}", reason)] == []
