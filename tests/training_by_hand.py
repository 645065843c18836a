"""Three small programs that train by hand, for any library with PyTorch's interface.

Numbers come from a closed formula, so that every library starts from the same ones. Each program returns the loss of
every step. `tools/record_training.py` writes down what PyTorch gets; tests compare with that and, where PyTorch is
installed, with PyTorch itself.
"""

import math


def numbers(torch, *shape, scale=1.0, seed=0):
    """Irregular numbers in (-scale, scale)."""
    values = [scale * math.sin(12.9898 * (i + 1) + 78.233 * seed) for i in range(math.prod(shape))]
    return torch.tensor(values, dtype=torch.float64).reshape(shape).to(torch.float32)


def _step(torch, parameters, loss, rate):
    loss.backward()
    with torch.no_grad():
        for p in parameters:
            p -= rate * p.grad
            p.grad = None
    return loss.item()


def linear_regression(torch, steps=100):
    x, truth = numbers(torch, 64, 8, seed=1), numbers(torch, 8, 1, seed=2)
    y = x @ truth + 0.5 + numbers(torch, 64, 1, scale=0.05, seed=3)
    w, b = numbers(torch, 8, 1, scale=0.1, seed=4).requires_grad_(), torch.zeros(1, requires_grad=True)
    return [_step(torch, (w, b), ((x @ w + b - y) ** 2).mean(), 0.1) for _ in range(steps)]


def two_layer_net(torch, steps=60):
    F = torch.nn.functional
    x = numbers(torch, 48, 6, seed=1)
    classes = (x[:, 0] * x[:, 1] > 0).to(torch.int64) + (x[:, 2] > 0.3).to(torch.int64)
    parameters = [
        numbers(torch, 24, 6, scale=0.5, seed=2),
        numbers(torch, 24, scale=0.1, seed=3),
        numbers(torch, 3, 24, scale=0.3, seed=4),
        numbers(torch, 3, scale=0.1, seed=5),
    ]
    w1, b1, w2, b2 = [p.requires_grad_() for p in parameters]
    losses = []
    for _ in range(steps):
        scores = F.linear(F.gelu(F.linear(x, w1, b1)), w2, b2)
        losses.append(_step(torch, parameters, F.cross_entropy(scores, classes), 0.3))
    return losses


def recurrent_cell(torch, steps=8, length=200):
    x = numbers(torch, length, 4, 3, seed=1)
    target = numbers(torch, 4, 5, scale=0.5, seed=2)
    parameters = [
        numbers(torch, 5, 3, scale=0.5, seed=3),
        numbers(torch, 5, 5, scale=0.4, seed=4),
        numbers(torch, 5, scale=0.1, seed=5),
    ]
    w_in, w_state, b = [p.requires_grad_() for p in parameters]
    losses = []
    for _ in range(steps):
        h = torch.zeros(4, 5)
        for t in range(length):
            h = torch.tanh(x[t] @ w_in.t() + h @ w_state.t() + b)
        losses.append(_step(torch, parameters, ((h - target) ** 2).mean(), 0.2))
    return losses


PROGRAMS = {f.__name__: f for f in (linear_regression, two_layer_net, recurrent_cell)}
