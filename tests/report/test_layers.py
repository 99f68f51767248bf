import random

from autopipe.report.html.layers import lay_out
from tests.support.table import each_row

BOX = {"width": 10.0, "height": 4.0, "gap": 2.0}


def drawn(reads):
    made = lay_out(reads, **BOX)
    assert made is not None
    return made


def overlaps(layout):
    """Pairs of boxes that cover each other."""
    return [
        (one, other)
        for at, one in enumerate(layout.centres)
        for other in layout.centres[at + 1 :]
        if one[1] == other[1] and abs(one[0] - other[0]) < BOX["width"] + BOX["gap"] - 1e-6
    ]


def test_a_chain_is_a_straight_line_downwards():
    layout = drawn([(), (0,), (1,)])
    assert layout.centres == ((5.0, 2.0), (5.0, 8.0), (5.0, 14.0))
    assert (layout.width, layout.height) == (10.0, 18.0)
    assert layout.edges == (((5.0, 2.0), (5.0, 8.0)), ((5.0, 8.0), (5.0, 14.0)))


def test_an_edge_across_layers_goes_around_what_is_there():
    layout = drawn([(), (0,), (1, 0)])
    around = layout.edges[1] if len(layout.edges[1]) > 2 else layout.edges[2]
    assert [y for _, y in around] == [2.0, 8.0, 14.0]
    middle = layout.centres[1][0]
    assert abs(around[1][0] - middle) >= BOX["width"] / 2


def test_branches_are_drawn_without_crossings():
    """Two branches that begin in the other order than they are joined."""
    layout = drawn([(), (0,), (0,), (2,), (1,), (3, 4)])
    left, right = layout.centres[1][0], layout.centres[2][0]
    assert (left < right) == (layout.centres[4][0] < layout.centres[3][0])


@each_row("seed", range(20))
def test_boxes_never_cover_each_other_and_stand_below_what_they_read(seed):
    choose = random.Random(seed)
    reads = [tuple(choose.sample(range(at), min(at, choose.randrange(4)))) for at in range(60)]
    layout = drawn(reads)
    assert not overlaps(layout)
    for at, sources in enumerate(reads):
        assert all(layout.centres[source][1] < layout.centres[at][1] for source in sources)
        assert 0 <= layout.centres[at][0] <= layout.width
    assert layout == drawn(reads)


def test_a_graph_that_is_too_large_is_not_laid_out():
    assert lay_out([()] * 30_000, **BOX) is None
    chain = [(at - 1,) if at else () for at in range(1000)]
    assert lay_out(chain, **BOX) is not None
    assert lay_out([*chain, *[(0, 999)] * 30], **BOX) is None, "edges across 1000 layers"
    assert lay_out([], **BOX) is not None
