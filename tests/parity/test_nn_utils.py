"""Parametrisations, pruning, causal biases and block masks beside PyTorch's, from the same weights."""

import warnings

import numpy as np
import pytest

torch = pytest.importorskip("torch")

import torch.nn.attention.bias as their_bias  # noqa: E402
import torch.nn.attention.flex_attention as their_flex  # noqa: E402
import torch.nn.utils.parametrizations as their_parametrizations  # noqa: E402
import torch.nn.utils.prune as their_prune  # noqa: E402

import flambeau as fl  # noqa: E402
from flambeau.nn.attention import bias  # noqa: E402
from flambeau.nn.attention import flex_attention as flex  # noqa: E402
from flambeau.nn.utils import parametrizations, prune  # noqa: E402

warnings.filterwarnings("ignore")


def same(ours, theirs, tolerance=1e-5):
    np.testing.assert_allclose(ours.detach().numpy(), theirs.detach().numpy(), atol=tolerance, rtol=tolerance)


def loaded(ours, theirs):
    ours.load_state_dict({key: fl.tensor(value.numpy()) for key, value in theirs.state_dict().items()})
    return ours


@pytest.mark.parametrize("sizes", [(3, 4), (4, 4), (4, 3)], ids=str)
@pytest.mark.parametrize("name", ["weight_norm", "spectral_norm", "orthogonal"])
def test_parametrisation(name, sizes):
    theirs = getattr(their_parametrizations, name)(torch.nn.Linear(*sizes)).eval()
    ours = getattr(parametrizations, name)(fl.nn.Linear(*sizes)).eval()
    assert repr(ours) == repr(theirs)
    assert list(ours.state_dict()) == list(theirs.state_dict())
    loaded(ours, theirs)
    x = np.random.default_rng(0).standard_normal((2, sizes[0])).astype(np.float32)
    got, expected = ours(fl.tensor(x)), theirs(torch.tensor(x))
    same(got, expected)
    got.square().sum().backward(), expected.square().sum().backward()
    for a, b in zip(ours.parameters(), theirs.parameters()):
        same(a.grad, b.grad, 1e-4)


PRUNINGS = {
    "l1": lambda p, m: p.l1_unstructured(m, "weight", 0.4),
    "norm of rows": lambda p, m: p.ln_structured(m, "weight", 0.5, 2, 0),
    "columns, then entries": lambda p, m: p.l1_unstructured(p.ln_structured(m, "weight", 1, 1, 1), "weight", 3),
    "entries, then rows": lambda p, m: p.ln_structured(p.l1_unstructured(m, "weight", 0.2), "weight", 0.5, 2, 0),
    "nothing": lambda p, m: p.identity(m, "weight"),
    "all parameters": lambda p, m: p.global_unstructured([(m, "weight"), (m, "bias")], p.L1Unstructured, amount=0.5),
}


@pytest.mark.parametrize("how", PRUNINGS)
def test_pruning(how):
    theirs = torch.nn.Linear(5, 4)
    ours = loaded(fl.nn.Linear(5, 4), theirs)
    PRUNINGS[how](prune, ours), PRUNINGS[how](their_prune, theirs)
    assert list(ours.state_dict()) == list(theirs.state_dict())
    same(ours.weight, theirs.weight)
    x = np.random.default_rng(0).standard_normal((2, 5)).astype(np.float32)
    ours(fl.tensor(x)).sum().backward(), theirs(torch.tensor(x)).sum().backward()
    same(ours.weight_orig.grad, theirs.weight_orig.grad)
    prune.remove(ours, "weight"), their_prune.remove(theirs, "weight")
    assert list(ours.state_dict()) == list(theirs.state_dict())


@pytest.mark.parametrize("name", ["causal_upper_left", "causal_lower_right"])
def test_causal_bias(name):
    arrays = [np.random.default_rng(n).standard_normal((2, 2, n, 8)).astype(np.float32) for n in (3, 5, 5)]
    got = fl.nn.functional.scaled_dot_product_attention(*map(fl.tensor, arrays), attn_mask=getattr(bias, name)(3, 5))
    want = torch.nn.functional.scaled_dot_product_attention(
        *map(torch.tensor, arrays), attn_mask=getattr(their_bias, name)(3, 5)
    )
    same(got, want)


def causal(b, h, q, k):
    return q >= k


def window(b, h, q, k):
    return (q - k).abs() < 3 + h


@pytest.mark.parametrize(
    "mod, sizes, options",
    [
        (causal, (1, 1, 256, 256), {}),
        (causal, (None, None, 100, 200), {"BLOCK_SIZE": 64}),
        (window, (2, 2, 40, 50), {"BLOCK_SIZE": (16, 32)}),
        (window, (2, 2, 40, 50), {"BLOCK_SIZE": 16, "separate_full_blocks": False}),
    ],
)
def test_block_mask(mod, sizes, options):
    ours = flex.create_block_mask(mod, *sizes, device="cpu", **options)
    theirs = their_flex.create_block_mask(mod, *sizes, device="cpu", **options)
    for name in flex.BlockMask._TENSORS:
        a, b = getattr(ours, name), getattr(theirs, name)
        assert (a is None and b is None) or a.tolist() == b.tolist(), name
    assert ours.shape == theirs.shape and ours.sparsity() == theirs.sparsity()
    assert str(ours) == str(theirs)


@pytest.mark.parametrize("masked", [False, True])
@pytest.mark.parametrize("biased", [False, True])
def test_flex_attention(masked, biased):
    generator = np.random.default_rng(0)
    arrays = [generator.standard_normal((2, h, n, 8)).astype(np.float32) for h, n in ((4, 40), (2, 50), (2, 50))]
    slopes = generator.standard_normal(4).astype(np.float32)
    results = []
    for lib, module in ((fl, flex), (torch, their_flex)):
        table = lib.tensor(slopes)
        mask = module.create_block_mask(window, 2, 4, 40, 50, device="cpu", BLOCK_SIZE=16) if masked else None
        mod = (lambda s, b, h, i, j, table=table: s + (i - j) * table[h]) if biased else None
        results.append(
            module.flex_attention(
                *map(lib.tensor, arrays), score_mod=mod, block_mask=mask, enable_gqa=True, return_lse=True
            )
        )
    for a, b in zip(*results):
        same(a, b, 1e-4)
