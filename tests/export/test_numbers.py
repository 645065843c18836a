"""Integers among the arguments that vary, sizes of containers of the user's, and names of constants."""

import dataclasses
import io

import pytest

import flambeau as fl
from flambeau import nn
from flambeau.export import AdditionalInputs, Dim, ShapesCollection, export, load, save
from flambeau.export.dynamic_shapes import _IntWrapper
from flambeau.export.graph_signature import SymIntArgument


class Head(nn.Module):
    def forward(self, x, n):
        return x[:n] * n + fl.ones(n, 3)


def through_file(program):
    file = io.BytesIO()
    save(program, file)
    file.seek(0)
    return load(file)


@pytest.mark.parametrize("how", ["exported", "loaded", "decomposed", "exported again"])
def test_an_integer_varies(how):
    program = export(Head(), (fl.ones(8, 3), 4), dynamic_shapes=(None, Dim.DYNAMIC))
    assert isinstance(program.graph_signature.input_specs[1].arg, SymIntArgument)
    if how == "loaded":
        program = through_file(program)
    elif how == "decomposed":
        program = program.run_decompositions()
    elif how == "exported again":
        program = export(program.module(), (fl.ones(8, 3), 5), dynamic_shapes=(None, Dim.AUTO))
    for n in (2, 5, 8):
        assert fl.equal(program.module()(fl.ones(8, 3), n), Head()(fl.ones(8, 3), n))
    with pytest.raises(AssertionError, match="int"):
        program.module()(fl.ones(8, 3), 2.0)


def test_integers_keep_their_bounds_and_their_value_unless_they_vary():
    bounded = export(Head(), (fl.ones(8, 3), 4), dynamic_shapes=(None, Dim.DYNAMIC(min=3, max=6))).module()
    bounded(fl.ones(8, 3), 6)
    with pytest.raises(AssertionError, match="n >= 3"):
        bounded(fl.ones(8, 3), 2)
    fixed = export(Head(), (fl.ones(8, 3), 4)).module()
    with pytest.raises(AssertionError, match="n == 4"):
        fixed(fl.ones(8, 3), 5)


def test_more_examples_and_collections_say_which_integers_vary():
    examples = AdditionalInputs()
    examples.add((fl.ones(8, 3), 5))
    program = export(Head(), (fl.ones(8, 3), 4), dynamic_shapes=examples)
    assert program.module()(fl.ones(8, 3), 7).shape == (7, 3)
    shapes, args = ShapesCollection(), (fl.ones(8, 3), _IntWrapper(4))
    shapes[args[0]] = {0: Dim.DYNAMIC}
    shapes[args[1]] = Dim.DYNAMIC
    program = export(Head(), args, dynamic_shapes=shapes)
    assert program.module()(fl.ones(9, 3), 7).shape == (7, 3)


@dataclasses.dataclass
class Batch:
    tokens: fl.Tensor
    lengths: list


fl.export.register_dataclass(Batch, serialized_type_name="flambeau.tests.Batch")


@pytest.mark.parametrize("spec", [lambda d: Batch({0: d}, [{0: d}, None]), lambda d: [{0: d}, [{0: d}, None]]])
def test_sizes_in_containers_of_the_user(spec):
    class Model(nn.Module):
        def forward(self, batch):
            return batch.tokens.sum(1) + batch.lengths[0] + batch.lengths[1]

    example = Batch(fl.ones(4, 2), [fl.ones(4), fl.ones(1)])
    program = export(Model(), (example,), dynamic_shapes=(spec(Dim("batch")),))
    other = Batch(fl.ones(7, 2), [fl.ones(7), fl.ones(1)])
    assert fl.equal(program.module()(other), Model()(other))


def test_constants_are_where_the_modules_have_them():
    class Inner(nn.Module):
        def __init__(self):
            super().__init__()
            self.offset = fl.ones(3)

        def forward(self, x):
            return x + self.offset + fl.tensor([1.0, 2.0, 3.0])

    program = export(nn.Sequential(Inner()), (fl.zeros(3),))
    assert set(program.constants) == {"0.offset", "lifted_tensor_0"}
    run = program.module()
    assert fl.equal(run.get_submodule("0").offset, fl.ones(3)) and not list(run.buffers())


class BranchesOnData(fl.nn.Module):
    def forward(self, x, n):
        return fl.cond(n.item() > 3, lambda x: x + 1, lambda x: x - 1, (x,))


def test_conditions_on_numbers_from_data_are_branches():
    program = fl.export.export(BranchesOnData(), (fl.ones(2), fl.tensor(5)))
    for form in (program, program.run_decompositions()):
        assert form.module()(fl.ones(2), fl.tensor(1)).tolist() == [0.0, 0.0]
        assert form.module()(fl.ones(2), fl.tensor(4)).tolist() == [2.0, 2.0]


@dataclasses.dataclass
class Settings:
    flag: bool
    number: int
    x: fl.Tensor


fl.export.register_dataclass(Settings)


class Configured(nn.Module):
    def forward(self, settings):
        return settings.x + settings.number


def test_examples_say_what_varies_inside_containers():
    examples, one = AdditionalInputs(), (Settings(True, 3, fl.ones(3)),)
    examples.add((Settings(True, 4, fl.ones(4)),))
    assert examples.dynamic_shapes(Configured(), one) == {"settings": [None, Dim.DYNAMIC, (Dim.DYNAMIC,)]}
    program = export(Configured(), one, dynamic_shapes=examples)
    assert program.module()(Settings(True, 9, fl.ones(2))).tolist() == [10.0, 10.0]
    examples.add((Settings(False, 3, fl.ones(3)),))
    with pytest.raises(ValueError, match="they cannot be marked as dynamic"):
        examples.dynamic_shapes(Configured(), one)


class Halves(nn.Module):
    def forward(self, x):
        n = x.shape[0]
        return x[: n // 2], x[n >> 1 :], x[(n + 1) // 2 :], x[: n << 1]


@pytest.mark.parametrize("dim", [Dim("n"), Dim("n", min=2), Dim.DYNAMIC])
def test_parts_of_a_size_fit_into_it(dim):
    program = export(Halves(), (fl.ones(8),), dynamic_shapes=({0: dim},))
    assert [len(part) for part in program.module()(fl.ones(9))] == [4, 5, 4, 9]
