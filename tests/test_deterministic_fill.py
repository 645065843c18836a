"""Memory of new tensors while deterministic algorithms are asked for."""

import pytest

import flambeau as fl


@pytest.fixture(autouse=True)
def deterministic():
    fl.use_deterministic_algorithms(True)
    yield
    fl.use_deterministic_algorithms(False)
    fl.utils.deterministic.fill_uninitialized_memory = True


def made(dtype):
    like = fl.zeros(3, 4, dtype=dtype)
    yield fl.empty(3, 4, dtype=dtype)
    yield fl.empty_like(like)
    yield fl.empty_strided((3, 4), (1, 3), dtype=dtype)
    yield fl.empty_permuted((3, 4), (1, 0), dtype=dtype)
    yield like.new_empty(3, 4)
    yield fl.empty(3, 4, out=fl.zeros(1, dtype=dtype))


@pytest.mark.parametrize("dtype", [fl.float, fl.double, fl.half, fl.complex64])
def test_floating_point_memory_is_nan(dtype):
    assert all(t.isnan().all() for t in made(dtype))


@pytest.mark.parametrize("dtype", [fl.uint8, fl.int8, fl.int16, fl.int32, fl.int64])
def test_integers_are_the_largest(dtype):
    assert all((t == fl.iinfo(dtype).max).all() for t in made(dtype))


def test_grown_memory_is_filled_behind_what_was_there():
    t = fl.ones(2)
    t.resize_(5)
    assert t[:2].tolist() == [1, 1] and t[2:].isnan().all()


def test_the_switch():
    fl.utils.deterministic.fill_uninitialized_memory = False
    assert not fl.empty(64).isnan().all()
