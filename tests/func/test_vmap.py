"""vmap: dimensions in and out, nesting, other transformations inside and outside, random operators, errors."""

import pytest

import flambeau as fl
from flambeau.func import functional_call, grad, hessian, jacfwd, jacrev, jvp, stack_module_state, vjp, vmap

F = fl.nn.functional


def random(*shape, seed=0):
    return fl.randn(shape, generator=fl.Generator().manual_seed(seed + sum(shape)), dtype=fl.float64)


def loop(f, *inputs):
    return fl.stack([f(*row) for row in zip(*inputs)])


def same(a, b):
    return a.shape == b.shape and fl.allclose(a, b)


# ---------------------------------------------------------------- dimensions


def test_in_and_out_dims():
    x, y = random(2, 5, 3), random(3, 5)
    assert vmap(lambda a, b: a @ b, in_dims=(1, 1), out_dims=1)(x, y).shape == (2, 5)
    assert same(vmap(lambda a, b: a + b, in_dims=(1, None), out_dims=-1)(x, random(3)), (x + random(3)).movedim(1, -1))
    out = vmap(lambda d: {"sum": d["a"].sum(), "both": (d["a"], d["b"])}, in_dims=({"a": 0, "b": None},))(
        {"a": x, "b": y}
    )
    assert same(out["sum"], x.sum((1, 2))) and out["both"][1].shape == (2, 3, 5)


def test_results_without_the_batch_are_repeated():
    x = random(4, 2)
    assert vmap(lambda a: fl.ones(3))(x).shape == (4, 3)
    assert vmap(lambda a: fl.ones(3), out_dims=None)(x).shape == (3,)


def test_nesting():
    a, b = random(3), random(4)
    assert same(vmap(vmap(lambda x, y: x * y, (None, 0)), (0, None))(a, b), fl.outer(a, b))
    x = random(2, 3, 4)
    assert same(vmap(vmap(lambda v: v.softmax(0)))(x), x.softmax(2))
    assert same(vmap(lambda m: m + vmap(lambda v: v.sum())(m).unsqueeze(1))(x), x + x.sum(2, keepdim=True))


def test_chunks():
    x = random(5, 3)
    assert same(vmap(lambda v: v.cumsum(0), chunk_size=2)(x), x.cumsum(1))


def test_a_tensor_inside_looks_like_one_element():
    seen = []

    def look(v):
        seen.append((v.shape, v.dim(), v.dtype, len(v)))
        return v

    vmap(look)(random(5, 3))
    assert seen == [((3,), 1, fl.float64, 3)]


def test_writes_in_place():
    x = random(4, 3)

    def f(v):
        out = v.clone()
        out[0] = 7
        out[1:].mul_(v[1:])
        out += v
        return out

    assert same(vmap(f)(x), loop(f, x))
    with pytest.raises(RuntimeError, match="inplace"):
        vmap(lambda v: fl.zeros(3, dtype=fl.float64).add_(v))(x)


# ---------------------------------------------------------------- with other transformations


def loss(w, b, x, y):
    return F.cross_entropy(F.linear(x.unsqueeze(0), w, b).tanh(), y.unsqueeze(0))


def test_gradients_of_single_samples():
    w, b, x, y = random(4, 3), random(4), random(5, 3), fl.tensor([0, 1, 2, 3, 0])
    gw, gb = vmap(grad(loss, (0, 1)), in_dims=(None, None, 0, 0))(w, b, x, y)
    for i in range(5):
        want = grad(loss, (0, 1))(w, b, x[i], y[i])
        assert same(gw[i], want[0]) and same(gb[i], want[1])
    assert not gw.requires_grad


def test_gradients_through_a_batch():
    x = random(5, 3)
    assert same(grad(lambda z: vmap(lambda v: (v**3).sum())(z).sum())(x), 3 * x * x)
    assert same(grad(lambda z: vmap(grad(lambda v: (v**3).sum()))(z).sum())(x), 6 * x)
    leaf = x.clone().requires_grad_()
    vmap(lambda v: (v * v).sum())(leaf).sum().backward()
    assert same(leaf.grad, 2 * x)


def test_outer_weights_are_differentiated_through_the_batch():
    w, x = random(3).requires_grad_(), random(5, 3)
    vmap(lambda v: (v * w).sin().sum())(x).sum().backward()
    assert same(w.grad, (x * (x * w).cos()).sum(0).detach())


