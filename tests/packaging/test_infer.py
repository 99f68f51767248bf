import numpy as np
import pytest

from autopipe.errors import ConfigError, PackageError
from autopipe.packaging.infer import run_inference
from autopipe.stages.package import PackageStage
from tests.support import small_build


@pytest.fixture
def package(context):
    ctx = context()
    PackageStage(pipeline="small", configuration={}).run(ctx)
    return ctx.out / "small.tar"


@pytest.fixture
def files(tmp_path):
    x = np.random.default_rng(1).standard_normal((4, 8)).astype("float32")
    np.save(tmp_path / "x.npy", x)
    np.save(tmp_path / "ids.npy", np.array([0, 4, 2, 1]))
    return [f"data/x={tmp_path / 'x.npy'}", f"ids={tmp_path / 'ids.npy'}"]


def test_outputs_are_summed_up_and_saved(package, files, tmp_path, no_leaks):
    summary = run_inference(package, files, tmp_path / "results").splitlines()
    scores, best = small_build.expected(np.load(tmp_path / "x.npy"), np.load(tmp_path / "ids.npy"))
    assert summary[0].startswith("scores: float32 [4, 8], min ")
    assert summary[0].endswith(f"-> {tmp_path / 'results' / 'scores.npy'}")
    assert summary[1].startswith("best: int64 [4], ")
    np.testing.assert_allclose(np.load(tmp_path / "results/scores.npy"), scores, rtol=1e-5)
    np.testing.assert_array_equal(np.load(tmp_path / "results/best.npy"), best)


def test_one_file_may_hold_all_inputs(package, files, tmp_path):
    arrays = {text.partition("=")[0]: np.load(text.partition("=")[2]) for text in files}
    np.savez(tmp_path / "all.npz", **arrays)
    assert run_inference(package, [str(tmp_path / "all.npz")], None) == run_inference(
        package, files, None
    )


def test_a_folder_that_can_not_be_is_named(package, files, tmp_path):
    (tmp_path / "file").touch()
    with pytest.raises(ConfigError, match=r"--output .*file/scores\.npy: (Not a dir|File exists)"):
        run_inference(package, files, tmp_path / "file")


def test_nothing_is_saved_without_a_folder(package, files, tmp_path):
    before = set(tmp_path.rglob("*"))
    assert "->" not in run_inference(package, files, None)
    assert set(tmp_path.rglob("*")) == before


@pytest.mark.parametrize(
    ("inputs", "message"),
    [
        (["x.npy"], r"write <name>=x\.npy: the inputs are data/x, ids"),
        (["data/x=a.npy", "data/x=a.npy"], "'data/x' is given twice"),
        (["data/x=nowhere.npy"], r"nowhere\.npy: No such file"),
        (["data/x=text.npy"], r"text\.npy: not a whole \.npy or \.npz file of numbers$"),
        (["data/x=pickled.npy"], r"pickled\.npy: not a whole \.npy or \.npz file of numbers$"),
        (["data/x=archive.npz"], "an archive of arrays"),
        (
            ["archive.npz"],
            r"archive\.npz: input 'data/x' float32 \[4, 8\] is missing; there is arr_0",
        ),
        (["data/X=a.npy"], "no input 'data/X'; did you mean 'data/x'"),
        (["data/x=a.npy"], r"input 'data/x' is float64 \[3\]; the model takes float32 \[4, 8\]"),
    ],
)
def test_inputs_that_do_not_fit_are_refused(package, tmp_path, monkeypatch, inputs, message):
    monkeypatch.chdir(tmp_path)
    np.save("a.npy", np.zeros(3))
    np.save("pickled.npy", np.array([{}]), allow_pickle=True)
    np.savez("archive.npz", np.zeros(3))
    (tmp_path / "text.npy").write_text("no array")
    with pytest.raises(ConfigError, match=message):
        run_inference(package, inputs, None)


@pytest.mark.fault("E14")
def test_a_crash_ends_in_one_line(context, tmp_path, files):
    crash = tmp_path / "crash"
    crash.mkdir()
    far = small_build.DENSE + "\nC[3 + T.int32(100000000) * 10, 7] = T.float32(1)"
    small_build.save_library(crash, far)
    ctx = context(build=crash)
    PackageStage(pipeline="crash", configuration={}).run(ctx)
    with pytest.raises(PackageError, match=r"running it failed: killed by SIGSEGV$"):
        run_inference(ctx.out / "crash.tar", files, None)
