"""Sums of single precision beside PyTorch's, to the last bit, and what depends on every bit: L-BFGS.

The order in which PyTorch multiplies matrices and vectors is MKL's and differs between processors. A test of ours
against it runs where it is the one we follow, which is asked of PyTorch alone.
"""

import functools
import itertools

import numpy as np
import pytest

import flambeau

torch = pytest.importorskip("torch")

STEPS = 50


def added_later(add, n, i, j):
    """How many of n terms are added after terms i and j have met: two large ones that cancel swallow those before."""
    x = np.ones(n, "float32")
    x[i], x[j] = 2.0**100, -(2.0**100)
    return int(add(torch.tensor(x)))


@functools.cache
def known_order():
    ones, x = torch.ones(200), torch.arange(1.0, 2.0, 2.0**-12)

    def rows(x, count):
        return (x.expand(count, len(x)).contiguous() @ ones[: len(x)])[0]

    def columns(x, count):
        return (x[:, None].expand(len(x), count).contiguous().t() @ ones[: len(x)])[0]

    def matrix(x):
        return (x.expand(8, len(x)).contiguous() @ torch.ones(len(x), 16))[0, 0]

    found = (
        [added_later(ones.dot, 200, 0, j) for j in (64, 192, 16, 32, 8, 4, 1, 2)],
        [added_later(lambda x: rows(x, 4), 40, i, j) for i, j in ((0, 1), (1, 17), (0, 2), (0, 33), (33, 34))],
        [added_later(lambda x: rows(x, 1), 40, i, j) for i, j in ((0, 1), (1, 17), (1, 33), (1, 2))],
        [added_later(lambda x: columns(x, 16), 20, i, j) for i, j in ((0, 2), (1, 3), (0, 1), (4, 6), (0, 4), (0, 16))],
        [added_later(lambda x: columns(x, 5), 20, 0, j) for j in (1, 2, 19)],
        [added_later(matrix, 40, 0, j) for j in (1, 2, 20, 39)],
        # One root in a hundred and fifty is not the nearest number, and a line search takes some.
        [int((x.sqrt().numpy() != np.sqrt(x.numpy())).sum())],
    )
    return found == (
        [198, 196, 193, 187, 175, 150, 100, 0],
        [38, 37, 7, 6, 0],
        [0, 38, 37, 1],
        [18, 18, 16, 18, 12, 3],
        [18, 17, 0],
        [38, 37, 19, 0],
        [15],
    )


def require_known_order():
    if not (torch.cpu._is_avx512_supported() and known_order()):
        pytest.skip("PyTorch adds up in another order on this processor")


def same_bits(ours, theirs):
    np.testing.assert_array_equal(ours.detach().numpy(), theirs.detach().numpy())


def random(seed, *shape, kind="float32"):
    return np.random.default_rng(seed).standard_normal(shape).astype(kind)


@pytest.mark.skipif(not torch.cpu._is_avx2_supported(), reason="PyTorch adds up in another order on this processor")
@pytest.mark.parametrize("kind", ["float32", "float64"])
@pytest.mark.parametrize("rows", [1, 2, 3, 4, 5, 7, 8, 17, 33, 64, 100, 333, 1100])
def test_sums(rows, kind):
    for columns in (1, 2, 3, 4, 5, 6, 7, 8, 9, 15, 16, 20, 28):
        x = random(rows * 64 + columns, rows, columns, kind=kind)
        ours, theirs = flambeau.tensor(x), torch.tensor(x)
        for name in ("sum", "mean"):
            for args in ((), (0,), (1,)):
                same_bits(getattr(ours, name)(*args), getattr(theirs, name)(*args))
        same_bits(ours.t().sum(0), theirs.t().sum(0))


@pytest.mark.skipif(not torch.cpu._is_avx2_supported(), reason="PyTorch adds up in another order on this processor")
@pytest.mark.parametrize("shape", [(3, 600), (16, 520), (33, 545), (20000,), (32000,), (450, 70)], ids=str)
def test_sums_of_more(shape):
    x = random(1, *shape)
    for args in ((), (0,), (len(shape) - 1,)):
        same_bits(flambeau.tensor(x).sum(*args), torch.tensor(x).sum(*args))


def test_dots():
    require_known_order()
    for n in [*range(1, 140), 200, 1000, 5000]:
        x, y = random(n, n), random(n + 1, n)
        same_bits(flambeau.tensor(x).dot(flambeau.tensor(y)), torch.tensor(x).dot(torch.tensor(y)))


@pytest.mark.parametrize("rows", [1, 2, 3, 4, 5, 7, 16, 20, 33, 64])
def test_matrices_and_vectors(rows):
    require_known_order()
    for n in (1, 2, 5, 8, 10, 16, 17, 18, 33, 34, 40, 49, 64, 65, 100):
        a, b, x = random(n, rows, n), random(n + 1, n, rows), random(n + 2, n)
        ours, theirs = ([library.tensor(v) for v in (a, b, x)] for library in (flambeau, torch))
        same_bits(ours[0] @ ours[2], theirs[0] @ theirs[2])
        if rows == 1:  # PyTorch may take one row for a column
            continue
        same_bits(ours[1].t() @ ours[2], theirs[1].t() @ theirs[2])
        same_bits(ours[0] @ ours[2][:, None], theirs[0] @ theirs[2][:, None])
        same_bits(ours[2][None] @ ours[1], theirs[2][None] @ theirs[1])


