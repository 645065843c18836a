"""Data loading beside PyTorch's: the same batches, lengths and errors wherever chance plays no part."""

import collections
import warnings

import numpy as np
import pytest

torch = pytest.importorskip("torch")

import flambeau as fl  # noqa: E402

LIBRARIES = (torch, fl)
Point = collections.namedtuple("Point", "x y")


def plain(value):
    """Structures with lists for tensors, so that both libraries' results can be compared."""
    if isinstance(value, (torch.Tensor, fl.Tensor)):
        return ("tensor", str(value.dtype), tuple(value.shape), value.tolist())
    if isinstance(value, np.ndarray):
        return ("array", str(value.dtype), value.tolist())
    if isinstance(value, dict):
        return (type(value).__name__, {k: plain(v) for k, v in value.items()})
    if isinstance(value, tuple) and hasattr(value, "_fields"):
        return (type(value).__name__, [plain(v) for v in value])
    if isinstance(value, (list, tuple)):
        return (type(value).__name__, [plain(v) for v in value])
    return value


def outcome(lib, function):
    """The result, or the class of the error."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            return plain(function(lib))
        except Exception as error:
            return type(error).__name__


SAMPLES = {
    "numbers": lambda t: [1, 2, 3],
    "floats": lambda t: [0.5, 1.5],
    "bools": lambda t: [True, False],
    "strings": lambda t: ["a", "b"],
    "bytes": lambda t: [b"a", b"b"],
    "tensors": lambda t: [t.ones(2, 3), t.zeros(2, 3)],
    "half": lambda t: [t.ones(2, dtype=t.bfloat16)] * 2,
    "unequal tensors": lambda t: [t.ones(2), t.ones(3)],
    "arrays": lambda t: [np.ones((2, 2), np.float32), np.zeros((2, 2), np.float32)],
    "integer arrays": lambda t: [np.arange(3), np.arange(3)],
    "array scalars": lambda t: [np.float32(1), np.float32(2)],
    "0-d arrays": lambda t: [np.array(1.5), np.array(2.5)],
    "text arrays": lambda t: [np.array(["a"]), np.array(["b"])],
    "tuples": lambda t: [(1, 2.0, "x"), (3, 4.0, "y")],
    "lists": lambda t: [[1, 2], [3, 4]],
    "unequal lists": lambda t: [[1, 2], [3]],
    "dicts": lambda t: [{"a": 1, "b": t.ones(1)}, {"a": 2, "b": t.zeros(1)}],
    "ordered dicts": lambda t: [collections.OrderedDict(a=1), collections.OrderedDict(a=2)],
    "missing keys": lambda t: [{"a": 1}, {"b": 2}],
    "named tuples": lambda t: [Point(1, t.ones(2)), Point(2, t.zeros(2))],
    "nested": lambda t: [{"a": [(1, {"b": t.ones(1)})]}, {"a": [(2, {"b": t.ones(1)})]}],
    "nothing": lambda t: [None, None],
    "objects": lambda t: [object(), object()],
    "empty": lambda t: [],
    "mixed": lambda t: [1, 2.5],
    "ranges": lambda t: [range(2), range(2)],
}


@pytest.mark.parametrize("name", SAMPLES)
@pytest.mark.parametrize("function", ["default_collate", "default_convert"])
def test_collating(name, function):
    results = [outcome(t, lambda t: getattr(t.utils.data, function)(SAMPLES[name](t))) for t in LIBRARIES]
    if "object object" in str(results[0]):
        return
    assert results[0] == results[1]


class Range(torch.utils.data.Dataset, fl.utils.data.Dataset):
    def __init__(self, n):
        self.n = n

    def __len__(self):
        return self.n

    def __getitem__(self, i):
        return i


CASES = {
    "batches": lambda d, data: list(d.DataLoader(data, batch_size=4)),
    "drop last": lambda d, data: list(d.DataLoader(data, batch_size=4, drop_last=True)),
    "no batches": lambda d, data: list(d.DataLoader(data, batch_size=None)),
    "sampler": lambda d, data: list(d.DataLoader(data, sampler=[3, 1, 2], batch_size=2)),
    "batch sampler": lambda d, data: list(d.DataLoader(data, batch_sampler=[[1, 2], [3]])),
    "collate": lambda d, data: list(d.DataLoader(data, batch_size=3, collate_fn=sum)),
    "length": lambda d, data: len(d.DataLoader(data, batch_size=4)),
    "length without last": lambda d, data: len(d.DataLoader(data, batch_size=4, drop_last=True)),
    "shuffled length": lambda d, data: len(list(d.DataLoader(data, batch_size=4, shuffle=True))),
    "subset": lambda d, data: list(d.DataLoader(d.Subset(data, [5, 2]))),
    "concat": lambda d, data: [d.ConcatDataset([data, data])[i] for i in (0, 9, 10, 19, -1)],
    "concat beyond": lambda d, data: d.ConcatDataset([data])[-11],
    "concat of nothing": lambda d, data: d.ConcatDataset([]),
    "stack": lambda d, data: d.StackDataset(data, data).__getitems__([1, 2]),
    "stack by name": lambda d, data: d.StackDataset(a=data, b=data)[1],
    "stack of both": lambda d, data: d.StackDataset(data, a=data),
    "split": lambda d, data: [len(s) for s in d.random_split(data, [0.6, 0.3, 0.1])],
    "split of uneven": lambda d, data: [len(s) for s in d.random_split(Range(11), [0.34, 0.33, 0.33])],
    "bad split": lambda d, data: d.random_split(data, [3, 3]),
    "negative split": lambda d, data: d.random_split(data, [1.5, -0.5]),
    "distributed": lambda d, data: [
        list(d.DistributedSampler(Range(n), r, k, shuffle=False, drop_last=drop))
        for n in (1, 7, 10) for r in (2, 3) for k in range(r) for drop in (False, True)
    ],
    "bad rank": lambda d, data: d.DistributedSampler(data, 2, 2),
    "batch sampler lists": lambda d, data: list(d.BatchSampler(range(7), 3, False)),
    "zero batch": lambda d, data: d.DataLoader(data, batch_size=0),
    "negative workers": lambda d, data: d.DataLoader(data, num_workers=-1),
    "shuffle and sampler": lambda d, data: d.DataLoader(data, shuffle=True, sampler=[1]),
    "batch sampler and size": lambda d, data: d.DataLoader(data, batch_sampler=[[1]], batch_size=2),
    "drop without batches": lambda d, data: d.DataLoader(data, batch_size=None, drop_last=True),
    "timeout": lambda d, data: d.DataLoader(data, timeout=-1),
    "timeout without workers": lambda d, data: list(d.DataLoader(data, timeout=5)),
    "prefetch without workers": lambda d, data: d.DataLoader(data, prefetch_factor=2),
    "persistent without workers": lambda d, data: d.DataLoader(data, persistent_workers=True),
    "context without workers": lambda d, data: d.DataLoader(data, multiprocessing_context="fork"),
    "unknown context": lambda d, data: d.DataLoader(data, num_workers=1, multiprocessing_context="x"),
    "odd context": lambda d, data: d.DataLoader(data, num_workers=1, multiprocessing_context=3),
    "samples without number": lambda d, data: d.RandomSampler(data, num_samples=-1),
    "replacement of no kind": lambda d, data: d.RandomSampler(data, replacement=3),
    "weights of two dimensions": lambda d, data: d.WeightedRandomSampler([[1.0]], 1),
    "no length": lambda d, data: len(d.DataLoader(d.IterableDataset())),
    "no getitem": lambda d, data: d.Dataset()[0],
    "empty data": lambda d, data: list(d.DataLoader(Range(0), batch_size=2)),
    "empty shuffled": lambda d, data: list(d.DataLoader(Range(0), shuffle=True)),
    "assignment": lambda d, data: setattr(d.DataLoader(data), "batch_size", 3),
    "tensors": lambda d, data: None,
}  # fmt: skip


@pytest.mark.parametrize("name", CASES)
def test_loading(name):
    results = [outcome(t, lambda t: CASES[name](t.utils.data, Range(10))) for t in LIBRARIES]
    assert results[0] == results[1]


def test_rows_of_tensors():
    def load(t, **options):
        data = t.utils.data
        rows = data.TensorDataset(t.arange(12).view(6, 2), t.arange(6.0))
        return list(data.DataLoader(data.Subset(rows, [4, 0, -1, 2]), batch_size=3, **options))

    for options in ({}, {"num_workers": 1}):
        results = [outcome(t, lambda t, options=options: load(t, **options)) for t in LIBRARIES]
        assert results[0] == results[1]


@pytest.mark.parametrize("error", [ValueError, KeyError, IndexError, ZeroDivisionError, StopIteration])
@pytest.mark.parametrize("workers", [0, 1])
def test_errors_of_datasets(error, workers):
    def load(t):
        class Failing(t.utils.data.Dataset):
            def __len__(self):
                return 3

            def __getitem__(self, i):
                if i == 2:
                    raise error("x")
                return i

        return list(t.utils.data.DataLoader(Failing(), num_workers=workers))

    results = [outcome(t, load) for t in LIBRARIES]
    assert results[0] == results[1]
