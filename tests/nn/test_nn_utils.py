"""Initial values, clipping, parametrisations, pruning, fusion's neighbours, and attention with masks in blocks."""

import math

import pytest

import flambeau as fl
from flambeau import nn
from flambeau.nn import init
from flambeau.nn.attention import flex_attention as flex
from flambeau.nn.utils import parametrizations, parametrize, prune


def test_initial_values_have_the_variance_they_promise():
    fl.manual_seed(0)
    x = fl.empty(300, 200)
    assert init.kaiming_uniform_(x, nonlinearity="relu").var().item() == pytest.approx(2 / 200, rel=0.05)
    assert init.kaiming_normal_(x, mode="fan_out").var().item() == pytest.approx(2 / 300, rel=0.05)
    assert init.xavier_uniform_(x).var().item() == pytest.approx(2 / 500, rel=0.05)
    assert init.trunc_normal_(x, std=2.0, a=-1.0, b=1.0).abs().max().item() <= 1
    q = init.orthogonal_(fl.empty(4, 6))
    assert fl.allclose(q @ q.T, fl.eye(4), atol=1e-5)
    assert init.eye_(fl.empty(2, 3)).tolist() == [[1, 0, 0], [0, 1, 0]]
    assert (init.sparse_(fl.empty(10, 3), 0.4) == 0).sum(0).tolist() == [4, 4, 4]
    assert init.calculate_gain("leaky_relu", 0.2) == pytest.approx(math.sqrt(2 / 1.04))


def test_clipping():
    x = fl.zeros(2, requires_grad=True)
    x.grad = fl.tensor([3.0, 4.0])
    assert nn.utils.clip_grad_norm_([x], 1.0).item() == pytest.approx(5.0)
    assert fl.allclose(x.grad, fl.tensor([0.6, 0.8]), atol=1e-4)
    nn.utils.clip_grad_value_(x, 0.7)
    assert fl.allclose(x.grad, fl.tensor([0.6, 0.7]), atol=1e-4)
    assert nn.utils.get_total_norm([fl.ones(4)], 1.0).item() == 4
    x.grad = fl.tensor([float("inf"), 0.0])
    with pytest.raises(RuntimeError, match="finite"):
        nn.utils.clip_grad_norm_([x], 1.0, error_if_nonfinite=True)


@pytest.mark.parametrize("how", ["matrix_exp", "cayley", "householder"])
def test_orthogonal_parametrisation_stays_orthogonal_through_training(how):
    layer = parametrizations.orthogonal(nn.Linear(5, 3), orthogonal_map=how)
    layer(fl.randn(2, 5)).square().sum().backward()
    with fl.no_grad():
        original = layer.parametrizations.weight.original
        original -= 0.1 * original.grad
    assert fl.allclose(layer.weight @ layer.weight.T, fl.eye(3), atol=1e-5)


def test_parametrisations_are_chained_cached_and_removed():
    class Double(nn.Module):
        def forward(self, x):
            return 2 * x

        def right_inverse(self, x):
            return x / 2

    layer = nn.Linear(2, 2)
    before = layer.weight.detach().clone()
    parametrize.register_parametrization(layer, "weight", Double())
    assert parametrize.is_parametrized(layer, "weight") and fl.allclose(layer.weight, before)
    layer.weight = fl.ones(2, 2)
    assert layer.parametrizations.weight.original.tolist() == [[0.5, 0.5], [0.5, 0.5]]
    with parametrize.cached():
        assert layer.weight is layer.weight
    parametrize.remove_parametrizations(layer, "weight")
    assert type(layer) is nn.Linear and layer.weight.tolist() == [[1, 1], [1, 1]]


def test_spectral_norm_bounds_the_largest_singular_value():
    layer = parametrizations.spectral_norm(nn.Linear(6, 4), n_power_iterations=30)
    assert fl.linalg.matrix_norm(layer.weight, 2).item() == pytest.approx(1.0, abs=1e-3)


def test_pruning_adds_up_and_becomes_permanent():
    layer = nn.Linear(2, 2, bias=False)
    with fl.no_grad():
        layer.weight.copy_(fl.tensor([[1.0, -2.0], [3.0, -4.0]]))
    prune.l1_unstructured(layer, "weight", 1)
    prune.l1_unstructured(layer, "weight", 1)
    assert layer.weight.tolist() == [[0, 0], [3, -4]]
    prune.remove(layer, "weight")
    assert not prune.is_pruned(layer) and isinstance(layer.weight, nn.Parameter)
    assert layer.weight.tolist() == [[0, 0], [3, -4]]


def test_block_masks_and_flexible_attention():
    def causal(b, h, q, k):
        return q >= k

    mask = flex.create_block_mask(causal, None, None, 6, 6, BLOCK_SIZE=2)
    assert mask.to_dense()[0, 0].tolist() == [[1, 0, 0], [1, 1, 0], [1, 1, 1]]
    assert mask.kv_num_blocks.tolist() == [[[1, 1, 1]]] and mask.full_kv_num_blocks.tolist() == [[[0, 1, 2]]]
    q, k, v = (fl.randn(2, 3, 6, 4, requires_grad=True) for _ in range(3))
    wanted = nn.functional.scaled_dot_product_attention(q, k, v, is_causal=True)
    assert fl.allclose(flex.flex_attention(q, k, v, block_mask=mask), wanted, atol=1e-5)
    biased = flex.flex_attention(q, k, v, score_mod=lambda s, b, h, i, j: s - (i - j).abs())
    distance = (fl.arange(6).unsqueeze(1) - fl.arange(6)).abs().float()
    wanted = nn.functional.scaled_dot_product_attention(q, k, v, attn_mask=-distance)
    assert fl.allclose(biased, wanted, atol=1e-5)
    biased.sum().backward()
    assert q.grad is not None


def test_a_query_that_sees_nothing_gives_zero():
    mask = flex.create_block_mask(lambda b, h, q, k: (q > 0) & (k >= 0), None, None, 2, 2)
    q = fl.ones(1, 1, 2, 2)
    out, lse = flex.flex_attention(q, q, q, block_mask=mask, return_lse=True)
    assert out[0, 0].tolist() == [[0, 0], [1, 1]] and lse[0, 0, 0].item() == -math.inf
