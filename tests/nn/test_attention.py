"""Attention and transformers by what any correct one does; the values are compared with PyTorch in tests/parity."""

import copy

import numpy as np
import pytest

import flambeau as fl
from flambeau import nn


def test_attention_is_the_formula():
    fl.manual_seed(0)
    layer = nn.MultiheadAttention(6, 2, batch_first=True)
    x = fl.randn(3, 4, 6)
    out, weights = layer(x, x, x, average_attn_weights=False)
    q, k, v = (x @ w.t() for w in layer.in_proj_weight.chunk(3))
    heads = [t.view(3, 4, 2, 3).transpose(1, 2) for t in (q, k, v)]
    wanted = (heads[0] @ heads[1].mT / 3**0.5).softmax(-1)
    mixed = (wanted @ heads[2]).transpose(1, 2).reshape(3, 4, 6) @ layer.out_proj.weight.t()
    assert fl.allclose(weights, wanted, atol=1e-6) and fl.allclose(out, mixed, atol=1e-6)


def test_masks_hide():
    fl.manual_seed(0)
    layer = nn.TransformerEncoderLayer(8, 2, 16, dropout=0.0, batch_first=True).eval()
    encoder = nn.TransformerEncoder(layer, 2)
    x = fl.randn(2, 5, 8)
    mask = nn.Transformer.generate_square_subsequent_mask(5)
    changed = x.clone()
    changed[:, 3:] = 7.0
    before, after = encoder(x, mask=mask), encoder(changed, mask=mask)
    assert fl.allclose(before[:, :3], after[:, :3], atol=1e-6) and not fl.allclose(before[:, 3:], after[:, 3:])
    hidden = fl.tensor([[False, False, False, True, True]] * 2)
    padded = encoder(changed, src_key_padding_mask=hidden)
    assert fl.allclose(padded[:, :3], encoder(x[:, :3]), atol=1e-5)


def test_stacks_are_copies():
    layer = nn.TransformerDecoderLayer(8, 2, 16)
    stack = nn.TransformerDecoder(layer, 3)
    assert len({id(p) for p in stack.parameters()}) == 3 * len(list(layer.parameters()))
    assert len(copy.deepcopy(stack).state_dict()) == len(stack.state_dict())


def test_a_transformer_learns_to_copy():
    fl.manual_seed(1)
    model = nn.Transformer(16, 2, 1, 1, 32, dropout=0.0, batch_first=True)
    embed, head = nn.Embedding(7, 16), nn.Linear(16, 7)
    parameters = [p for m in (model, embed, head) for p in m.parameters()]
    optimizer = fl.optim.Adam(parameters, lr=3e-3)
    tokens = fl.randint(0, 7, (16, 5))
    losses = []
    for _ in range(30):
        mask = model.generate_square_subsequent_mask(5)
        out = head(model(embed(tokens), embed(tokens.roll(1, 1)), tgt_mask=mask, tgt_is_causal=True))
        loss = nn.functional.cross_entropy(out.reshape(-1, 7), tokens.reshape(-1))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    assert losses[-1] < 0.7 * losses[0]


def test_choice_of_implementations():
    from flambeau.nn.attention import SDPBackend, sdpa_kernel

    q = fl.randn(1, 2, 3, 4)
    with sdpa_kernel([SDPBackend.MATH]):
        assert not fl.backends.cuda.flash_sdp_enabled()
        out = nn.functional.scaled_dot_product_attention(q, q, q)
    assert fl.backends.cuda.flash_sdp_enabled() and out.shape == q.shape


def test_parallel_modules_call_theirs():
    from flambeau import distributed as dist

    layer = nn.Linear(3, 2)
    x = fl.randn(4, 3)
    assert fl.equal(nn.DataParallel(layer)(x), layer(x))
    assert list(nn.DataParallel(layer).state_dict()) == ["module.weight", "module.bias"]
    with pytest.raises(ValueError, match="init_process_group"):
        nn.parallel.DistributedDataParallel(layer)
    dist.init_process_group("gloo", rank=0, world_size=1, store=dist.HashStore())
    try:
        wrapped = nn.parallel.DistributedDataParallel(layer)
        with wrapped.no_sync():
            wrapped(x).sum().backward()
        np.testing.assert_allclose(layer.bias.grad.numpy(), 4.0)
    finally:
        dist.destroy_process_group()


def test_errors():
    with pytest.raises(AssertionError):
        nn.MultiheadAttention(8, 3)
    with pytest.raises(RuntimeError, match="activation"):
        nn.TransformerEncoderLayer(8, 2, activation="swish")
