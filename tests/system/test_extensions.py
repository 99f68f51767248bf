"""What another package adds: found, checked, used, and part of the keys."""

import json
import os
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper
from tvm import te

from autopipe import extensions
from autopipe.environment.template_versions import TEMPLATE_VERSIONS
from autopipe.errors import SetupError
from autopipe.schedules.templates.template import Template

ROOT = Path(__file__).parents[2]
PACKAGE = ROOT / "tests" / "extension"
PIPELINE = """
version: 1
name: cubes
model: {path: cubes.onnx}
tasks: {include_simple_task: true, heuristics: {min_flops: 0}}
tuning: {budget: {trials: 6}, measure: {repeat: 2, min_repeat: 1ms}}
schedules:
  rules:
  - engines: [widest]
    select: first
  fallback: [default]
verify: {reference: onnxruntime}
benchmark: null
"""


@pytest.fixture(scope="module")
def site(tmp_path_factory):
    """The package, installed in a folder of its own."""
    source = tmp_path_factory.mktemp("source") / "extension"
    shutil.copytree(PACKAGE, source)
    folder = tmp_path_factory.mktemp("site")
    options = ["--no-index", "--no-build-isolation", "--no-deps", "--quiet", "--no-compile"]
    pip = [sys.executable, "-m", "pip", "--disable-pip-version-check", "install", *options]
    subprocess.run([*pip, "--target", folder, source], check=True)
    return folder


def autopipe(site, *arguments, cwd):
    path = os.pathsep.join([str(site), os.environ.get("PYTHONPATH", "")])
    environ = {**os.environ, "AUTOPIPE_STORE": str(cwd / "store"), "PYTHONPATH": path}
    return subprocess.run(
        [sys.executable, "-m", "autopipe", *arguments],
        cwd=cwd, env=environ, capture_output=True, text=True, timeout=300, check=False,
    )  # fmt: skip


@pytest.fixture(scope="module")
def project(tmp_path_factory):
    folder = tmp_path_factory.mktemp("project")
    ports = [helper.make_tensor_value_info(n, TensorProto.FLOAT, [256, 512]) for n in "xy"]
    three = numpy_helper.from_array(np.array(3, "float32"), "three")
    node = helper.make_node("Pow", ["x", "three"], ["y"])
    graph = helper.make_graph([node], "cubes", ports[:1], ports[1:], [three])
    opsets = [helper.make_opsetid("", 17)]
    onnx.save(helper.make_model(graph, opset_imports=opsets, ir_version=8), folder / "cubes.onnx")
    (folder / "cubes.yaml").write_text(PIPELINE)
    return folder


def test_an_engine_a_template_and_an_implementation_of_another_package_are_built_in(site, project):
    done = autopipe(site, "run", "cubes.yaml", "--json", cwd=project)
    assert done.returncode == 0, done.stderr
    (library,) = (project / "store").rglob("library.json")
    (task,) = json.loads(library.read_text())["tasks"]
    assert (task["engine"], task["implementation"]) == ("widest", "products")
    assert task["reason"] == "best record"
    texts = [path.read_text() for path in (project / "store" / "actions").iterdir()]
    facts = {each["stage"]: each["facts"] for each in _actions(texts)}
    seen = {each["stage"] for each in _actions(texts) if each["facts"].get("extensions")}
    assert seen == {"tune", "build", "package"}
    assert facts["build"]["extensions"] == {"autopipe-powers": "1.2.0"}
    versions = {**TEMPLATE_VERSIONS, "chunks": 1}
    using = [one for one in _actions(texts) if "templates" in one["facts"]]
    keyed = {one["stage"]: one["facts"]["templates"] for one in using}
    assert keyed == dict.fromkeys(("lower", "tune", "build"), versions)


def test_our_types_are_installed_for_those_who_check_theirs():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())
    assert project["tool"]["setuptools"]["package-data"]["autopipe"] == ["py.typed"]
    assert (ROOT / "autopipe" / "py.typed").is_file()


def test_another_version_of_a_template_meets_no_stale_result(site, project, tmp_path):
    """The version is read without importing the package, which is broken here."""
    shutil.copytree(site, tmp_path / "site")
    file = tmp_path / "site/autopipe_powers/template.py"
    file.write_text(f"{file.read_text().replace('version = 1', 'version = 2')}\n1 / 0\n")
    shutil.copytree(project, tmp_path / "project")
    for stage in ("tune", "build"):
        done = autopipe(tmp_path / "site", "explain", "cubes.yaml", stage, cwd=tmp_path / "project")
        assert done.returncode == 0, done.stderr
        assert "facts.templates.chunks changed from 1 to 2" in done.stdout


def _actions(texts):
    return [json.loads(text)["content"]["action"] for text in texts]


