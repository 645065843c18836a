"""An operator of one's own: its function, its shapes, its derivative; autograd and `compile` then know it.

python examples/custom_op.py
"""

import flambeau as torch


@torch.library.custom_op("examples::soft_clip", mutates_args=())
def soft_clip(x: torch.Tensor, bound: float) -> torch.Tensor:
    """x near zero, and never beyond the bound."""
    return bound * (x / bound).tanh()


# What comes out for what goes in, told without computing: `compile` captures with this.
@soft_clip.register_fake
def _(x, bound):
    return torch.empty_like(x)


def keep(ctx, inputs, output):
    ctx.save_for_backward(output)
    ctx.bound = inputs[1]


def derivative(ctx, grad):
    (output,) = ctx.saved_tensors
    return grad * (1 - (output / ctx.bound) ** 2), None


soft_clip.register_autograd(derivative, setup_context=keep)

x = torch.linspace(-3, 3, 7, dtype=torch.float64, requires_grad=True)
print("values  ", soft_clip(x, 1.0).detach())
soft_clip(x, 1.0).sum().backward()
print("gradient", x.grad)
print("against differences:", torch.autograd.gradcheck(lambda x: soft_clip(x, 2.0), (x,)))


@torch.compile(fullgraph=True)  # one graph, the operator in it
def layer(x, weight):
    return soft_clip(x @ weight, 0.5).sum()


weight = torch.randn(7, 2, dtype=torch.float64)
print("compiled", layer(x, weight).item())
assert torch.allclose(layer(x, weight), soft_clip(x @ weight, 0.5).sum())
