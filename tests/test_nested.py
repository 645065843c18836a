"""Nested tensors: parts, functions on rows, sums over sequences, attention, gradients, and what is refused."""

import pytest

import flambeau as fl
from flambeau import nested, nn

A, B = fl.arange(6.0).reshape(2, 3), fl.arange(12.0).reshape(4, 3) / 4
F = nn.functional


def made(**options):
    return nested.nested_tensor([A, B], layout=fl.jagged, **options)


def test_parts():
    x = made()
    assert x.is_nested and x.layout is fl.jagged and len(x) == 2 and x.dim() == x.ndim == 3
    assert x.size(0) == 2 and x.size(-1) == 3 and x.numel() == 18 and x.shape[1] is (x + 1).shape[1]
    assert x.values().shape == (6, 3) and x.offsets().tolist() == [0, 2, 6] and x.lengths() is None
    for got, want in zip(x.unbind(), (A, B)):
        assert fl.equal(got, want)
    assert fl.equal(x[1], B) and [p.shape[0] for p in x] == [2, 4]
    assert repr(x).startswith("NestedTensor(size=(2, j") and "offsets=tensor([0, 2, 6]), contiguous=True)" in repr(x)


def test_padding_and_other_ways_to_make_them():
    x = made()
    padded = x.to_padded_tensor(-1.0)
    assert padded.shape == (2, 4, 3) and (padded[0, 2:] == -1).all() and fl.equal(padded[1], B)
    assert nested.to_padded_tensor(x, 0.0, output_size=(2, 5, 3)).shape == (2, 5, 3)
    with pytest.raises(RuntimeError, match="output_size"):
        x.to_padded_tensor(0.0, (2, 3, 3))
    y = nested.nested_tensor_from_jagged(fl.arange(6.0), lengths=fl.tensor([2, 4]))
    assert [p.tolist() for p in y.unbind()] == [[0, 1], [2, 3, 4, 5]]
    z = nested.narrow(fl.arange(10.0).reshape(2, 5), 1, fl.tensor([0, 1]), fl.tensor([2, 3]), layout=fl.jagged)
    assert z.values().tolist() == [0, 1, 6, 7, 8]
    old = nested.nested_tensor([A, B])
    assert old.layout is fl.strided and repr(old).startswith("nested_tensor([\n  tensor([[0., 1., 2.],\n          [3.")


def test_functions_on_rows():
    x = made()
    dense = fl.cat([A, B])
    for got, want in (
        (2 - x, 2 - dense), (x * x / 2, dense * dense / 2), (fl.relu(x - 2), fl.relu(dense - 2)), (x.exp(), dense.exp()),
        (F.gelu(x), F.gelu(dense)), (x.softmax(-1), dense.softmax(-1)), (x + fl.ones(3), dense + 1),
        (x @ fl.ones(3, 2), dense @ fl.ones(3, 2)), (F.layer_norm(x, (3,)), F.layer_norm(dense, (3,))),
        (x.unsqueeze(-1), dense.unsqueeze(-1)), (x.view(2, -1, 3, 1), dense.view(6, 3, 1)),
        (x.sum(-1, keepdim=True), dense.sum(-1, keepdim=True)), (x.to(fl.float64), dense.double()),
    ):  # fmt: skip
        assert isinstance(got, type(x)) and got.dtype == want.dtype and fl.allclose(got.values(), want)
    bias = fl.tensor([[[1.0, 2, 3]], [[4.0, 5, 6]]])
    assert fl.equal((x + bias)[1], B + bias[1])
    assert fl.allclose(x.sum(1), fl.stack([A.sum(0), B.sum(0)])) and fl.allclose(x.mean(1)[1], B.mean(0))
    assert x.sum() == dense.sum()


