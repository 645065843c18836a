# ruff: noqa
"""Derivatives inside programs: backward, grad, own autograd functions, transforms, checkpoints, hooks."""

import flambeau.nn.functional as F
from flambeau import nn
from flambeau.utils.checkpoint import checkpoint

import flambeau as fl

from . import T, program, t


def leaf(*shape):
    return lambda: T(*shape).requires_grad_()


@program(leaf(3))
def backward(x):
    loss = (x * x).sum()
    loss.backward()
    return x.grad * 2


@program(leaf(3))
def backward_returns_loss(x):
    loss = (x.sin() * 3).sum()
    loss.backward()
    return loss


@program(leaf(3))
def backward_twice(x):
    (x * 2).sum().backward()
    (x * x).sum().backward()
    return x.grad.clone()


@program(leaf(3))
def backward_onto_a_gradient(x):
    x.grad = fl.ones(3)
    kept = x.grad
    (x * 2).sum().backward()
    return kept, x.grad is kept


@program(leaf(3))
def backward_with_gradient(x):
    (x * 2).backward(fl.tensor([1.0, 2.0, 3.0]))


@program(leaf(3), leaf(3))
def backward_to_some(x, y):
    (x * y).sum().backward(inputs=[x])
    return y.grad is None


@program(leaf(3))
def grad_set_to_none(x):
    x.sum().backward()
    x.grad = None
    return x.grad is None


@program(leaf(3))
def grad_deleted_and_zeroed(x):
    x.sum().backward()
    x.grad.zero_()
    (x * 3).sum().backward()


@program(leaf(3))
def autograd_grad(x):
    y = x.exp()
    (g,) = fl.autograd.grad(y.sum(), x)
    return g + 1


@program(leaf(3))
def autograd_grad_create_graph(x):
    y = (x * x * x).sum()
    (g,) = fl.autograd.grad(y, x, create_graph=True)
    (h,) = fl.autograd.grad(g.sum(), x)
    return g.detach(), h


@program(leaf(3), leaf(3))
def autograd_grad_unused(x, y):
    return fl.autograd.grad((x * 2).sum(), [x, y], allow_unused=True)


@program(leaf(3))
def autograd_grad_of_intermediate(x):
    h = x.tanh()
    y = (h * h).sum()
    return fl.autograd.grad(y, [h, x])


@program(leaf(3))
def gradient_penalty(x):
    y = (x.sin() * x).sum()
    (g,) = fl.autograd.grad(y, x, create_graph=True)
    return y.detach() + 0.1 * g.square().sum().detach()


@program(t(3))
def new_leaf(x):
    w = fl.ones(3, requires_grad=True)
    (x * w).sum().backward()
    return w.grad


@program(t(3))
def requires_grad_inside(x):
    y = x.detach().clone().requires_grad_()
    (y * y).sum().backward()
    return y.grad


@program(leaf(3))
def detached_branch(x):
    y = x * 2
    z = y.detach() * x
    z.sum().backward()
    return y.detach()


@program(leaf(2, 2))
def backward_in_a_loop(x):
    total = 0.0
    for i in range(3):
        loss = (x * (i + 1)).square().mean()
        loss.backward()
        total = total + loss.detach()
    return total


@program(leaf(3))
def no_grad_update(x):
    (x * x).sum().backward()
    with fl.no_grad():
        x -= 0.1 * x.grad
        x.grad = None


@program(leaf(3))
def backward_of_no_history(x):
    try:
        x.detach().sum().backward()
    except RuntimeError:
        return "no history"


