"""Compiled functions give what eager mode gives: values, gradients, and changes of their inputs."""

import pytest

import flambeau as fl
import flambeau.nn.functional as F
from flambeau._inductor import build
from flambeau._inductor.compile_fx import compile_tensor_function
from flambeau._inductor.printers import CppPrinter


def tensor(*size, grad=False):
    return fl.randn(size, requires_grad=grad)


def chain(x, y):
    z = fl.relu((x + 1) * 2) - fl.sigmoid(y) * fl.tanh(x)
    return (z * z + 0.5).sqrt() * fl.exp(-y.abs())


def mlp(x, w1, b1, w2, b2):
    return F.linear(F.relu(F.linear(x, w1, b1)), w2, b2).pow(2).mean()


CASES = {
    "a chain of pointwise ops": (chain, [(9, 70), (9, 70)]),
    "broadcasting": (lambda x, y: (x + y) * x.sum(), [(10, 1, 7), (5, 7)]),
    "softmax": (lambda x: F.softmax(x, -1), [(10, 70)]),
    "softmax along the first dimension": (lambda x: F.softmax(x, 0), [(10, 7)]),
    "log softmax": (lambda x: F.log_softmax(x, 1), [(4, 6, 5)]),
    "layer norm and gelu": (lambda x, w, b: F.gelu(F.layer_norm(x, (64,), w, b)) + x, [(10, 64), (64,), (64,)]),
    "a fold along rows": (lambda x: (x * 2).sum(0), [(33, 65)]),
    "a fold along columns": (lambda x: (x * 2).amax(-1), [(33, 65)]),
    "folds both ways": (lambda x: x.sum(0) + x.exp().sum(1), [(33, 33)]),
    "a fold in the middle": (lambda x: (x * 2).sum((0, 2)), [(3, 5, 7)]),
    "a long sum": (lambda x: (x * x).mean(), [(300, 501)]),
    "transposed input": (lambda x: (x.t() + 1).contiguous() * 2, [(33, 65)]),
    "slices": (lambda x: x[:, 1:] - x[:, :-1], [(5, 9)]),
    "a network": (mlp, [(32, 100), (50, 100), (50,), (10, 50), (10,)]),
    "attention by hand": (
        lambda q, k, v: F.softmax((q @ k.transpose(-1, -2)) / 8.0, -1) @ v,
        [(2, 3, 8, 16), (2, 3, 8, 16), (2, 3, 8, 16)],
    ),
    "zero-dim": (lambda x, y: x * y + 1, [(), ()]),
    "views of views": (lambda x: (x.view(4, 2, 6).transpose(0, 1) * 2).reshape(-1)[3:], [(8, 6)]),
}


@pytest.mark.parametrize("name", CASES)
def test_values_and_gradients_are_those_of_eager_mode(name):
    function, sizes = CASES[name]
    inputs = [tensor(*size, grad=True) for size in sizes]
    compiled = compile_tensor_function(lambda *a: [function(*a)], len(inputs))
    with fl.no_grad():
        fl.testing.assert_close(compiled(*inputs)[0], function(*inputs))
    got, expected = compiled(*inputs)[0], function(*inputs)
    seed = fl.randn_like(expected)
    for a, b in zip(fl.autograd.grad(got, inputs, seed), fl.autograd.grad(expected, inputs, seed)):
        fl.testing.assert_close(a, b, rtol=1e-4, atol=1e-5)


@pytest.mark.host
def test_what_a_later_loop_needs_is_computed_in_its_kernel():
    launches = []

    class Watching(CppPrinter):
        def launches(self, work):
            launches.append(len(work))
            return super().launches(work)

    x, y = tensor(100, 100), tensor(100, 100)
    compiled = compile_tensor_function(lambda *a: [chain(*a)], 2, printer=Watching())
    fl.testing.assert_close(compiled(x, y)[0], chain(x, y))
    assert launches == [1]  # though sigmoid(y) shares nothing with what is computed of x before


