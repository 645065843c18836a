"""Channels-last layouts inside compiled graphs: nobody outside can tell, and nothing is copied twice."""

import pytest

import flambeau as fl
import flambeau.nn.functional as F
from flambeau import nn
from flambeau._functorch.aot.trace import trace_joint
from flambeau._inductor.compile_fx import compile_tensor_function
from flambeau._inductor.layout import choose_layouts


def conv(x, w, **options):
    return F.conv2d(x, w, padding=w.shape[-1] // 2, **options)


def residual(x, w, v):
    y = F.relu(conv(x, w))
    return F.relu(conv(y, v) + y).mean((2, 3))


def written(x, w):
    y = conv(x, w)
    y.view(-1).mul_(2)
    return y + 1


CASES = {
    "a residual block": (residual, [(2, 3, 6, 6), (4, 3, 3, 3), (4, 4, 3, 3)]),
    "a view of a result": (lambda x, w: F.relu(conv(x, w)).view(2, -1) * 2, [(2, 3, 6, 6), (4, 3, 3, 3)]),
    "a result that is returned": (lambda x, w: conv(x, w), [(2, 3, 6, 6), (4, 3, 3, 3)]),
    "a result that is used and returned": (lambda x, w, v: conv(F.relu(conv(x, w)), v), [(2, 3, 5, 6), (4, 3, 3, 3), (2, 4, 1, 1)]),
    "a view that is written": (written, [(2, 3, 6, 6), (4, 3, 3, 3)]),
    "a result written in place": (lambda x, w: conv(x, w).add_(1).relu_().sum((2, 3)), [(2, 3, 6, 6), (4, 3, 3, 3)]),
    "pooling": (lambda x, w: F.max_pool2d(conv(x, w), 2).flatten(1), [(2, 3, 6, 6), (4, 3, 3, 3)]),
    "average pooling": (lambda x, w: F.adaptive_avg_pool2d(F.avg_pool2d(conv(x, w), 2), 1).flatten(1), [(2, 3, 8, 8), (4, 3, 3, 3)]),
    "joining": (lambda x, w: fl.cat([conv(x, w), x], 1).exp().flatten(1), [(2, 3, 6, 6), (4, 3, 3, 3)]),
    "resizing": (lambda x, w: F.interpolate(conv(x, w), scale_factor=2, mode="bilinear"), [(2, 3, 4, 4), (4, 3, 3, 3)]),
    "other layouts meeting": (lambda x, w, y: (conv(x, w) * y).permute(0, 2, 3, 1).sum(-1), [(2, 3, 6, 6), (4, 3, 3, 3), (2, 4, 6, 6)]),
    "group norm": (lambda x, w: F.group_norm(conv(x, w), 2).amax((2, 3)), [(2, 3, 6, 6), (4, 3, 3, 3)]),
    "permuted and flattened": (lambda x, w: conv(x, w).permute(0, 2, 3, 1).reshape(2, -1, 4) * 3, [(2, 3, 6, 6), (4, 3, 3, 3)]),
    "a transposed convolution": (lambda x, w, v: F.conv_transpose2d(F.relu(conv(x, w)), v, stride=2).tanh(), [(2, 3, 4, 4), (4, 3, 3, 3), (4, 2, 2, 2)]),
    "transposed convolutions": (lambda x, w, v: F.conv_transpose2d(F.relu(F.conv_transpose2d(x, w, stride=2)), v, padding=1).flatten(1), [(2, 3, 4, 4), (3, 4, 2, 2), (4, 2, 3, 3)]),
    "transposed volumes": (lambda x, w: F.relu(F.conv_transpose3d(x, w)).mean((2, 3, 4)), [(2, 3, 4, 5, 5), (3, 4, 2, 2, 2)]),
    "depthwise": (lambda x, w, v: conv(conv(x, w).sigmoid(), v, groups=4).sum(1), [(2, 3, 5, 5), (4, 3, 3, 3), (4, 1, 3, 3)]),
    "volumes": (lambda x, w: F.relu(F.conv3d(x, w)).mean((2, 3, 4)), [(2, 3, 4, 5, 5), (4, 3, 2, 2, 2)]),
}  # fmt: skip


def strides(t):
    """Those that matter; on the CPU all of them agree."""
    return t.stride() if t.device.type == "cpu" else [s for s, n in zip(t.stride(), t.shape) if n > 1]


@pytest.mark.parametrize("name", CASES)
def test_values_gradients_and_strides_are_those_of_eager_mode(name):
    fl.manual_seed(0)
    function, sizes = CASES[name]
    inputs = [fl.randn(size, requires_grad=True) for size in sizes]
    compiled = compile_tensor_function(lambda *a: [function(*a)], len(inputs))
    with fl.no_grad():
        got, expected = compiled(*inputs)[0], function(*inputs)
        fl.testing.assert_close(got, expected, rtol=1e-4, atol=1e-5)
        assert strides(got) == strides(expected)
    got, expected = compiled(*inputs)[0], function(*inputs)
    assert strides(got) == strides(expected)
    seed = fl.randn_like(expected)
    gradients = fl.autograd.grad(got, inputs, seed), fl.autograd.grad(expected, inputs, seed)
    for a, b in zip(*gradients):
        fl.testing.assert_close(a, b, rtol=1e-4 if a.device.type == "cpu" else 1e-3, atol=1e-5)
        assert strides(a) == strides(b)


def block():
    fl.manual_seed(1)
    return nn.Sequential(
        nn.Conv2d(3, 8, 3, padding=1, bias=False), nn.BatchNorm2d(8), nn.ReLU(),
        nn.Conv2d(8, 6, 3, stride=2, padding=1), nn.BatchNorm2d(6), nn.ReLU(inplace=True),
        nn.AdaptiveAvgPool2d(1), nn.Flatten(),
    )  # fmt: skip


@pytest.mark.parametrize("training", [True, False])
def test_normalisation_keeps_its_statistics(training):
    plain, compiled = block().train(training), block().train(training)
    fast = fl.compile(compiled)
    for step in range(2):
        fl.manual_seed(step)
        x = fl.randn(4, 3, 8, 8)
        got, expected = fast(x), plain(x)
        fl.testing.assert_close(got, expected, rtol=1e-4, atol=1e-5)
        got.square().sum().backward()
        expected.square().sum().backward()
    for (name, a), b in zip(compiled.named_parameters(), plain.parameters()):
        fl.testing.assert_close(a.grad, b.grad, rtol=1e-3, atol=1e-4, msg=name)
    for a, b in zip(compiled.buffers(), plain.buffers()):
        fl.testing.assert_close(a, b)


def rearrangements(calls):
    return [c for c in calls if c.op._opname == "clone"]


def test_only_what_enters_is_rearranged():
    shapes = [(2, 3, 6, 6), (4, 3, 3, 3), (4, 4, 3, 3)]
    trace = trace_joint(lambda *a: [residual(*a)], [fl.randn(s) for s in shapes])
    choose_layouts(trace)
    assert [c.args[0] for c in rearrangements(trace.calls)] == [trace.inputs[0]]
    convolutions = [c for c in trace.calls if c.op._opname == "conv2d"]
    assert [c.results[0].stride[1] for c in convolutions] == [1, 1]


def test_transposed_convolutions_read_channels_last():
    shapes = [(2, 8, 4, 4), (8, 6, 2, 2), (6, 4, 2, 2)]

    def decode(x, w, v):
        return [F.conv_transpose2d(F.relu(F.conv_transpose2d(x, w, stride=2)), v, stride=2).sum((2, 3))]

    trace = trace_joint(decode, [fl.randn(s) for s in shapes])
    choose_layouts(trace)
    assert [c.args[0] for c in rearrangements(trace.calls)] == [trace.inputs[0]]
    convolutions = [c for c in trace.calls if c.op._opname == "conv_transpose2d"]
    assert [c.results[0].stride[1] for c in convolutions] == [1, 1]


def test_backward_rearranges_what_it_was_given_again():
    """Nothing that only another layout needs is kept between the passes."""
    shapes = [(2, 3, 6, 6), (4, 3, 3, 3), (4, 4, 3, 3)]
    trace = trace_joint(lambda *a: [residual(*a)], [fl.randn(s, requires_grad=True) for s in shapes])
    choose_layouts(trace)
    made = {v.storage for c in rearrangements(trace.calls[: trace.forward_calls]) for v in c.results}
    assert not any(v.storage in made for c in trace.calls[trace.forward_calls :] for v in c.reads)
    assert all(c.backward for c in trace.calls[trace.forward_calls :])
    assert not any(c.backward for c in trace.calls[: trace.forward_calls])


def test_without_convolutions_nothing_changes():
    trace = trace_joint(lambda x: [F.max_pool2d(x.exp(), 2)], [fl.randn(2, 3, 6, 6)])
    calls = list(trace.calls)
    choose_layouts(trace)
    assert trace.calls == calls