def test_attention_and_gradients():
    weights = fl.sin(fl.arange(24.0)).reshape(8, 3)
    results = []
    for inside in (True, False):
        a, b, w = A.clone().requires_grad_(), B.clone().requires_grad_(), weights.clone().requires_grad_()
        if inside:
            q = F.linear(nested.as_nested_tensor([a, b], layout=fl.jagged), w).unflatten(-1, [2, 4]).transpose(1, 2)
            assert q.size(1) == 2 and q.dim() == 4
            out = F.scaled_dot_product_attention(q, q, q, is_causal=True).transpose(1, 2).flatten(-2).unbind()
        else:
            heads = [F.linear(t, w).reshape(-1, 2, 4).transpose(0, 1) for t in (a, b)]
            out = [F.scaled_dot_product_attention(h, h, h, is_causal=True).transpose(0, 1).flatten(1) for h in heads]
        sum(o.square().sum() for o in out).backward()
        results.append([*out, a.grad, b.grad, w.grad])
    for got, want in zip(*results):
        assert fl.allclose(got, want, atol=1e-4)


def test_leaves_get_nested_gradients():
    x = made(requires_grad=True)
    (x * 3).sum().backward()
    assert x.grad.is_nested and fl.equal(x.grad.values(), fl.full((6, 3), 3.0))


def test_what_is_refused():
    x = made()
    with pytest.raises(RuntimeError, match="share their offsets"):
        x + made()
    with pytest.raises(RuntimeError, match="first dimension only"):
        nested.nested_tensor([fl.ones(2, 3), fl.ones(2, 4)])
    with pytest.raises(NotImplementedError, match="cumsum"):
        x.cumsum(1)
    with pytest.raises(NotImplementedError, match="index"):
        x[:, 0]
    with pytest.raises(RuntimeError, match="broadcasts"):
        x + fl.ones(2, 4, 3)


def test_size_of_the_irregular_dimension():
    strided = fl.nested.nested_tensor([fl.ones(2, 4), fl.ones(3, 4)])
    with pytest.raises(RuntimeError):
        strided.size(1)
    assert strided.size(2) == 4 and strided.size(0) == 2
    assert fl.nested.nested_tensor([fl.ones(2, 4), fl.ones(2, 4)]).size(1) == 2


def pieces():
    parts = [fl.arange(6.0).view(2, 3), fl.arange(12.0).view(4, 3)]
    return nested.nested_tensor(parts, layout=fl.jagged), parts


def test_joining_keeps_the_sequences():
    x, parts = pieces()
    assert [t.tolist() for t in fl.cat([x, x], dim=-1)] == [fl.cat([p, p], -1).tolist() for p in parts]
    assert fl.stack([x, x], dim=-1).values().shape == (6, 3, 2)
    for function in (fl.cat, fl.stack):
        with pytest.raises(RuntimeError, match="NestedTensor"):
            function([x, x])
    with pytest.raises(RuntimeError, match="dense"):
        fl.cat([x, fl.ones(2, 4, 3)], dim=-1)


def test_products_with_a_matrix_for_each_sequence():
    x, parts = pieces()
    matrices = fl.arange(12.0).view(2, 3, 2)
    for made in (fl.bmm(x, matrices), x @ matrices):
        assert [t.tolist() for t in made] == [(p @ m).tolist() for p, m in zip(parts, matrices)]
    with pytest.raises(RuntimeError, match="each"):
        fl.bmm(x, fl.ones(3, 3, 2))


def test_extremes_and_softmax_of_sequences():
    x, parts = pieces()
    assert (
        x.amax(dim=1).tolist() == [p.amax(0).tolist() for p in parts] and x.max().item() == 11 and x.min().item() == 0
    )
    assert [t.tolist() for t in x.argmax(-1)] == [p.argmax(-1).tolist() for p in parts]
    assert bool((x > 10).any()) and not bool((x > 0).all()) and (x > 0).any(-1).values().tolist()[0] is True
    for made, part in zip(fl.softmax(x, 1), parts):
        fl.testing.assert_close(made, part.softmax(0))


def test_rows_are_selected_expanded_written_and_copied():
    import copy

    x, parts = pieces()
    assert [t.tolist() for t in x.select(-1, 0)] == [p[:, 0].tolist() for p in parts]
    assert x.unsqueeze(-1).expand(-1, -1, -1, 2).values().shape == (6, 3, 2)
    y = copy.deepcopy(x)
    assert y.zero_() is y and y.values().sum().item() == 0 and x.values().sum().item() == 81
    assert y.copy_(x).values().sum().item() == 81 and not x.is_pinned()