def test_matrices_of_derivatives():
    x = random(4, 3)

    def f(v):
        return v.sin() * v.sum()

    for jacobian in (jacrev, jacfwd):
        assert same(vmap(jacobian(f))(x), loop(jacobian(f), x))
    assert same(vmap(hessian(lambda v: (v**3).sum()))(x), fl.diag_embed(6 * x))
    assert same(vmap(lambda v, t: jvp(f, (v,), (t,))[1])(x, x + 1), loop(lambda v, t: jvp(f, (v,), (t,))[1], x, x + 1))
    assert same(vmap(lambda v: vjp(f, v)[1](v)[0])(x), loop(lambda v: vjp(f, v)[1](v)[0], x))


def test_rows_of_a_jacobian_at_once():
    x = random(3)
    _, pull = vjp(lambda v: v.exp() * v.sum(), x)
    rows = vmap(lambda v: pull(v)[0])(fl.eye(3, dtype=fl.float64))
    assert same(rows, jacrev(lambda v: v.exp() * v.sum())(x))


def test_an_ensemble_of_modules():
    fl.manual_seed(0)
    models = [
        fl.nn.Sequential(fl.nn.Linear(3, 8), fl.nn.ReLU(), fl.nn.LayerNorm(8), fl.nn.Linear(8, 2)) for _ in range(4)
    ]
    parameters, buffers = stack_module_state(models)
    x = fl.randn(6, 3)

    def call(p, b, x):
        return functional_call(models[0], (p, b), (x,))

    got = vmap(call, in_dims=(0, 0, None))(parameters, buffers, x)
    assert fl.allclose(got, fl.stack([m(x) for m in models]), atol=1e-5)
    got = vmap(call)(parameters, buffers, x[:4].unsqueeze(1))
    assert fl.allclose(got, fl.stack([m(x[i : i + 1]) for i, m in enumerate(models)]), atol=1e-5)


@pytest.mark.parametrize(
    "f",
    [
        lambda q: F.scaled_dot_product_attention(q, q, q),
        lambda q: F.conv2d(q.unsqueeze(0), fl.ones(2, 3, 2, 2, dtype=q.dtype), padding=1),
        lambda q: F.max_pool2d(q, 2),
        lambda q: F.batch_norm(q.unsqueeze(0), None, None, training=True),
        lambda q: fl.linalg.inv(q @ q.mT + fl.eye(4, dtype=q.dtype)),
        lambda q: q.sort(1).values.cumsum(0).flip([0]),
        lambda q: fl.einsum("abc,dbc->ad", q, q),
        lambda q: q[:, 1:3, ::2].reshape(-1).diff(),
    ],
    ids=["attention", "conv2d", "max_pool2d", "batch_norm", "inv", "sort", "einsum", "indexing"],
)
def test_programs_agree_with_a_loop(f):
    x = random(2, 3, 4, 4)
    assert same(vmap(f)(x), loop(f, x))
    assert same(vmap(grad(lambda q: (f(q) ** 2).sum()))(x), loop(grad(lambda q: (f(q) ** 2).sum()), x))


# ---------------------------------------------------------------- random numbers


def test_randomness():
    x = fl.zeros(4, 1000)
    with pytest.raises(RuntimeError, match="randomness"):
        vmap(lambda v: v + fl.rand(1000))(x)
    with pytest.raises(RuntimeError, match="randomness"):
        vmap(lambda v: F.dropout(v + 1))(x)
    for f in (lambda v: v + fl.rand(1000), lambda v: F.dropout(v + 1), lambda v: v + fl.rand_like(v)):
        alike = vmap(f, randomness="same")(x)
        assert all(fl.equal(row, alike[0]) for row in alike)
        unlike = vmap(f, randomness="different")(x)
        assert not any(fl.equal(row, unlike[0]) for row in unlike[1:])


