"""Datasets, their combinations, and the orders in which samplers visit them."""

import pytest

import flambeau as fl
from flambeau.utils.data import (
    BatchSampler,
    ChainDataset,
    ConcatDataset,
    Dataset,
    DistributedSampler,
    IterableDataset,
    RandomSampler,
    SequentialSampler,
    StackDataset,
    Subset,
    SubsetRandomSampler,
    TensorDataset,
    WeightedRandomSampler,
    random_split,
)


class Squares(Dataset):
    def __init__(self, n):
        self.n = n

    def __len__(self):
        return self.n

    def __getitem__(self, i):
        return i * i


class Stream(IterableDataset):
    def __init__(self, *values):
        self.values = values

    def __iter__(self):
        return iter(self.values)

    def __len__(self):
        return len(self.values)


def test_tensor_dataset():
    data = TensorDataset(fl.arange(6).view(3, 2), fl.arange(3))
    assert len(data) == 3
    row, number = data[1]
    assert row.tolist() == [2, 3] and number == 1
    with pytest.raises(AssertionError, match="equal length"):
        TensorDataset(fl.ones(2), fl.ones(3))


def test_stack_dataset():
    both = StackDataset(Squares(3), Squares(3))
    assert both[2] == (4, 4) and both.__getitems__([0, 1]) == [(0, 0), (1, 1)] and len(both) == 3
    named = StackDataset(a=Squares(3), b=TensorDataset(fl.arange(3)))
    assert named[2]["a"] == 4 and named.__getitems__([1])[0]["b"][0] == 1
    for make in (lambda: StackDataset(), lambda: StackDataset(Squares(1), Squares(2))):
        with pytest.raises(ValueError):
            make()


def test_concat_and_chain():
    joined = Squares(2) + Squares(3)
    assert isinstance(joined, ConcatDataset) and [joined[i] for i in range(len(joined))] == [0, 1, 0, 1, 4]
    assert joined[-1] == 4
    with pytest.raises(ValueError):
        joined[-6]
    chained = Stream(1, 2) + Stream(3)
    assert isinstance(chained, ChainDataset) and list(chained) == [1, 2, 3] and len(chained) == 3


def test_subset_and_random_split():
    part = Subset(Squares(10), [3, 5])
    assert [part[i] for i in range(2)] == [9, 25] and part.__getitems__([1]) == [25]
    parts = random_split(Squares(10), [7, 3])
    assert sorted(i for p in parts for i in p.indices) == list(range(10))
    assert [len(p) for p in random_split(Squares(10), [0.5, 0.25, 0.25])] == [6, 2, 2]
    first = random_split(Squares(10), [7, 3], fl.Generator().manual_seed(1))
    again = random_split(Squares(10), [7, 3], fl.Generator().manual_seed(1))
    assert first[0].indices == again[0].indices
    with pytest.raises(ValueError, match="add up"):
        random_split(Squares(10), [1, 2])
    with pytest.warns(UserWarning, match="is 0"):
        random_split(Squares(1), [0.5, 0.5])


def test_samplers():
    assert list(SequentialSampler(Squares(3))) == [0, 1, 2]
    shuffled = RandomSampler(Squares(100))
    first, second = list(shuffled), list(shuffled)
    assert sorted(first) == list(range(100)) and first != second
    assert len(list(RandomSampler(Squares(3), num_samples=8))) == 8
    drawn = list(RandomSampler(Squares(5), replacement=True, num_samples=100))
    assert len(drawn) == 100 and set(drawn) <= set(range(5))
    assert sorted(SubsetRandomSampler([4, 2])) == [2, 4]
    assert set(WeightedRandomSampler([0, 1, 0, 2.0], 50)) == {1, 3}
    assert sorted(WeightedRandomSampler([1, 1, 1], 3, replacement=False)) == [0, 1, 2]
    for bad in (
        lambda: RandomSampler(Squares(2), num_samples=0),
        lambda: WeightedRandomSampler([1], -1),
        lambda: WeightedRandomSampler([[1.0]], 1),
        lambda: BatchSampler(range(3), 0, False),
    ):
        with pytest.raises(ValueError):
            bad()


def test_seeded_samplers_repeat_themselves():
    for make in (
        lambda g: RandomSampler(Squares(50), generator=g),
        lambda g: RandomSampler(Squares(50), replacement=True, generator=g),
        lambda g: SubsetRandomSampler(range(50), generator=g),
        lambda g: WeightedRandomSampler([1.0] * 50, 20, generator=g),
    ):
        assert list(make(fl.Generator().manual_seed(7))) == list(make(fl.Generator().manual_seed(7)))


def test_batch_sampler():
    assert list(BatchSampler(range(5), 2, False)) == [[0, 1], [2, 3], [4]]
    assert list(BatchSampler(range(5), 2, True)) == [[0, 1], [2, 3]]
    assert len(BatchSampler(range(5), 2, False)) == 3 and len(BatchSampler(range(5), 2, True)) == 2


@pytest.mark.parametrize("drop_last", [False, True])
@pytest.mark.parametrize("length", [10, 11, 1])
def test_distributed_sampler_deals_everything_out(drop_last, length):
    samplers = [DistributedSampler(Squares(length), 3, rank, shuffle=True, drop_last=drop_last) for rank in range(3)]
    shares = [list(s) for s in samplers]
    assert len({len(s) for s in shares}) == 1 and len(shares[0]) == len(samplers[0])
    seen = {i for share in shares for i in share}
    assert seen <= set(range(length))
    if not drop_last:
        assert seen == set(range(length))
    if length > 3:
        samplers[0].set_epoch(1)
        assert list(samplers[0]) != shares[0]
    with pytest.raises(ValueError):
        DistributedSampler(Squares(3), 2, 2)
