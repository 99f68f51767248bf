"""Our part of an exported folder under sanitizers: right calls, wrong ones, and forged folders."""

import shutil
import subprocess

import numpy as np
import pytest

from autopipe.artifacts.signature import Port, Signature
from autopipe.config.dimension import Dimension
from autopipe.packaging.manifest import Processor
from autopipe.runtime.description import describe_builds
from autopipe.runtime.weights import PlacedWeight
from tests.export.forging import edit_lines, forge_folder, remove_file, replace_file
from tests.export.sanitized import (
    ADDRESS,
    HERE,
    THREAD,
    compile_client,
    compile_native_part,
    compile_reader,
    has_sanitizer,
    needs,
    run_checked,
)

pytestmark = pytest.mark.skipif(shutil.which("cc") is None, reason="no C compiler")

SANITIZERS = [
    pytest.param(options, marks=needs(options), id=name)
    for name, options in {"address": ADDRESS, "thread": THREAD}.items()
]


LOST_BY_A_FORK = """
{
  threads
  Memcheck:Leak
  match-leak-kinds: definite
  ...
  fun:_ZN3tvm7runtime9threading11ThreadGroupC*
}
{
  destructors of threads
  Memcheck:Leak
  match-leak-kinds: definite
  fun:calloc
  fun:__cxa_thread_atexit_impl
}
"""


@pytest.fixture
def checked(folder):
    """An exported folder whose library and program have the checks for wrong addresses."""
    if not has_sanitizer(ADDRESS):
        pytest.skip("no address sanitizer")
    compile_native_part(folder, ADDRESS)
    return folder


def zero_table(folder):
    """Make the smaller weight zeros, so that the first index of a row is its largest element."""
    lines = [line.split() for line in (folder / "model.txt").read_text().splitlines()]
    offset = next(
        int(words[2]) for words in lines if words[0] == "weight" and words[3:] == ["5", "8"]
    )
    data = bytearray((folder / "weights.safetensors").read_bytes())
    data[offset : offset + 160] = bytes(160)
    (folder / "weights.safetensors").write_bytes(data)


def compile_nothing(out):
    """Return a shared library that is no model."""
    subprocess.run(["cc", "-shared", "-x", "c", "/dev/null", "-o", out], check=True)
    return out.read_bytes()


@pytest.mark.parametrize("options", [*SANITIZERS, pytest.param(["-g"], id="plain")])
@pytest.mark.parametrize("words", [["1"], ["2", "copy"]], ids=["mapped", "copied"])
def test_the_c_interface_answers_right_and_wrong_calls(folder, tmp_path, options, words):
    zero_table(folder)
    compile_native_part(folder, options)
    client = compile_client(HERE / "client.c", folder, tmp_path / "client", options)
    done = run_checked([client, folder, *words], tmp_path)
    assert (done.returncode, done.stdout) == (0, "done\n"), done.stderr[-4000:]


def test_a_fork_after_a_call_does_not_depend_on_how_fast_threads_start(folder, tmp_path):
    zero_table(folder)
    compile_native_part(folder, ["-g"])
    preloaded = tmp_path / "late.so"
    command = ["cc", "-shared", "-fPIC", "-o", preloaded, "tests/support/late.c"]
    subprocess.run(command, check=True)
    client = compile_client(HERE / "client.c", folder, tmp_path / "client")
    done = run_checked(["env", f"LD_PRELOAD={preloaded}", client, folder, "1"], tmp_path)
    assert (done.returncode, done.stdout) == (0, "done\n"), done.stderr[-4000:]


@pytest.mark.parametrize("options", SANITIZERS)
def test_handles_are_used_and_closed_from_many_threads_at_once(folder, tmp_path, options):
    compile_native_part(folder, options)
    stress = compile_client(HERE / "stress.c", folder, tmp_path / "stress", options)
    done = run_checked([stress, folder, "3"], tmp_path)
    assert (done.returncode, int(done.stdout) > 0) == (0, True), done.stderr[-4000:]


@pytest.mark.skipif(shutil.which("valgrind") is None, reason="no valgrind")
def test_valgrind_finds_no_error_and_no_leak(folder, tmp_path):
    """In TVM's runtime besides, whose threads a fork loses with what they hold."""
    zero_table(folder)
    compile_native_part(folder, ["-g"])
    client = compile_client(HERE / "client.c", folder, tmp_path / "client", ["-g"])
    (tmp_path / "lost").write_text(LOST_BY_A_FORK)
    options = [
        "--error-exitcode=99", "--leak-check=full", "--show-leak-kinds=definite",
        "--errors-for-leak-kinds=definite", f"--suppressions={tmp_path}/lost",
    ]  # fmt: skip
    done = run_checked(["valgrind", *options, client, folder, "2"], tmp_path)
    assert (done.returncode, done.stdout) == (0, "done\n"), done.stderr[-4000:]


def test_the_program_is_clean(checked, tmp_path):
    """Each of its actions, and options that do not fit."""
    program = checked / "bin" / "run"
    np.save(tmp_path / "x.npy", np.ones((4, 8), "float32"))
    np.save(tmp_path / "ids.npy", np.arange(4))
    given = ["--input", f"data/x={tmp_path}/x.npy", "--input", f"ids={tmp_path}/ids.npy"]
    short = ["--seconds", "0.05", "--warmup", "0"]
    asked = [
        (["--describe", "--verify"], 0), (["--self-test", "--copy-weights"], 0),
        ([*given, "--output", tmp_path / "out"], 0), (given[:2], 2), ([*given, *given], 2),
        (["--bench", *short, "--callers", "3", "--json"], 0),
        (["--bench", "--size", "data/x=3"], 2), (["--bench", "--size", "z=3"], 2),
        (["--input", "x.npy"], 2), (["--threads", "0"], 2), (["--folder"], 2),
        (["--folder", "/nowhere"], 3), (["--threads", "2", "--self-test"], 0),
    ]  # fmt: skip
    for words, code in asked:
        done = run_checked([program, *words], tmp_path)
        assert done.returncode == code, (words, done.stdout, done.stderr[-2000:])