class Cube(fl.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        return x**3

    @staticmethod
    def backward(ctx, grad):
        (x,) = ctx.saved_tensors
        return grad * 3 * x**2


class Scaled(fl.autograd.Function):
    @staticmethod
    def forward(ctx, x, scale, shift=0.0):
        ctx.scale = scale
        return x * scale + shift

    @staticmethod
    def backward(ctx, grad):
        return grad * ctx.scale, None, None


class WithSetup(fl.autograd.Function):
    @staticmethod
    def forward(x, y):
        return x * y

    @staticmethod
    def setup_context(ctx, inputs, output):
        ctx.save_for_backward(*inputs)

    @staticmethod
    def backward(ctx, grad):
        x, y = ctx.saved_tensors
        return grad * y, grad * x


class TwoResults(fl.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        values, indices = x.sort()
        ctx.mark_non_differentiable(indices)
        ctx.save_for_backward(indices)
        return values, indices

    @staticmethod
    def backward(ctx, grad, _):
        (indices,) = ctx.saved_tensors
        return fl.zeros_like(grad).scatter(0, indices, grad)


class StraightThrough(fl.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        return (x > 0).to(x.dtype)

    @staticmethod
    def backward(ctx, grad):
        return grad


@program(leaf(3))
def own_function(x):
    return Cube.apply(x) + 1


@program(t(3))
def own_function_without_gradient(x):
    return Cube.apply(x) * 2


@program(leaf(3))
def own_function_backward(x):
    Cube.apply(x).sum().backward()
    return x.grad


@program(leaf(3))
def own_function_with_numbers(x):
    return Scaled.apply(x, 2.5), Scaled.apply(x, 2.0, 1.0)


@program(leaf(3), leaf(3))
def own_function_setup_context(x, y):
    out = WithSetup.apply(x, y)
    out.sum().backward()
    return out.detach()


@program(leaf(4))
def own_function_two_results(x):
    values, indices = TwoResults.apply(x)
    (values * fl.arange(4)).sum().backward()
    return indices, values.detach()


@program(leaf(3))
def own_function_straight_through(x):
    y = StraightThrough.apply(x) * x
    y.sum().backward()
    return y.detach()


@program(leaf(3))
def own_function_twice(x):
    return Cube.apply(Cube.apply(x).sin()).sum()


@program(leaf(3))
def own_function_in_no_grad(x):
    with fl.no_grad():
        return Cube.apply(x)


@program(t(3))
def func_grad(x):
    return fl.func.grad(lambda v: (v.sin() * v).sum())(x)


@program(t(3))
def func_grad_and_value(x):
    g, value = fl.func.grad_and_value(lambda v: (v**3).sum())(x)
    return g, value


@program(t(3))
def func_vjp(x):
    out, pull = fl.func.vjp(fl.sin, x)
    return out, pull(fl.ones(3))[0]


@program(t(3))
def func_jacrev(x):
    return fl.func.jacrev(lambda v: v * v.sum())(x)


@program(t(4, 3))
def func_vmap(x):
    return fl.func.vmap(lambda row: row.sum() * row)(x)


@program(t(4, 3))
def func_vmap_of_grad(x):
    return fl.func.vmap(fl.func.grad(lambda row: (row * row).sum()))(x)


def linear():
    fl.manual_seed(0)
    return nn.Linear(3, 2)


@program(linear, t(4, 3))
def functional_call(model, x):
    weights = {name: p.detach() * 2 for name, p in model.named_parameters()}
    return fl.func.functional_call(model, weights, (x,))


@program(linear, t(4, 3))
def model_backward(model, x):
    loss = model(x).square().mean()
    loss.backward()
    return loss.detach(), model.weight.grad


@program(linear, t(4, 3))
def model_zero_grad(model, x):
    model(x).sum().backward()
    model.zero_grad()
    return [p.grad is None for p in model.parameters()]


@program(linear, leaf(4, 3))
def checkpointed(model, x):
    return checkpoint(lambda v: model(v).tanh(), x, use_reentrant=False)


@program(linear, leaf(4, 3))
def checkpointed_backward(model, x):
    y = checkpoint(lambda v: model(v).tanh(), x, use_reentrant=False)
    y.sum().backward()
    return x.grad


def hooked():
    model = linear()
    model.register_forward_pre_hook(lambda module, args: (args[0] * 2,))
    model.register_forward_hook(lambda module, args, out: out + 1)
    return model


def counting_hooks():
    model = linear()
    model.calls = 0

    def hook(module, args, out):
        module.calls += 1

    model.register_forward_hook(hook)
    return model


def backward_hooked():
    model = linear()
    model.register_full_backward_hook(lambda module, given, out: (given[0] * 3 if given[0] is not None else None,))
    return model


@program(hooked, t(4, 3))
def forward_hooks(model, x):
    return model(x)


@program(counting_hooks, t(4, 3))
def hook_with_effect(model, x):
    return model(x) + model(x)


@program(backward_hooked, leaf(4, 3), breaks=True)
def backward_hooks(model, x):
    model(x).sum().backward()
    return x.grad


@program(leaf(3))
def tensor_hook(x):
    y = x * 2
    y.register_hook(lambda g: g * 10)
    y.sum().backward()
    return x.grad


@program(leaf(3))
def retain_grad(x):
    y = x * 2
    y.retain_grad()
    y.square().sum().backward()
    return y.grad


@program(t(4, 3))
def autocast(x):
    with fl.autocast("cpu", dtype=fl.bfloat16):
        y = x @ x.t()
        z = y.float() + 1
    return y, z


@program(t(4, 3))
def autocast_disabled_inside(x):
    with fl.autocast("cpu", dtype=fl.bfloat16):
        with fl.autocast("cpu", enabled=False):
            a = x @ x.t()
        b = x @ x.t()
    return a, b


@fl.no_grad()
def frozen(x):
    return x * 2


@fl.inference_mode()
def inferred(x):
    return x * 2


@program(leaf(3))
def decorated_with_no_grad(x):
    return frozen(x), x * 2


@program(leaf(3))
def cross_entropy_backward(x):
    loss = F.cross_entropy(x.reshape(1, 3), fl.tensor([1]))
    loss.backward()
    return loss.detach()
