"""Views and writes in place in and around compiled graphs: gradients are those of eager mode."""

import pytest

import flambeau as fl

BACKENDS = ["eager", "aot_eager", "inductor"]

# Two results that share memory, or share it with the input.
PAIRS = {
    "flatten": lambda x: _with(x, lambda t: t.flatten()),
    "column": lambda x: _with(x, lambda t: t[:, 0]),
    "transpose": lambda x: _with(x, lambda t: t.t()),
    "window": lambda x: _with(x, lambda t: t.as_strided((2,), (1,), 1)),
    "expanded": lambda x: _with(x, lambda t: t.expand(3, 2, 2)),
    "detached": lambda x: _with(x, lambda t: t.detach()),
    "written_without_history": lambda x: _with(x, lambda t: t.detach().mul_(x)),
    "both_views": lambda x: (lambda t: (t.view(-1), t[0]))(x * 1),
    "apart": lambda x: (lambda t: (t[0], t[1]))(x * 1),
    "of_the_input": lambda x: (x.view(-1), x.t()),
    "the_input": lambda x: (x, x[0]),
}


def _with(x, view):
    t = x * 1
    return t, view(t)


def _gradient(function, write, leaf_view):
    leaf = fl.arange(4.0).view(2, 2).requires_grad_()
    results = function(leaf * 1 if leaf_view else leaf)
    try:
        results[write].mul_(3)
        (gradient,) = fl.autograd.grad((results[1 - write] * 2).sin().sum(), leaf, allow_unused=True)
    except RuntimeError:
        return "refused"
    return None if gradient is None else [round(v, 4) for v in gradient.flatten().tolist()]


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("write", [0, 1])
@pytest.mark.parametrize("name", PAIRS)
def test_writes_to_results_that_share_memory(name, write, backend):
    function, intermediate = PAIRS[name], name in ("of_the_input", "the_input")
    compiled = fl.compile(function, backend=backend)
    for _ in range(2):
        assert _gradient(compiled, write, intermediate) == _gradient(function, write, intermediate)


def _masked(t):
    t[t > 0] = 0.1


WRITES = {
    "mask": _masked,
    "mask_of_rows": lambda t: t.__setitem__(t[:, 0] > 0, 0.1),
    "mask_of_columns": lambda t: t.__setitem__((slice(None), t[0] > 0), 0.1),
    "mask_with_an_element": lambda t: t.__setitem__(t > 0, t[0, 1]),
    "index_put": lambda t: t.index_put_((t > 0,), fl.tensor(0.1)),
    "accumulate": lambda t: t.index_put_((t > 0,), t[0, 0] * 1, accumulate=True),
    "masked_fill": lambda t: t.masked_fill_(t > 0, 0.1),
    "masked_scatter": lambda t: t.masked_scatter_(t > 0, t.detach() * 2),
    "index": lambda t: t.__setitem__(fl.tensor([0]), 0.1),
    "row": lambda t: t.__setitem__(0, 0.1),
    "diagonal": lambda t: t.diagonal().mul_(2),
}


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("name", WRITES)
def test_views_follow_writes_to_what_they_are_views_of(name, backend):
    def program(x):
        t = x * 1
        view = t.flatten()
        WRITES[name](t)
        return view.sin().sum()

    gradients = []
    for function in (program, fl.compile(program, backend=backend)):
        x = fl.tensor([[1.0, -1.0], [2.0, -3.0]], requires_grad=True)
        gradients.append(fl.autograd.grad(function(x), x)[0])
    fl.testing.assert_close(*gradients)


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("name", ["squeeze_", "t_", "unsqueeze_", "transpose_"])
def test_views_in_place_keep_their_history_without_grad_mode(name, backend):
    arguments = {"unsqueeze_": (0,), "transpose_": (0, 1)}.get(name, ())

    def program(x):
        t = x * 1
        with fl.no_grad():
            getattr(t, name)(*arguments)
        return t

    x = fl.arange(2.0).view(1, 2).requires_grad_()
    result = fl.compile(program, backend=backend)(x)
    assert result.requires_grad and result.shape == program(x).shape


def _index(n=1):
    return fl.empty(n, dtype=fl.int64, device="meta")


IN_PLACE = {
    **{name: write for name, write in WRITES.items() if name not in ("index", "index_put")},
    "index_put": lambda t: t.index_put_((t > 0,), t[0, 0].clone()),
    "index": lambda t: t.__setitem__(_index(), t[:1].clone()),
    "index_add": lambda t: t.index_add_(0, _index(), t[:1].clone()),
    "index_copy": lambda t: t.index_copy_(0, _index(), t[:1].clone()),
    "index_fill": lambda t: t.index_fill_(0, _index(), 1.0),
    "index_reduce": lambda t: t.index_reduce_(0, _index(), t[:1].clone(), "mean"),
    "scatter": lambda t: t.scatter_(0, _index()[None], 1.0),
    "scatter_add": lambda t: t.scatter_add_(0, _index()[None], t.clone()),
    "put": lambda t: t.put_(_index(), t[0, :1].clone()),
    "copy": lambda t: t.copy_(t.clone()),
    "normal": lambda t: t.normal_(),
    "uniform": lambda t: t.uniform_(),
    "bernoulli": lambda t: t.bernoulli_(0.5),
    "exponential": lambda t: t.exponential_(),
    "cumsum": lambda t: t.cumsum_(0),
    "tril": lambda t: t.tril_(),
    "addmm": lambda t: t.addmm_(t.clone(), t.clone()),
    "out": lambda t: fl.mm(t.clone(), t.clone(), out=t),
    "cat_out": lambda t: fl.cat([t[:1].clone(), t[1:].clone()], out=t),
    "list": lambda t: fl._foreach_add_([t], 1),
    "renorm": lambda t: t.renorm_(2, 0, 1.0),
    "fill_diagonal": lambda t: t.fill_diagonal_(1),
    "dropout": lambda t: fl.nn.functional.dropout(t, 0.5, True, inplace=True),
    "rrelu": lambda t: fl.nn.functional.rrelu(t, training=True, inplace=True),
}


@pytest.mark.parametrize("name", IN_PLACE)
def test_writes_without_data_are_counted(name):
    """What is recorded has no data; views know from the count that they have to follow."""
    t = fl.empty(2, 2, device="meta") * 1
    before = t._version
    IN_PLACE[name](t)
    assert t._version > before