def test_one_set_of_kernels_serves_every_size():
    compiled = compile_tensor_function(lambda x, w, b: [F.layer_norm(x, (64,), w, b).relu()], 3)
    weight, bias = tensor(64), tensor(64)
    compiled(tensor(16, 64), weight, bias)
    built = set(build._loaded)
    for rows in (32, 33, 2, 128):
        x = tensor(rows, 64)
        fl.testing.assert_close(compiled(x, weight, bias)[0], F.layer_norm(x, (64,), weight, bias).relu())
    assert set(build._loaded) == built


@pytest.mark.parametrize("rows", [0, 1])
def test_empty_and_single_rows(rows):
    compiled = compile_tensor_function(lambda x: [F.softmax(x * 2, -1), x.sum()], 1)
    x = tensor(rows, 5)
    for got, expected in zip(compiled(x), [F.softmax(x * 2, -1), x.sum()]):
        fl.testing.assert_close(got, expected)


@pytest.mark.parametrize("dtype", [fl.float64, fl.bfloat16, fl.float16, fl.int64, fl.int32, fl.uint8, fl.bool])
def test_dtypes(dtype):
    x = (fl.randn(6, 7) * 3).abs().to(dtype)
    y = (fl.randn(6, 7) * 3).abs().to(dtype)

    def function(x, y):
        return [x * y, x > y, fl.where(x > y, x, y), x.sum(), x.to(fl.float32) / 3]

    compiled = compile_tensor_function(function, 2)
    for got, expected in zip(compiled(x, y), function(x, y)):
        assert got.dtype == expected.dtype
        fl.testing.assert_close(got, expected)


def test_inputs_written_in_place_are_written():
    def function(x, y):
        x.add_(y)
        x.mul_(2)
        return [x + 1]

    x, y = tensor(5, 6), tensor(5, 6)
    other = x.clone()
    compiled = compile_tensor_function(function, 2)
    version = x._version
    got = compiled(x, y)[0]
    fl.testing.assert_close(got, function(other, y)[0])
    fl.testing.assert_close(x, other)
    assert x._version > version


def test_part_of_a_tensor_written_in_place():
    def function(x):
        y = x * 2
        y[:, 1] += 5
        y[0].zero_()
        return [y, y.sum()]

    x = tensor(4, 5)
    for got, expected in zip(compile_tensor_function(function, 1)(x), function(x)):
        fl.testing.assert_close(got, expected)


def test_batch_norm_updates_its_statistics():
    def function(x, mean, var, w, b):
        return [F.batch_norm(x, mean, var, w, b, training=True).relu()]

    x, w, b = tensor(8, 3, 4, 4), tensor(3), tensor(3)
    mean, var = fl.zeros(3), fl.ones(3)
    other_mean, other_var = mean.clone(), var.clone()
    got = compile_tensor_function(function, 5)(x, mean, var, w, b)[0]
    fl.testing.assert_close(got, function(x, other_mean, other_var, w, b)[0])
    fl.testing.assert_close(mean, other_mean)
    fl.testing.assert_close(var, other_var)


def test_second_derivatives_run_through_compiled_code():
    x = tensor(7, grad=True)
    compiled = compile_tensor_function(lambda x: [(x.sin() * x).sum()], 1)

    def second(function):
        (first,) = fl.autograd.grad(function(x), x, create_graph=True)
        return fl.autograd.grad(first.pow(2).sum(), x)[0]

    fl.testing.assert_close(second(lambda x: compiled(x)[0]), second(lambda x: (x.sin() * x).sum()))


def test_a_saved_input_that_changed_is_noticed():
    w = tensor(4, grad=True)
    x = tensor(4)
    y = compile_tensor_function(lambda x, w: [(x * w).sum()], 2)(x, w)[0]
    x.add_(1)
    with pytest.raises(RuntimeError, match="modified"):
        y.backward()


def test_random_numbers_are_those_of_eager_mode():
    def function(x):
        return [F.dropout(x * 2, 0.5) + 1]

    x = tensor(50)
    fl.manual_seed(3)
    got = compile_tensor_function(function, 1)(x)[0]
    fl.manual_seed(3)
    fl.testing.assert_close(got, function(x)[0])


def test_tensors_the_function_refers_to_are_constants():
    table = tensor(5)
    compiled = compile_tensor_function(lambda x: [x + table], 1)
    x = tensor(3, 5)
    fl.testing.assert_close(compiled(x)[0], x + table)
