"""Programs that are changed between calls, compiled and as they are.

A case is a function without arguments that returns a program of one tensor and the changes that are made to what it observes, one
after the other. The compiled program must do what the program itself does, before and after each change.
"""

import flambeau as fl


def same(a, b):
    if isinstance(a, fl.Tensor):
        return isinstance(b, fl.Tensor) and a.dtype == b.dtype and a.shape == b.shape and fl.equal(a, b)
    return a == b


def check(make):
    program, changes = make()
    compiled = fl.compile(program, backend="eager")
    x = fl.arange(3.0)
    for change in (lambda: None, *changes):
        change()
        for _ in range(2):
            expected, got = program(x), compiled(x)
            assert same(expected, got), (expected, got)
