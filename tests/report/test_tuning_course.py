from autopipe.report.tuning_course import follow_tuning
from tests.records.written import record

CALLS = {"aa": 2, "bb": 1}


def trial(second, workload, seconds, engine="ansor"):
    times = () if seconds is None else (seconds,)
    at = f"2026-01-01T00:{second // 60:02}:{second % 60:02}+00:00"
    return record(times, workload=workload, engine=engine, measured=at)


def followed(*trials):
    found = follow_tuning(trials, CALLS, ended="all trials are spent", seconds=9.0)
    assert found is not None
    return {curve.engine: curve for curve in found.curves}


def test_a_curve_is_what_all_kernels_take_with_the_best_so_far():
    curves = followed(
        trial(10, "aa", 3.0), trial(12, "bb", 5.0), trial(13, "aa", 4.0), trial(15, "aa", 1.0),
        trial(80, "bb", 2.0), trial(81, "bb", None),
    )  # fmt: skip
    assert curves.keys() == {"ansor"}
    assert curves["ansor"].points == ((0.0, 11.0), (5.0, 7.0), (70.0, 4.0))
    assert (curves["ansor"].trials, curves["ansor"].failed) == (6, 1)


def test_each_engine_has_its_own_from_the_same_beginning():
    curves = followed(
        trial(0, "aa", 3.0, "static"), trial(0, "bb", 5.0, "static"),
        trial(1, "aa", 2.0, "autotvm"), trial(2, "aa", 1.0, "ansor"),
    )  # fmt: skip
    assert list(curves) == ["all", "static", "autotvm", "ansor"]
    assert curves["all"].points == ((0.0, 11.0), (1.0, 9.0), (2.0, 7.0))
    assert curves["static"].points == ((0.0, 11.0),)
    assert curves["autotvm"].points == ((0.0, 11.0), (1.0, 9.0))
    assert curves["ansor"].points == ((0.0, 11.0), (2.0, 7.0))


def test_without_a_time_of_a_kernel_of_the_model_there_is_no_course():
    none = [trial(0, "aa", None), trial(0, "cc", 1.0)]
    assert follow_tuning(none, CALLS, ended="x", seconds=1.0) is None
    assert follow_tuning([], CALLS, ended="x", seconds=1.0) is None


def test_a_long_session_keeps_its_end_and_few_points():
    curve = followed(*(trial(at, "aa", 1000.0 - at) for at in range(900)))["ansor"]
    assert len(curve.points) <= 201
    assert curve.points[-1] == (899.0, 2 * 101.0)