def quadratic(library):
    a = random(1, 20, 20)
    a = library.tensor(a @ a.T / 20 + 0.1 * np.eye(20, dtype="float32"))
    b, x = library.tensor(random(2, 20)), library.zeros(20, requires_grad=True)
    return [x], lambda: 0.5 * x.dot(a @ x) - b.dot(x)


def rosenbrock(library):
    x = library.tensor([-1.2, 1.0, -0.5, 0.8, 1.3, 0.2, -0.7, 0.9], requires_grad=True)
    return [x], lambda: (100 * (x[1:] - x[:-1] ** 2) ** 2 + (1 - x[:-1]) ** 2).sum()


def regression(library):
    x, y = random(3, 64, 10), random(4, 64, 1)
    x, y = library.tensor(x), library.tensor(y + x[:, :1])
    weight, bias = (library.zeros(s, requires_grad=True) for s in ((10, 1), (1,)))
    return [weight, bias], lambda: ((x @ weight + bias - y) ** 2).mean()


def network(library, sizes, loss):
    layers = []
    for i, (a, b) in enumerate(itertools.pairwise(sizes)):
        layers += [library.nn.ReLU()] * (i > 0) + [library.nn.Linear(a, b)]
    model = library.nn.Sequential(*layers)
    with library.no_grad():
        for i, p in enumerate(model.parameters()):
            p.copy_(library.tensor(0.3 * random(i, *p.shape)))
    x, y = library.tensor(random(8, 64, sizes[0])), library.tensor(np.sin(2 * random(9, 64, sizes[-1])))
    return list(model.parameters()), lambda: getattr(library.nn.functional, loss)(model(x), y)


PROBLEMS = {
    "quadratic": quadratic,
    "rosenbrock": rosenbrock,
    "regression": regression,
    "linear": lambda library: network(library, (10, 1), "smooth_l1_loss"),
    "wide": lambda library: network(library, (8, 16, 2), "mse_loss"),
}


# Exponentials and logarithms are MKL's in PyTorch and rounded otherwise, so no objective here has any.
@pytest.mark.parametrize("problem", PROBLEMS)
@pytest.mark.parametrize("options", [
    {"line_search_fn": "strong_wolfe"}, {"line_search_fn": "strong_wolfe", "max_iter": 4, "history_size": 5},
    {"lr": 0.1, "max_iter": 5},
], ids=str)  # fmt: skip
def test_lbfgs_follows_to_the_last_bit(options, problem):
    require_known_order()
    found = []
    for library in (flambeau, torch):
        params, objective = PROBLEMS[problem](library)
        opt = library.optim.LBFGS(params, **options)

        def closure():
            opt.zero_grad()  # noqa: B023
            loss = objective()  # noqa: B023
            loss.backward()
            return loss

        path = []
        for _ in range(STEPS):
            loss = opt.step(closure).item()
            path.append((loss, *(p.detach().numpy().tobytes() for p in params)))
        state = opt.state_dict()["state"][0]
        found.append((path, state["n_iter"], state["func_evals"]))
    for step, (mine, other) in enumerate(zip(found[0][0], found[1][0])):
        assert mine == other, f"step {step}"
    assert found[0][1:] == found[1][1:]


ACTIVATIONS = {"tanh": torch.tanh, "sigmoid": torch.sigmoid, "gelu": torch.nn.functional.gelu}


@pytest.mark.parametrize("options", [{"line_search_fn": "strong_wolfe"}, {"lr": 0.5}, {}], ids=str)
@pytest.mark.parametrize("loss", ["mean square", "cross entropy"])
@pytest.mark.parametrize("activation", ACTIVATIONS)
def test_lbfgs_takes_the_same_steps_for_the_same_gradients(activation, loss, options):
    """Functions that round otherwise than PyTorch's part the paths of nets; the optimizer does not."""
    require_known_order()
    x, y = (torch.tensor(random(seed, 40, n)) for seed, n in ((0, 6), (1, 3)))
    classes = y.argmax(1)

    def evaluated(weights):
        made = ACTIVATIONS[activation](x @ weights[0] + weights[1]) @ weights[2] + weights[3]
        value = ((made - y) ** 2).mean()
        if loss == "cross entropy":
            value = torch.nn.functional.cross_entropy(made, classes)
        value.backward()
        return value.detach()

    def path(library):
        own = [random(i, *shape) * 0.5 for i, shape in enumerate([(6, 8), (8,), (8, 3), (3,)])]
        weights = [library.tensor(w).requires_grad_() for w in own]
        optimizer = library.optim.LBFGS(weights, **options)

        def closure():
            copies = [torch.tensor(w.detach().numpy()).requires_grad_() for w in weights]
            value = evaluated(copies)
            for weight, copied in zip(weights, copies):
                weight.grad = library.tensor(copied.grad.numpy())
            return library.tensor(value.numpy())

        for _ in range(STEPS):
            optimizer.step(closure)
            yield [w.detach().numpy().copy() for w in weights]

    for ours, theirs in zip(path(flambeau), path(torch)):
        for a, b in zip(ours, theirs):
            np.testing.assert_array_equal(a, b)
