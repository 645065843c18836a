"""Attention and transformer modules beside PyTorch's: state, outputs, weights of attention and gradients."""

import numpy as np
import pytest

torch = pytest.importorskip("torch")

import flambeau as fl  # noqa: E402

RNG = np.random.default_rng


def pair(make):
    """The module in both libraries with the same weights."""
    theirs, ours = make(torch.nn), make(fl.nn)
    state = theirs.state_dict()
    assert [(k, tuple(v.shape)) for k, v in ours.state_dict().items()] == [
        (k, tuple(v.shape)) for k, v in state.items()
    ]
    ours.load_state_dict({k: fl.from_numpy(v.numpy().copy()) for k, v in state.items()})
    assert repr(ours) == repr(theirs)
    return ours, theirs


def check(make, inputs, masks=(), call=lambda m, x, k: m(*x, **k), training=True):
    ours, theirs = pair(make)
    ours.train(training), theirs.train(training)
    arrays = [RNG(i).standard_normal(shape).astype(np.float32) for i, shape in enumerate(inputs)]
    results = []
    for library, module in ((torch, theirs), (fl, ours)):
        tensors = [library.from_numpy(a.copy()).requires_grad_() for a in arrays]
        options = {
            name: library.from_numpy(m.copy()) if isinstance(m, np.ndarray) else m for name, m in dict(masks).items()
        }
        outputs = call(module, tensors, options)
        outputs = [o for o in (outputs if isinstance(outputs, tuple) else (outputs,)) if o is not None]
        sum((o * o).sum() for o in outputs).backward()
        grads = [t.grad for t in tensors] + [p.grad for p in module.parameters()]
        results.append([*(o.detach() for o in outputs), *grads])
    assert len(results[0]) == len(results[1])
    for want, got in zip(*results):
        np.testing.assert_allclose(got.numpy(), want.numpy(), rtol=1e-3, atol=2e-4)


CAUSAL = np.triu(np.ones((5, 5), bool), 1)
PADDING = np.array([[False] * 7, [False] * 5 + [True] * 2])
QKV = [(5, 2, 8), (7, 2, 8), (7, 2, 8)]


@pytest.mark.parametrize(
    "options, inputs, masks",
    [
        ({}, QKV, {}),
        ({"bias": False}, QKV, {"need_weights": False}),
        ({"batch_first": True}, [(2, 5, 8), (2, 7, 8), (2, 7, 8)], {"key_padding_mask": PADDING}),
        ({"kdim": 6, "vdim": 4}, [(5, 2, 8), (7, 2, 6), (7, 2, 4)], {"average_attn_weights": False}),
        ({"add_bias_kv": True, "add_zero_attn": True}, QKV, {"key_padding_mask": PADDING}),
        ({}, [(5, 8), (7, 8), (7, 8)], {}),
        ({}, [(5, 2, 8)] * 3, {"attn_mask": CAUSAL}),
        ({}, [(5, 2, 8)] * 3, {"attn_mask": CAUSAL, "is_causal": True, "need_weights": False}),
        ({}, QKV, {"attn_mask": RNG(9).standard_normal((8, 5, 7)).astype(np.float32)}),
    ],
)
def test_multihead_attention(options, inputs, masks):
    check(lambda nn: nn.MultiheadAttention(8, 4, **options), inputs, masks)


@pytest.mark.parametrize(
    "options", [{}, {"norm_first": True, "activation": "gelu"}, {"batch_first": True, "bias": False}]
)
@pytest.mark.parametrize("training", [True, False])
def test_encoder(options, training):
    def make(nn):
        layer = nn.TransformerEncoderLayer(8, 2, 16, dropout=0.0, **options)
        return nn.TransformerEncoder(layer, 2, nn.LayerNorm(8), enable_nested_tensor=False)

    shape = (2, 5, 8) if options.get("batch_first") else (5, 2, 8)
    check(make, [shape], {}, training=training)
    check(make, [shape], {"mask": CAUSAL}, training=training)
    check(make, [shape], {"src_key_padding_mask": PADDING[:, 2:]}, training=training)


def test_decoder():
    def make(nn):
        return nn.TransformerDecoder(nn.TransformerDecoderLayer(8, 2, 16, dropout=0.0), 2)

    check(make, [(5, 2, 8), (7, 2, 8)], {"tgt_mask": CAUSAL, "memory_key_padding_mask": PADDING})


@pytest.mark.parametrize("options", [{}, {"norm_first": True, "batch_first": True, "activation": "gelu"}])
def test_transformer(options):
    shapes = [(2, 7, 8), (2, 5, 8)] if options else [(7, 2, 8), (5, 2, 8)]
    make = lambda nn: nn.Transformer(8, 2, 2, 2, 16, dropout=0.0, **options)  # noqa: E731
    check(make, shapes, {"tgt_mask": CAUSAL, "tgt_is_causal": True})
    want = torch.nn.Transformer.generate_square_subsequent_mask(4)
    assert fl.nn.Transformer.generate_square_subsequent_mask(4).tolist() == want.tolist()


def test_errors():
    for nn in (torch.nn, fl.nn):
        with pytest.raises(AssertionError):
            nn.MultiheadAttention(8, 3)
        with pytest.raises(ValueError):
            nn.MultiheadAttention(0, 3)
        with pytest.raises(RuntimeError):
            nn.TransformerEncoderLayer(8, 2, activation="swish")
        model = nn.Transformer(8, 2, 1, 1, 16)
        library = torch if nn is torch.nn else fl
        with pytest.raises(RuntimeError):
            model(library.rand(3, 2, 8), library.rand(3, 4, 8))
        with pytest.raises(RuntimeError):
            model(library.rand(3, 2, 7), library.rand(3, 2, 8))


@pytest.mark.parametrize("grad", [False, True])
@pytest.mark.parametrize("right", [False, True])
def test_padding_comes_out_of_inference_as_zero(grad, right):
    results = []
    source = np.random.RandomState(0).standard_normal((2, 4, 8)).astype(np.float32)
    padding = np.array([[False] * 4, [False, False, True, True] if right else [True, False, False, False]])
    states = None
    for lib in (torch, fl):
        layer = lib.nn.TransformerEncoderLayer(8, 2, 16, batch_first=True)
        encoder = lib.nn.TransformerEncoder(layer, 2).eval()
        if states is None:
            states = {k: v.detach().numpy() for k, v in encoder.state_dict().items()}
        encoder.load_state_dict({k: lib.tensor(v) for k, v in states.items()})
        with lib.set_grad_enabled(grad):
            made = encoder(lib.tensor(source), src_key_padding_mask=lib.tensor(padding))
        results.append(made.detach().numpy())
    np.testing.assert_allclose(results[1], results[0], rtol=1e-4, atol=1e-5)