@pytest.mark.parametrize(
    "draw",
    [
        lambda p: fl.normal(p, 1.0),
        lambda p: fl.normal(0.0, p),
        lambda p: fl.normal(p, p),
        lambda p: fl.bernoulli(p),
        lambda p: fl.bernoulli(p, 0.5),
        lambda p: p.clone().bernoulli_(p),
        lambda p: fl.poisson(p * 9),
        lambda p: fl.binomial(fl.full((50,), 9.0), p),
        lambda p: fl.multinomial(p, 5),
        lambda p: fl._standard_gamma(p),
        lambda p: fl._sample_dirichlet(p),
        lambda p: fl.rand_like(p),
        lambda p: fl.randint_like(p, 1000),
        lambda p: F.dropout(p, 0.5),
        lambda p: F.alpha_dropout(p, 0.5, training=True),
    ],
)
def test_random_numbers_that_differ_are_those_of_one_call(draw):
    parameters = fl.rand(4, 50, generator=fl.Generator().manual_seed(1)) * 0.8 + 0.1
    fl.manual_seed(0)
    drawn = vmap(draw, in_dims=1, randomness="different")(parameters.t())
    fl.manual_seed(0)
    if "binomial" in draw.__code__.co_names:
        assert fl.equal(drawn, fl.binomial(fl.full((4, 50), 9.0), parameters))
    else:
        assert fl.equal(drawn, draw(parameters))


@pytest.mark.parametrize("draw", [lambda p: fl.normal(p, 1.0), fl.bernoulli, fl.poisson, fl.rand_like, F.dropout])
def test_random_numbers_that_differ_from_parameters_without_the_batch(draw):
    parameters = fl.rand(50) * 0.8 + 0.1
    unbatched = vmap(lambda _: draw(parameters), randomness="different")(fl.zeros(3))
    assert unbatched.shape[0] == 3 and not any(fl.equal(row, unbatched[0]) for row in unbatched[1:])


def test_channels_are_dropped_for_each_element():
    x = fl.ones(4, 64, 5)
    for drop in (
        F.dropout1d,
        lambda v: F.dropout2d(v.unsqueeze(0).unsqueeze(-1)),
        lambda v: F.feature_alpha_dropout(v, training=True),
    ):
        out = vmap(drop, randomness="different")(x).reshape(4, -1)
        assert not any(fl.equal(row, out[0]) for row in out[1:])


def test_the_same_random_numbers_take_parameters_without_the_batch():
    x, p = fl.zeros(4, 50), fl.full((50,), 0.5)
    out = vmap(lambda v: v.clone().bernoulli_(p), randomness="same")(x)
    assert all(fl.equal(row, out[0]) for row in out)
    with pytest.raises(RuntimeError, match="same randomness with a batched tensor input"):
        vmap(lambda v: v.clone().bernoulli_(v), randomness="same")(x)
    with pytest.raises(RuntimeError, match="more elements than `self`"):
        vmap(lambda v: fl.zeros(50).bernoulli_(v), randomness="different")(x)
    with pytest.raises(RuntimeError, match="different inplace randomness on an unbatched"):
        vmap(lambda v: p.clone().bernoulli_(0.5), randomness="different")(x)


def test_chunks_share_the_random_numbers_that_are_the_same():
    fl.manual_seed(0)
    out = vmap(lambda v: v + fl.rand(5), randomness="same", chunk_size=2)(fl.zeros(7, 5))
    assert all(fl.equal(row, out[0]) for row in out)
    fl.manual_seed(0)
    assert fl.equal(out[0], fl.rand(5))
    out = vmap(lambda v: v + fl.rand(5), randomness="different", chunk_size=2)(fl.zeros(7, 5))
    assert not any(fl.equal(row, out[0]) for row in out[1:])


# ---------------------------------------------------------------- misuse


@pytest.mark.parametrize(
    "name",
    "cholesky det eig eigh eigvals eigvalsh inv lu lu_factor slogdet matrix_exp pinv qr svd svdvals matrix_rank cond".split(),
)
def test_batches_of_vectors_are_no_matrices(name):
    function = getattr(fl.linalg, name)
    for call in (lambda: function(fl.rand(4)), lambda: vmap(function)(fl.rand(4, 4))):
        with pytest.raises(RuntimeError, match="dimension"):
            call()
    with pytest.raises(RuntimeError, match="dimension"):
        vmap(fl.tril)(fl.rand(4, 4))