def test_an_engine_that_is_not_installed_is_unknown(tmp_path, project):
    done = autopipe(tmp_path, "validate", "cubes.yaml", cwd=project)
    assert done.returncode == 2
    assert done.stdout == ""
    (line,) = done.stderr.splitlines()
    assert "cubes.yaml:9:15: schedules.rules.0.engines.0: 'widest' is not known" in line


def test_a_misspelt_engine_of_another_package_is_recognized(site, project):
    setting = "schedules.rules=[{engines: [wides]}]"
    done = autopipe(site, "plan", "cubes.yaml", "--set", setting, cwd=project)
    assert (done.returncode, "did you mean `widest`?" in done.stderr) == (2, True), done.stderr


@pytest.fixture
def install(tmp_path, monkeypatch):
    """Installs a distribution by hand: its entry points, and the text of its module."""
    monkeypatch.syspath_prepend(tmp_path)
    extensions.installed.cache_clear()

    def add(name, points, source=""):
        (tmp_path / f"{name}.py").write_text(source)
        info = tmp_path / f"{name}-0.1.dist-info"
        info.mkdir()
        (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: 0.1\n")
        groups = [f"[{group}]\n{value} = {target}\n" for group, value, target in points]
        (info / "entry_points.txt").write_text("\n".join(groups))
        return name

    yield add
    extensions.installed.cache_clear()


ENGINE, TEMPLATE = extensions.ENGINES, extensions.TEMPLATES
MINE = """
from autopipe.schedules.templates.template import Template

class Mine(Template):
    name = {name!r}
    version = 1
    settings = fill = apply = print

    def match(self, sch):
        {match}
"""


@pytest.mark.parametrize(
    ("point", "source", "reason"),
    [
        ((ENGINE, "a", "bad:Engine"), "import nowhere", "ModuleNotFoundError: No module named 'no"),
        ((ENGINE, "a", "bad:Engine"), "1 / 0", "ZeroDivisionError: division by zero"),
        ((ENGINE, "a", "bad:Engine"), "", "AttributeError: module 'bad' has no attribute 'Engine'"),
        ((ENGINE, "a", "bad:Engine"), "Engine = 1", "bad:Engine lacks __call__"),
        (
            (TEMPLATE, "a", "bad"),
            "name = 'a'\nversion = 1",
            "bad lacks serves_dynamic, match, settings, fill, apply, estim",
        ),
        ((TEMPLATE, "a", "bad:A"), "class A: pass", "bad:A is a class; name an instance of it"),
        (
            (TEMPLATE, "a", "bad:A"),
            f"{MINE.format(name='a', match='pass')}\nA = Mine()\nMine.version = 2",
            "the class of bad:A has to state its version as a number",
        ),
        (
            (TEMPLATE, "a", "bad:A"),
            (
                "from autopipe.environment.template_versions import schedule_version\n"
                "class A:\n    name, version = 'a', schedule_version('a')"
            ),
            "template a is not in autopipe/environment/template_versions.py; that of another pack",
        ),
        (
            (TEMPLATE, "a", "bad:A"),
            f"{MINE.format(name='a', match='pass')}\nA = Mine()\nMine.name = 'b'",
            "name in bad:A is 'b'",
        ),
        (
            (TEMPLATE, "a", "bad:A"),
            f"{MINE.format(name='a', match='pass')}\nA = type('A', (Template,), {{}})()",
            "TypeError: ",
        ),
        ((extensions.IMPLEMENTATIONS, "a", "bad"), "NAME = 'a'", "bad lacks FAST, rewrite, gain"),
        (
            (extensions.IMPLEMENTATIONS, "a", "bad"),
            "NAME, FAST, rewrite, gain = 'b', True, print, print",
            "NAME in bad is 'b'",
        ),
    ],
)
def test_a_broken_extension_is_one_line_that_names_its_package(install, point, source, reason):
    install("bad", [point], source)
    with pytest.raises(SetupError, match=r"^\w+ a of bad 0\.1: ") as error:
        extensions.check_extensions()
    assert reason in str(error.value)
    assert "\n" not in str(error.value)
    sys.modules.pop("bad", None)


def test_a_broken_extension_stops_tune_and_build(site, project, tmp_path):
    shutil.copytree(site, tmp_path / "site")
    (tmp_path / "site/autopipe_powers/template.py").write_text(
        "class CHUNKS:\n    name = 'chunks'\n"
    )
    done = autopipe(
        tmp_path / "site", "run", "cubes.yaml", "--force", "build", "--until", "build", cwd=project
    )
    assert done.returncode == 5
    assert "template chunks of autopipe-powers 1.2.0: autopipe_powers.template:CHUNKS is a c" in (
        done.stderr
    )


def test_nothing_installed_is_nothing():
    assert extensions.list_distributions() == {}
    assert extensions.check_extensions() == "none"


def test_two_of_one_name_are_refused(install):
    source = "class Engine:\n    def __init__(self, conditions):\n        pass\n"
    for name in ("one", "two"):
        install(name, [(ENGINE, "best", f"{name}:Engine")], source)
    with pytest.raises(SetupError, match=r"engine best of two 0\.1: one has one of that name"):
        extensions.check_extensions()
    assert extensions.list_distributions() == {"one": "0.1", "two": "0.1"}


@pytest.mark.parametrize("name", ["ansor", "autotvm", "static", "default", "none"])
def test_our_names_are_taken(install, name):
    from autopipe.schedules.engines.registry import load_engine_makers
    from tests.schedules.tasks import CONDITIONS

    install("greedy", [(ENGINE, name, "greedy:Engine")])
    with pytest.raises(SetupError, match=f"engine {name} of greedy 0.1: autopipe has one"):
        load_engine_makers(["ansor"], CONDITIONS)


def test_templates_and_implementations_of_others_come_before_ours(install):
    from autopipe.schedules.implementations import IMPLEMENTATIONS, load_implementations
    from autopipe.schedules.templates import TEMPLATES, list_templates

    source = (
        f"{MINE.format(name='mine', match='pass')}\nMINE = Mine()\n"
        "NAME, FAST, rewrite, gain = 'mine', True, print, print\n"
    )
    points = [(TEMPLATE, "mine", "theirs:MINE"), (extensions.IMPLEMENTATIONS, "mine", "theirs")]
    install("theirs", points, source)
    assert [each.name for each in list_templates()] == ["mine", *(each.name for each in TEMPLATES)]
    assert [each.NAME for each in load_implementations()] == [
        "mine",
        *(each.NAME for each in IMPLEMENTATIONS),
    ]
    assert (
        extensions.check_extensions()
        == "template mine of theirs 0.1, implementation mine of theirs 0.1"
    )
    sys.modules.pop("theirs")


@pytest.mark.fault("D10")
@pytest.mark.parametrize("parts", [1, 2])
def test_a_template_that_fails_is_told_and_leaves_the_function_to_the_next_one(install, parts):
    """Also where the functions that it raises on are parts of one."""
    from autopipe.safety.job import Piece, do
    from autopipe.schedules.templates import TEMPLATES
    from tests.schedules.engines.test_static import conv
    from tests.schedules.tasks import CONDITIONS
    from tests.schedules.tensors import module_of

    match = (
        f"if len(sch.get_child_blocks(sch.get_sblock('root'))) < {9 if parts == 1 else 2}:\n"
        "            raise RuntimeError('no\\nsuch loop')"
    )
    source = f"{MINE.format(name='mine', match=match)}\nMINE = Mine()\n"
    install("hasty", [(TEMPLATE, "mine", "hasty:MINE")], source)
    module = module_of(*conv()) if parts == 1 else module_of(two_sums())
    found = do(Piece("planning", "t", module, "static"), CONDITIONS)
    complaints = set(found["complaint"].split("; "))
    assert complaints == {"template mine of hasty 0.1: RuntimeError: no such loop"}
    assert json.loads(found["planned"][1])["template"] in {each.name for each in TEMPLATES}
    sys.modules.pop("hasty")


def two_sums():
    """Two sums over different axes, which one template schedules part by part."""
    x = te.placeholder((64, 48), "float32", name="x")
    k, j = te.reduce_axis((0, 48)), te.reduce_axis((0, 64))
    rows = te.compute((64,), lambda i: te.sum(x[i, k], axis=k), name="rows")
    y = te.compute((64, 48), lambda i, k: x[i, k] * rows[i], name="y")
    return x, te.compute((48,), lambda i: te.sum(y[j, i], axis=j), name="columns")


def test_what_an_extension_must_have_is_what_the_contracts_say():
    from autopipe.schedules.implementations import IMPLEMENTATIONS
    from autopipe.schedules.implementations.implementation import Implementation
    from autopipe.schedules.templates import TEMPLATES

    wanted = {TEMPLATE: Template, extensions.IMPLEMENTATIONS: Implementation}
    for group, contract in wanted.items():
        attributes = {*vars(contract), *contract.__annotations__}
        public = {name for name in attributes if not name.startswith("_")}
        assert public == set(extensions.NAMES[group])
    for group, ours in ((TEMPLATE, TEMPLATES), (extensions.IMPLEMENTATIONS, IMPLEMENTATIONS)):
        assert all(hasattr(each, name) for each in ours for name in extensions.NAMES[group])


def test_our_engines_are_the_ones_that_yaml_may_name():
    from autopipe.config.schedules import ENGINES
    from autopipe.schedules.engines.registry import load_engine_makers
    from tests.schedules.tasks import CONDITIONS

    assert all(load_engine_makers([name], CONDITIONS)[name]().name == name for name in ENGINES)
