"""Regular expressions and text of derived classes in captured code."""

from __future__ import annotations

import re

import pytest

import flambeau as fl

NUMBER = re.compile(r"(\d+)")
LETTERS = frozenset("0123456789.")


class Version(str):
    """Text with another order, such as `torch.__version__`."""

    def __ge__(self, other):
        return tuple(map(int, self.split("."))) >= tuple(map(int, other.split(".")))


VERSION = Version("2.10")

CALLS = {
    "fullmatch": lambda text: len(NUMBER.fullmatch("12").group()),
    "match": lambda text: int(NUMBER.match(text).group(1)),
    "search": lambda text: NUMBER.search("a") is None,
    "sub": lambda text: len(NUMBER.sub("zz", text)),
    "split": lambda text: len(NUMBER.split("a1b2c")),
    "finditer": lambda text: sum(int(m.group()) for m in NUMBER.finditer("a1b2")),
    "function": lambda text: len(re.findall("a", "banana")),
    "letters": lambda text: LETTERS.issuperset(text),
    "derived": lambda text: bool(NUMBER.match(VERSION)) + LETTERS.issuperset(VERSION),
}


@pytest.mark.parametrize("name", CALLS)
def test_patterns_are_asked_during_capture(name):
    call, text = CALLS[name], ["3"]
    compiled = fl.compile(lambda x: x + call(text[0]), fullgraph=True)
    x = fl.ones(2)
    assert fl.equal(compiled(x), x + call("3"))
    text[0] = "17"
    assert fl.equal(compiled(x), x + call("17"))
