"""Weights lie in one stretch of memory."""

import mmap

import numpy as np
import pytest

from autopipe.compiler.library import arena
from autopipe.compiler.library.arena import Arena
from autopipe.runtime.weights import ALIGNMENT

SHAPES = ((3, 700, 300), (1,), (17,), ())


def taken(size):
    memory = Arena(size)
    arrays = [memory.take(shape, "float32") for shape in SHAPES]
    for at, array in enumerate(arrays):
        array[...] = at
    return arrays


@pytest.mark.parametrize("size", [0, 1 << 20, 2 << 20, 4 << 20])
def test_arrays_are_aligned_and_apart_even_where_there_is_no_room(size):
    arrays = taken(size)
    assert [array.shape for array in arrays] == list(SHAPES)
    assert all(array.ctypes.data % ALIGNMENT == 0 for array in arrays)
    assert all((array == at).all() for at, array in enumerate(arrays))


def test_what_fits_lies_behind_each_other():
    first, *others = taken(4 << 20)
    places = [array.ctypes.data - first.ctypes.data for array in others]
    assert first.ctypes.data % (2 << 20) == 0
    assert places == [2520000, 2520064, 2520192]  # 4 bytes, then 68


@pytest.mark.parametrize("without", ["pages", "memory"])
def test_a_system_without_large_pages_or_memory_gives_small_ones(monkeypatch, without):
    def refuse(*_, **__):
        raise OSError

    if without == "pages":
        monkeypatch.setattr(arena, "_ADVICE", None)
    else:
        monkeypatch.setattr(mmap, "mmap", refuse)
    assert all((array == at).all() for at, array in enumerate(taken(4 << 20)))


def test_memory_stays_as_long_as_an_array_of_it():
    last = np.asarray(taken(4 << 20)[2])
    assert (last == 2).all()
