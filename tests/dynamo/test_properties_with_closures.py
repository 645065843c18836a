"""Properties whose functions refer to tensors around them: each is an input, and guarded."""

from __future__ import annotations

import flambeau as fl


def make():
    outer = fl.rand(3, 3)

    class Plain:
        @property
        def doubled(self):
            return outer * 2

        @doubled.setter
        def doubled(self, value):
            self.kept = value + outer

    class Model(fl.nn.Module):
        @property
        def weight(self):
            return fl.ones(3, 3) + outer

        def forward(self, x):
            return x @ self.weight

    return Model(), Plain(), outer


def test_getters_read_tensors_of_their_closure():
    model, plain, outer = make()
    x = fl.rand(3, 3)
    program = lambda x: model(x) + plain.doubled  # noqa: E731
    compiled = fl.compile(program, fullgraph=True)
    fl.testing.assert_close(compiled(x), program(x))
    outer.add_(1)
    fl.testing.assert_close(compiled(x), program(x))
    type(plain).doubled.fget.__closure__[0].cell_contents = fl.ones(3, 3)
    fl.testing.assert_close(compiled(x), program(x))
    type(plain).doubled = property(lambda self: fl.zeros(3, 3))
    fl.testing.assert_close(compiled(x), program(x))


def test_setters_read_tensors_of_their_closure():
    _, plain, outer = make()

    def program(x):
        plain.doubled = x
        return plain.kept * 2

    compiled, x = fl.compile(program), fl.rand(3, 3)
    fl.testing.assert_close(compiled(x), (x + outer) * 2)
    fl.testing.assert_close(plain.kept, x + outer)