def test_misuse():
    x = random(3, 2)
    with pytest.raises(ValueError, match="at least one input"):
        vmap(lambda v: v, in_dims=None)(x)
    with pytest.raises(ValueError, match="one batch size"):
        vmap(lambda a, b: a)(x, random(4))
    with pytest.raises(ValueError, match="in_dims"):
        vmap(lambda v: v, in_dims=2)(x)
    with pytest.raises(ValueError, match="return Tensors"):
        vmap(lambda v: 1)(x)
    with pytest.raises(RuntimeError, match="item"):
        vmap(lambda v: v if v.sum() > 0 else -v)(x)
    with pytest.raises(RuntimeError, match="item"):
        vmap(lambda v: v * v.sum().item())(x)
    with pytest.raises(RuntimeError, match="values cannot be read"):
        vmap(lambda v: fl.tensor(v.tolist()))(x)
    with pytest.raises(RuntimeError, match="randomness"):
        vmap(lambda v: v, randomness="some")(x)
    kept = []
    vmap(lambda v: (kept.append(v), v)[1])(x)
    with pytest.raises(RuntimeError, match="escaped"):
        kept[0] + 1


def test_one_index_for_each_element():
    x, i = fl.arange(12.0).reshape(3, 4), fl.tensor([0, 1, 3])
    y = fl.arange(24.0).reshape(3, 4, 2)
    assert vmap(lambda row, at: row[at])(x, i).tolist() == [0.0, 5.0, 11.0]
    assert vmap(lambda at: x[:, at])(i).tolist() == x.t()[i].tolist()
    assert vmap(lambda part, at: part[at, 1])(y, i).tolist() == [1.0, 11.0, 23.0]
    assert vmap(lambda part, at: part[1:, at - at])(y, i).tolist() == y[:, 1:, 0].tolist()
    assert vmap(lambda row: row[row.argmax()])(x).tolist() == [3.0, 7.0, 11.0]
    assert vmap(fl.func.grad(lambda row, at: row[at] ** 2))(x, i)[1].tolist() == [0.0, 10.0, 0.0, 0.0]


def test_named_results_are_batched_field_by_field():
    x = fl.tensor([[3.0, 1.0, 2.0], [0.0, 5.0, 4.0]])
    found = vmap(fl.sort)(x)
    assert found.values.tolist() == [[1, 2, 3], [0, 4, 5]] and found.indices.tolist() == [[1, 2, 0], [0, 2, 1]]
    assert type(found) is type(fl.sort(x))


def test_functionalize_keeps_results_and_effects():
    from flambeau.func import functionalize

    x = fl.zeros(2)
    assert functionalize(lambda t: t.add_(1) * 2)(x).tolist() == [2, 2] and x.tolist() == [1, 1]
    with pytest.raises(RuntimeError, match="remove"):
        functionalize(lambda t: t, remove="views")


def test_batch_norms_lose_their_statistics():
    from flambeau.func import replace_all_batch_norm_modules_

    net = fl.nn.Sequential(fl.nn.Linear(2, 2), fl.nn.BatchNorm1d(2))
    assert replace_all_batch_norm_modules_(net) is net
    assert net[1].running_mean is None and not list(net.buffers())


def test_views_in_place_change_the_batched_tensor():
    x = fl.arange(24.0).view(2, 3, 4)

    def wider(a):
        b = a.clone()
        first = b[0]
        b.unsqueeze_(0)
        b.mul_(2)
        return b, first

    wide, first = fl.func.vmap(wider)(x)
    assert fl.equal(wide, (x * 2).unsqueeze(1)) and fl.equal(first, x[:, 0] * 2)
    turned = fl.func.vmap(lambda a: a.clone().transpose_(0, 1).add_(1))(x)
    assert fl.equal(turned, x.transpose(1, 2) + 1)
    assert fl.func.vmap(fl.func.vmap(lambda a: a.clone().unsqueeze_(0)))(x).shape == (2, 3, 1, 4)


@pytest.mark.parametrize(
    "function",
    [
        lambda a, b: fl.where(b > 0, b, a),
        lambda a, b: fl.where(b.bool(), b.double(), a),
        lambda a, b: a.masked_fill(b > 0, b),
        lambda a, b: fl.masked_fill(a, b < 0, 2.0),
        lambda a, b: fl.where(b > 0, 1, a),
    ],
)
def test_conditions_without_dimensions_beside_more(function):
    a, b = fl.randn(2, 3), fl.tensor([1.0, -1.0])
    for low in (fl.float32, fl.float16):
        result = fl.func.vmap(function)(a.to(low), b.to(low))
        fl.testing.assert_close(result, fl.stack([function(x, y) for x, y in zip(a.to(low), b.to(low))]))
