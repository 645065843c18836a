"""DataLoader in its own process: collating, arguments, streams."""

import collections

import numpy as np
import pytest

import flambeau as fl
from flambeau.utils.data import (
    DataLoader,
    Dataset,
    IterableDataset,
    Subset,
    TensorDataset,
    default_collate,
    default_convert,
    get_worker_info,
)

Pair = collections.namedtuple("Pair", "x y")


class Listed(Dataset):
    def __init__(self, samples):
        self.samples = samples

    def __len__(self):
        return len(self.samples)

    def __getitem__(self, i):
        return self.samples[i]


def test_rows_of_tensors_come_as_batches():
    x, y = fl.randn(10, 3), fl.arange(10)
    for data in (TensorDataset(x, y), Subset(TensorDataset(x, y), list(range(10)))):
        batches = list(DataLoader(data, batch_size=4))
        assert [len(b[0]) for b in batches] == [4, 4, 2] and isinstance(batches[0], list)
        assert fl.equal(fl.cat([b[0] for b in batches]), x) and fl.equal(fl.cat([b[1] for b in batches]), y)
    assert len(list(DataLoader(TensorDataset(x), batch_size=4, drop_last=True))) == 2


def test_overridden_getitem_is_respected():
    class Doubled(TensorDataset):
        def __getitem__(self, i):
            return tuple(t * 2 for t in super().__getitem__(i))

    (batch,) = DataLoader(Doubled(fl.arange(3)), batch_size=3)
    assert batch[0].tolist() == [0, 2, 4]


def test_shuffling_visits_everything_once():
    seen = fl.cat([b[0] for b in DataLoader(TensorDataset(fl.arange(100)), batch_size=7, shuffle=True)])
    assert sorted(seen.tolist()) == list(range(100)) and seen.tolist() != list(range(100))

    def order():
        loader = DataLoader(TensorDataset(fl.arange(20)), shuffle=True, generator=fl.Generator().manual_seed(3))
        return [b[0].item() for b in loader]

    assert order() == order()


def test_getitems_is_preferred():
    class Many(Listed):
        def __getitems__(self, indices):
            return [self.samples[i] * 10 for i in indices]

    assert [b.tolist() for b in DataLoader(Many([1, 2, 3]), batch_size=2)] == [[10, 20], [30]]


def test_collating_structures():
    batch = default_collate([{"a": 1, "b": [1.5, "x"]}, {"a": 2, "b": [2.5, "y"]}])
    assert batch["a"].tolist() == [1, 2] and batch["b"][0].dtype == fl.float64 and batch["b"][1] == ("x", "y")
    pair = default_collate([Pair(fl.ones(2), True), Pair(fl.zeros(2), False)])
    assert isinstance(pair, Pair) and pair.x.shape == (2, 2) and pair.y.dtype == fl.bool
    arrays = default_collate([np.ones(2, dtype=np.float32), np.zeros(2, dtype=np.float32)])
    assert arrays.tolist() == [[1, 1], [0, 0]] and arrays.dtype == fl.float32
    assert default_collate([np.int32(3), np.int32(4)]).dtype == fl.int32
    ordered = default_collate([collections.OrderedDict(k=1), collections.OrderedDict(k=2)])
    assert isinstance(ordered, collections.OrderedDict) and ordered["k"].tolist() == [1, 2]
    assert default_collate([b"a", b"b"]) == [b"a", b"b"]


def test_collating_refuses_what_it_cannot_join():
    with pytest.raises(TypeError, match="default_collate"):
        default_collate([object(), object()])
    with pytest.raises(RuntimeError, match="equal length"):
        default_collate([[1, 2], [1]])
    with pytest.raises(TypeError):
        default_collate([np.array(["a"]), np.array(["b"])])
    with pytest.raises(RuntimeError):
        default_collate([fl.ones(2), fl.ones(3)])


def test_converting():
    out = default_convert({"a": np.ones(2), "b": (1, np.zeros(1)), "c": Pair(np.ones(1), "s"), "d": "text"})
    assert isinstance(out["a"], fl.Tensor) and isinstance(out["b"][1], fl.Tensor)
    assert isinstance(out["c"].x, fl.Tensor) and out["d"] == "text"


def test_without_batches():
    samples = list(DataLoader(Listed([np.ones(2), "x"]), batch_size=None))
    assert isinstance(samples[0], fl.Tensor) and samples[1] == "x"


def test_streams():
    class Stream(IterableDataset):
        def __iter__(self):
            return iter(range(5))

        def __len__(self):
            return 3

    assert [b.tolist() for b in DataLoader(Stream(), batch_size=2)] == [[0, 1], [2, 3], [4]]
    assert [b.tolist() for b in DataLoader(Stream(), batch_size=2, drop_last=True)] == [[0, 1], [2, 3]]
    assert list(DataLoader(Stream(), batch_size=None)) == [0, 1, 2, 3, 4]
    loader = DataLoader(Stream(), batch_size=None)
    assert len(loader) == 3
    with pytest.warns(UserWarning, match="reported to be 3"):
        list(loader)
    for options in ({"shuffle": True}, {"sampler": [0]}):
        with pytest.raises(ValueError):
            DataLoader(Stream(), **options)


def test_samplers_and_collate_fn():
    data = Listed(list(range(6)))
    assert [b.tolist() for b in DataLoader(data, sampler=[5, 0, 3], batch_size=2)] == [[5, 0], [3]]
    assert [b.tolist() for b in DataLoader(data, batch_sampler=[[1], [2, 4]])] == [[1], [2, 4]]
    assert list(DataLoader(data, batch_size=3, collate_fn=sum)) == [3, 12]


@pytest.mark.parametrize(
    "options",
    [
        {"num_workers": -1}, {"timeout": -1}, {"prefetch_factor": 2}, {"persistent_workers": True},
        {"shuffle": True, "sampler": [0]}, {"batch_sampler": [[0]], "batch_size": 2},
        {"batch_size": None, "drop_last": True}, {"multiprocessing_context": "fork"}, {"batch_size": 0},
        {"num_workers": 1, "multiprocessing_context": "no such"}, {"num_workers": 1, "prefetch_factor": 0},
    ],
)  # fmt: skip
def test_contradictory_arguments_are_refused(options):
    with pytest.raises(ValueError):
        DataLoader(Listed([1]), **options)


def test_a_loader_cannot_be_changed():
    loader = DataLoader(Listed([1]))
    with pytest.raises(ValueError, match="batch_size"):
        loader.batch_size = 3
    assert get_worker_info() is None
