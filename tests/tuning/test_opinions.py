"""What is believed where workers of a farm say different things."""

import pytest

from autopipe.measure.measurement import Measurement
from autopipe.tuning.runners.opinions import HERE, Doubts, Witnesses, agree, believed


def said(**milliseconds):
    """Return what each says of some candidates; null for one that failed."""
    return {
        name: [Measurement((1e-3 * each,)) if each else Measurement(error="no") for each in times]
        for name, times in milliseconds.items()
    }


def times(opinion):
    return [round(1e3 * each.median, 6) if each.seconds else None for each in opinion.measurements]


def test_two_that_agree_are_believed_as_one_of_them_says():
    opinion = believed(said(a=[1, 4], b=[1.9, 3]))
    assert times(opinion) == [1, 4]
    assert not opinion.odd
    assert not opinion.apart


@pytest.mark.parametrize("lie", [0.1, 30])
def test_who_contradicts_two_that_agree_is_odd(lie):
    for order in ("abc", "bca", "cab"):
        every = said(a=[1, lie], b=[1, 3], c=[1, 3.1])
        opinion = believed({name: every[name] for name in order})
        assert opinion.odd == {"a"}
        assert times(opinion) in ([1, 3], [1, 3.1])


def test_of_two_that_disagree_the_slower_counts_one_by_one():
    opinion = believed(said(a=[1, 9, 2], b=[5, 3, None]))
    assert times(opinion) == [5, 9, None]
    assert opinion.apart == ("a", "b")


def test_three_that_say_three_things_are_nobodys_fault():
    opinion = believed(said(a=[1], b=[5], c=[25]))
    assert not opinion.odd
    assert times(opinion) in ([1], [5], [25])


def test_three_that_contradict_two_others_each_are_nobodys_fault():
    opinion = believed(said(a=[9, 1, 1], b=[1, 9, 1], c=[1, 1, 9]))
    assert not opinion.odd
    assert len(opinion.measurements) == 3


def test_a_failure_counts_where_most_have_seen_it_and_is_no_lie():
    opinion = believed(said(a=[1, 1], b=[1, None], c=[1, None]))
    assert times(opinion) == [1, None]
    assert not opinion.odd
    assert times(believed(said(a=[1], b=[None], c=[1]))) == [1]


def witnesses(truths, here=None):
    """Return who asks workers that say this: the first of each group that says anything."""
    asked = []

    def ask(groups):
        answers = [next((name for name in group if truths[name]), None) for group in groups]
        asked.append(answers)
        return {name: truths[name] for name in answers if name}

    return Witnesses(lambda: list(truths), ask, lambda: here, agree), asked


def test_a_third_is_asked_only_where_two_disagree():
    one, asked = witnesses(said(a=[1], b=[1], c=[1]))
    assert list(one.said()) == ["a", "b"]
    assert asked == [["a", "b"]]
    one, asked = witnesses(said(a=[1], b=[9], c=[1]))
    assert list(one.said()) == ["a", "b", "c"]
    assert asked == [["a", "b"], ["c"]]


def test_this_machine_is_asked_where_workers_are_too_few():
    (own,) = said(here=[1]).values()
    assert list(witnesses(said(a=[1]), own)[0].said()) == ["a", HERE]
    assert list(witnesses(said(a=[1], b=[9]), own)[0].said()) == ["a", "b", HERE]
    assert list(witnesses(said(a=[1], b=[1]), own)[0].said()) == ["a", "b"]
    assert list(witnesses(said(a=[1], b=[9]))[0].said()) == ["a", "b"]


def test_who_says_nothing_is_replaced_and_where_nobody_is_left_it_ends():
    one, _ = witnesses({"a": [], **said(b=[1], c=[1])})
    assert sorted(one.said()) == ["b", "c"]
    assert witnesses({"a": [], "b": []})[0].said() == {}


def test_a_worker_is_told_of_once_and_this_machine_never():
    told = []
    doubts = Doubts(lambda worker, why: told.append((worker, why)))
    for why in ("first", "second"):
        doubts.add("a", why)
        doubts.add(HERE, why)
    assert told == [("a", "first")]
    assert doubts.why == {"a": "first"}


def test_who_is_confronted_is_asked_beside_two_others_and_this_machine_stands_for_one():
    one, asked = witnesses(said(a=[1], b=[9], c=[9], d=[9]))
    assert believed(one.beside("a")).odd == {"a"}
    assert asked == [["a", "b", "c"]]
    (own,) = said(here=[9]).values()
    assert believed(witnesses(said(a=[1], b=[9]), own)[0].beside("a")).odd == {"a"}
    assert not believed(witnesses(said(a=[1]), own)[0].beside("a")).odd
    assert witnesses(said(b=[9], c=[9]))[0].beside("a") == {}


def test_claims_that_are_taken_back_are_believed_no_more_than_twice():
    doubts = Doubts()
    for _ in range(2):
        doubts.slip("a", "not true")
    doubts.slip("b", "not true")
    assert doubts.why == {}
    doubts.slip("a", "not true")
    assert doubts.why == {"a": "not true"}
