"""Chained datasets."""

import pytest

from flambeau.utils.data import DataLoader, IterDataPipe, functional_datapipe
from flambeau.utils.data.datapipes.iter import IterableWrapper
from flambeau.utils.data.datapipes.map import SequenceWrapper


def test_steps_of_streams():
    pipe = IterableWrapper(range(10)).filter(lambda x: x % 2).map(lambda x: x * 10).batch(2)
    assert [list(b) for b in pipe] == [[10, 30], [50, 70], [90]]
    assert sorted(IterableWrapper(range(50)).shuffle(buffer_size=7)) == list(range(50))
    assert list(IterableWrapper([1]).concat(IterableWrapper([2]))) == [1, 2]
    assert list(IterableWrapper([1, 2]).zip(IterableWrapper([3]))) == [(1, 3)]
    assert next(iter(IterableWrapper([1, 2]).batch(2).collate())).tolist() == [1, 2]
    assert list(IterableWrapper([(1, 2)]).map(lambda x: -x, input_col=1)) == [(1, -2)]
    assert len(IterableWrapper(range(5)).batch(2)) == 3
    with pytest.raises(AttributeError):
        IterableWrapper([]).no_such_step()


def test_steps_by_index():
    pipe = SequenceWrapper([1, 2, 3]).map(lambda x: x + 1)
    assert pipe[2] == 4 and len(pipe) == 3
    assert SequenceWrapper([1]).concat(SequenceWrapper([2]))[1] == 2
    assert SequenceWrapper([1]).zip(SequenceWrapper([2]))[0] == (1, 2)


def test_own_steps_and_workers():
    @functional_datapipe("twice_for_test")
    class Twice(IterDataPipe):
        def __init__(self, source):
            self.source = source

        def __iter__(self):
            for x in self.source:
                yield x
                yield x

    pipe = IterableWrapper(range(6)).sharding_filter().twice_for_test()
    loaded = [x for batch in DataLoader(pipe, batch_size=4, num_workers=2) for x in batch.tolist()]
    assert sorted(loaded) == sorted(list(range(6)) * 2)
