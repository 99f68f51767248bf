"""Each wall with the others taken away, against code that a library runs when it is loaded."""

import platform

import pytest
import tvm

from autopipe.compiler.codegen.compile_kernels import compile_kernel, export_library
from autopipe.compiler.walls import check_objects, module, text
from autopipe.compiler.walls.foreign_code import ForeignCode
from autopipe.libraries import LIBRARIES
from autopipe.libraries.library import CBlas
from autopipe.measure import build, check
from tests.compiler import graphs
from tests.compiler.walls import hostile

pytestmark = pytest.mark.skipif(
    platform.machine() != "x86_64", reason="the code that is brought along is for x86-64"
)

WALLS = {
    "module": [(module, "look_through")],
    "text": [(text, "look_through")],
    "object": [(check_objects, "look_at_object")],
    "library": [(check_objects, "look_at_library")],
}
"""What each wall is made of; to be replaced by what sees nothing."""

STARTS = {"by section": hostile.STARTED, "by LLVM's list": hostile.CONSTRUCTED}


@pytest.fixture
def take_away(monkeypatch):
    def take(*names):
        for place, name in (each for wall in names for each in WALLS[wall]):
            monkeypatch.setattr(place, name, lambda *_: None)

    return take


def attack(how, folder):
    """Compile, link and load what makes a file where it is loaded."""
    made = hostile.importing(STARTS[how], folder / "marker")
    library = compile_kernel(made, graphs.TARGET)
    export_library(tvm.runtime.Executable(library), folder / "lib.so")
    return tvm.runtime.load_module(str(folder / "lib.so"))


@pytest.mark.parametrize("how", STARTS)
def test_without_walls_the_command_is_run(how, tmp_path, take_away):
    """This is what all of them are for; without it, nothing here would be shown."""
    take_away(*WALLS)
    attack(how, tmp_path)
    assert (tmp_path / "marker").exists()


@pytest.mark.fault("I1", "I2", "I3")
@pytest.mark.parametrize("how", STARTS)
@pytest.mark.parametrize("wall", WALLS)
def test_each_wall_alone_keeps_the_command_from_being_run(how, wall, tmp_path, take_away):
    take_away(*(WALLS.keys() - {wall}))
    with pytest.raises(ForeignCode):
        attack(how, tmp_path)
    assert not (tmp_path / "marker").exists()
    assert not (tmp_path / "lib.so").exists()


RUNS = {
    "timed": lambda _, calls: build.build_kernel(calls, graphs.TARGET),
    "checked": lambda sound, calls: check.checked(sound, calls, graphs.TARGET),
    "compared with": lambda sound, calls: check.checked(calls, sound, graphs.TARGET),
}


@pytest.mark.fault("I1", "I2")
@pytest.mark.parametrize("wall", ["module", "text"])
@pytest.mark.parametrize("run", RUNS.values(), ids=RUNS)
def test_a_candidate_is_refused_before_any_of_it_is_run(run, wall, tmp_path, take_away):
    """Both walls before a candidate is run in the process that compiled it."""
    take_away(*(WALLS.keys() - {wall}))
    marker = tmp_path / "marker"
    sound, calls = hostile.doubled()[0].mod, hostile.calling("system", f"touch {marker}")
    with pytest.raises(ForeignCode, match="system"):
        run(sound, calls)
    assert not marker.exists()


def test_a_candidate_without_walls_runs_the_command(tmp_path, take_away):
    take_away(*WALLS)
    calls = hostile.calling("system", f"touch {tmp_path / 'marker'}")
    check.checked(hostile.doubled()[0].mod, calls, graphs.TARGET)
    assert (tmp_path / "marker").exists()


def test_a_library_is_called_only_by_who_says_so():
    interface = next(each.interface for each in LIBRARIES if isinstance(each.interface, CBlas))
    library = next(each for each in LIBRARIES if each.interface is interface)
    calls = hostile.calling(interface.threads, 1)
    with pytest.raises(ForeignCode, match=interface.threads):
        module.look_through(calls)
    labelled = calls["main"].with_attr("autopipe.library", f"{library.name} 1.0")
    module.look_through(labelled)
