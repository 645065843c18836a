"""Loggers in compiled functions: messages that are off cost nothing, others are written after the graph."""

import functools
import logging

import pytest

import flambeau as fl
from flambeau._dynamo.testing import CompileCounter

LOG = logging.getLogger("flambeau.tests.compiled")


class Once(logging.Logger):
    once = functools.lru_cache(None)(lambda self, message: self.warning(message))


@pytest.fixture
def level():
    before = LOG.level
    yield LOG.setLevel
    LOG.setLevel(before)


def talk(x):
    LOG.debug("ignored %s", x)
    y = x + 1
    LOG.info("rows %s of %s", x.shape[0], x.shape)
    LOG.warning("done %d", 3)
    return y


def test_messages_are_those_of_plain_python(level, caplog):
    level(logging.INFO)
    fast = fl.compile(talk, backend="eager", fullgraph=True)
    for rows in (2, 3):
        found = []
        for run in (talk, fast):
            caplog.clear()
            run(fl.ones(rows))
            found.append([(r.levelname, r.getMessage(), r.filename) for r in caplog.records])
        assert found[0] == found[1] and len(found[0]) == 2


def test_levels_are_guarded(level, caplog):
    counter = CompileCounter()
    fast = fl.compile(talk, backend=counter, fullgraph=True)
    level(logging.ERROR)
    fast(fl.ones(2))
    fast(fl.ones(2))
    assert not caplog.records and counter.frame_count == 1
    level(logging.WARNING)
    fast(fl.ones(2))
    assert [r.getMessage() for r in caplog.records] == ["done 3"] and counter.frame_count == 2


def test_messages_with_values_break_the_graph(level, caplog):
    def function(x):
        y = x * 2
        LOG.warning("sum %s", y.sum())
        return y

    level(logging.WARNING)
    assert fl.compile(function, backend="eager")(fl.ones(2)).tolist() == [2.0, 2.0]
    assert [r.getMessage() for r in caplog.records] == [f"sum {fl.tensor(4.0)!r}"]


def test_what_is_said_once(caplog):
    own, warn_once = Once("flambeau.tests.once"), functools.lru_cache(None)(lambda log, message: log.warning(message))
    own.addHandler(caplog.handler)

    def function(x):
        warn_once(LOG, "only once")
        own.once("also once")
        return x + 1

    fast = fl.compile(function, backend="eager", fullgraph=True)
    for _ in range(3):
        fast(fl.ones(2))
    assert [r.getMessage() for r in caplog.records] == ["only once", "also once"]


def test_counters_of_captures():
    from flambeau._dynamo.utils import counters

    def function(x):
        y = x * 2
        fl._dynamo.graph_break()
        return y + 1

    fl._dynamo.reset()
    fast = fl.compile(function, backend="eager")
    fast(fl.ones(2))
    assert counters["stats"] == {"unique_graphs": 2, "calls_captured": 2}
    assert counters["frames"] == {"total": 2, "ok": 2}
    assert list(counters["graph_break"].values()) == [1] and not counters["recompiles"]
    fast(fl.ones(2, dtype=fl.float64))
    assert sum(counters["recompiles"].values()) == 2 and counters["stats"]["unique_graphs"] == 4
    fl._dynamo.reset()
    assert not counters