@pytest.mark.fault("K7")
def test_forged_cases_are_refused(checked, tmp_path):
    """Lines of the list and headers of arrays that others wrote."""
    cases = checked / "cases"
    text = (cases / "cases.txt").read_text()
    array = cases / "0.output.0.npy"
    data = array.read_bytes()
    lists = [*edit_lines(text, 1), text + "input %4", "case %", text.replace("case", "case %4")]
    for index, changed in enumerate(lists[::3]):
        (cases / "cases.txt").write_text(changed)
        done = run_checked([checked / "bin" / "run", "--self-test"], tmp_path)
        assert done.returncode in {0, 1, 2, 3}, (index, changed, done.stderr[-2000:])
    (cases / "cases.txt").write_text(text)
    arrays = [data[:-1], data[:9], data[:60], b"",
              data.replace(b"(4, 8)", b"(9999999999999999, 8)"),
              data.replace(b"<f4", b"<f8"), data.replace(b"(4, 8)", b"(4, -8)"),
              data.replace(b"(4, 8)", b"(" + b"1," * 20 + b")"),
              data.replace(b"(4, 8)", b"(0, 8)"),
              data[:8] + b"\xff\xff" + data[10:]]  # fmt: skip
    for changed in arrays:
        array.write_bytes(changed)
        done = run_checked([checked / "bin" / "run", "--self-test"], tmp_path)
        assert done.returncode in {1, 3}, (changed[:100], done.stderr[-2000:])


@pytest.mark.fault("K7")
def test_a_forged_folder_is_refused_or_runs(checked, tmp_path):
    """Digests that are right, of files that are not: a status and a line for each, and no crash."""
    text = (checked / "model.txt").read_text()
    weights = (checked / "weights.safetensors").read_bytes()
    library = (checked / "lib.so").read_bytes()
    changes = [replace_file("model.txt", one.encode()) for one in edit_lines(text, 1)]
    refused = [
        remove_file("model.txt"), remove_file("weights.safetensors"), remove_file("lib.so"),
        *(replace_file("lib.so", library[:size]) for size in (0, 10, 100, len(library) // 2)),
        replace_file("lib.so", compile_nothing(tmp_path / "nothing.so")),
        *(replace_file("weights.safetensors", weights[:size]) for size in (0, 1, 100)),
    ]  # fmt: skip
    changes += [
        *(replace_file("weights.safetensors", weights[:size]) for size in (-1, -64)),
        replace_file("lib.so", library[:-200]),
        replace_file("weights.safetensors", b"\xff" * len(weights)),
    ]
    folders = [
        forge_folder(checked, tmp_path / "forged" / str(index), change)
        for index, change in enumerate([lambda _: None, *refused, *changes])
    ]
    (folders[-1] / "SHA256SUMS").unlink()
    forged = compile_client(HERE / "forged.c", checked, tmp_path / "forger", ADDRESS)
    done = run_checked([forged, *folders], tmp_path)
    assert done.returncode == 0, done.stderr[-4000:]
    answers = done.stdout.splitlines()
    assert len(answers) == len(folders)
    assert answers[0] == "0 run "
    opened = [one for one in answers[1 : 1 + len(refused)] if not one.startswith("3 open ")]
    assert not opened
    assert {answer[0] for answer in answers} == {"0", "1", "3", "4", "6"}


@needs(ADDRESS)
def test_no_description_breaks_its_reader(tmp_path):
    """Every line left out, doubled and cut; every word replaced by a few others."""
    dimension = Dimension(min=1, max=8, likely=(4,))
    signature = Signature(
        inputs=(Port(name="x y", shape=(-1, -1), dtype="float32", dimensions=("n", "n + 1")),),
        outputs=(Port(name="y", shape=(-1, -1, -1, 3), dtype="float32",
                      dimensions=("n", "", "", ""), ranges=(None, (2, 9), None, None)),),
        weights=("w",), threads=2, dimensions={"n": dimension},
        entries=({"library": "lib.0.so", "sizes": {"n": 4}, "weights": ("w",)},),
    )  # fmt: skip
    processor = Processor(machine="x86_64", mcpu="znver3", features=("sse3",))
    needs = {"signature": signature.model_dump(mode="json"), "processor": processor.model_dump()}
    ((_, text),) = describe_builds(needs, {"w": PlacedWeight("float32", 64, (2, 3))})
    texts = [text, *edit_lines(text, len(text))]
    folders = []
    for index, one in enumerate(texts):
        (tmp_path / str(index)).mkdir()
        (tmp_path / str(index) / "model.txt").write_text(one)
        folders.append(str(tmp_path / str(index)))
    done = run_checked([compile_reader(tmp_path / "reader"), *folders], tmp_path)
    assert done.returncode == 0, done.stderr[-2000:]
    answers = done.stdout.splitlines()
    assert len(answers) == len(texts)
    assert answers[0].startswith("0")
    assert {answer[0] for answer in answers} == {"0", "3"}
    assert sum(answer[0] == "3" for answer in answers) > len(answers) // 2
