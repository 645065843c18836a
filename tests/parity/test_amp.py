"""Mixed precision beside PyTorch's: the dtype every operator gives under autocast, and a training that follows."""

import re
import warnings

import numpy as np
import pytest

import flambeau

torch = pytest.importorskip("torch")


def tensors(library, kind="float32"):
    rng = np.random.default_rng(0)
    dtype = getattr(library, kind)

    def t(*shape):
        return library.tensor(rng.standard_normal(shape).astype("float32")).to(dtype)

    return t


CALLS = {
    "matmul": lambda l, F, t: t(3, 4) @ t(4, 5),
    "mm": lambda l, F, t: l.mm(t(3, 4), t(4, 5)),
    "bmm": lambda l, F, t: l.bmm(t(2, 3, 4), t(2, 4, 5)),
    "mv": lambda l, F, t: l.mv(t(3, 4), t(4)),
    "dot": lambda l, F, t: l.dot(t(4), t(4)),
    "addmm": lambda l, F, t: l.addmm(t(3, 5), t(3, 4), t(4, 5)),
    "baddbmm": lambda l, F, t: l.baddbmm(t(2, 3, 5), t(2, 3, 4), t(2, 4, 5)),
    "addbmm": lambda l, F, t: l.addbmm(t(3, 5), t(2, 3, 4), t(2, 4, 5)),
    "linear": lambda l, F, t: F.linear(t(3, 4), t(5, 4), t(5)),
    "einsum": lambda l, F, t: l.einsum("ij,jk->ik", t(3, 4), t(4, 5)),
    "tensordot": lambda l, F, t: l.tensordot(t(3, 4), t(4, 5), 1),
    "vecdot": lambda l, F, t: l.linalg.vecdot(t(3, 4), t(3, 4)),
    "conv1d": lambda l, F, t: F.conv1d(t(2, 3, 8), t(4, 3, 3), t(4)),
    "conv2d": lambda l, F, t: F.conv2d(t(2, 3, 8, 8), t(4, 3, 3, 3), padding="same"),
    "conv_transpose2d": lambda l, F, t: F.conv_transpose2d(t(2, 3, 8, 8), t(3, 4, 3, 3)),
    "prelu": lambda l, F, t: F.prelu(t(3, 4), t(1)),
    "attention": lambda l, F, t: F.scaled_dot_product_attention(t(1, 2, 3, 4), t(1, 2, 3, 4), t(1, 2, 3, 4)),
    "add": lambda l, F, t: t(3) + t(3),
    "relu": lambda l, F, t: F.relu(t(3)),
    "gelu": lambda l, F, t: F.gelu(t(3)),
    "exp": lambda l, F, t: t(3).exp(),
    "softmax": lambda l, F, t: F.softmax(t(3, 4), -1),
    "log_softmax": lambda l, F, t: F.log_softmax(t(3, 4), -1),
    "layer_norm": lambda l, F, t: F.layer_norm(t(3, 4), (4,), t(4), t(4)),
    "batch_norm": lambda l, F, t: F.batch_norm(t(3, 4), None, None, training=True),
    "group_norm": lambda l, F, t: F.group_norm(t(3, 4), 2),
    "sum": lambda l, F, t: t(3).sum(),
    "mean": lambda l, F, t: t(3).mean(),
    "norm": lambda l, F, t: t(3).norm(),
    "prod": lambda l, F, t: t(3).prod(),
    "prod dim": lambda l, F, t: t(3, 4).prod(1),
    "cumsum": lambda l, F, t: t(3).cumsum(0),
    "quantile": lambda l, F, t: l.quantile(t(5), 0.5),
    "cdist": lambda l, F, t: l.cdist(t(3, 4), t(5, 4)),
    "trace": lambda l, F, t: l.trace(t(3, 3)),
    "max_pool2d": lambda l, F, t: F.max_pool2d(t(1, 1, 4, 4), 2),
    "max_pool3d": lambda l, F, t: F.max_pool3d(t(1, 1, 4, 4, 4), 2),
    "avg_pool2d": lambda l, F, t: F.avg_pool2d(t(1, 1, 4, 4), 2),
    "avg_pool3d": lambda l, F, t: F.avg_pool3d(t(1, 1, 4, 4, 4), 2),
    "adaptive_avg_pool3d": lambda l, F, t: F.adaptive_avg_pool3d(t(1, 1, 4, 4, 4), 2),
    "adaptive_max_pool3d": lambda l, F, t: F.adaptive_max_pool3d(t(1, 1, 4, 4, 4), 2),
    "grid_sample": lambda l, F, t: F.grid_sample(t(1, 1, 4, 4), t(1, 2, 2, 2), align_corners=False),
    "reflect pad": lambda l, F, t: F.pad(t(1, 2, 4, 4), (1, 1, 1, 1), mode="reflect"),
    "replicate pad": lambda l, F, t: F.pad(t(1, 2, 4, 4), (1, 1, 1, 1), mode="replicate"),
    "zero pad": lambda l, F, t: F.pad(t(1, 2, 4, 4), (1, 1, 1, 1)),
    "interpolate": lambda l, F, t: F.interpolate(t(1, 2, 4, 4), scale_factor=2),
    "mse": lambda l, F, t: F.mse_loss(t(3), t(3)),
    "l1": lambda l, F, t: F.l1_loss(t(3), t(3)),
    "smooth l1": lambda l, F, t: F.smooth_l1_loss(t(3), t(3)),
    "huber": lambda l, F, t: F.huber_loss(t(3), t(3)),
    "cross entropy": lambda l, F, t: F.cross_entropy(t(3, 4), l.tensor([0, 1, 2])),
    "cross entropy of maps": lambda l, F, t: F.cross_entropy(t(2, 4, 3), l.zeros(2, 3, dtype=l.int64)),
    "nll": lambda l, F, t: F.nll_loss(t(3, 4), l.tensor([0, 1, 2])),
    "bce": lambda l, F, t: F.binary_cross_entropy(t(3).sigmoid(), t(3).sigmoid()),
    "bce with logits": lambda l, F, t: F.binary_cross_entropy_with_logits(t(3), t(3)),
    "kl": lambda l, F, t: F.kl_div(t(3), t(3), reduction="sum"),
    "soft margin": lambda l, F, t: F.soft_margin_loss(t(3), t(3).sign()),
    "hinge embedding": lambda l, F, t: F.hinge_embedding_loss(t(3), t(3).sign()),
    "margin ranking": lambda l, F, t: F.margin_ranking_loss(t(3), t(3), t(3).sign()),
    "cosine embedding": lambda l, F, t: F.cosine_embedding_loss(t(3, 4), t(3, 4), t(3).sign()),
    "triplet": lambda l, F, t: F.triplet_margin_loss(t(3, 4), t(3, 4), t(3, 4)),
    "poisson": lambda l, F, t: F.poisson_nll_loss(t(3), t(3).abs()),
    "multi margin": lambda l, F, t: F.multi_margin_loss(t(3, 4), l.tensor([0, 1, 2])),
    "inverse": lambda l, F, t: l.linalg.inv(t(3, 3) + 4 * l.eye(3)),
    "solve": lambda l, F, t: l.linalg.solve(t(3, 3) + 4 * l.eye(3), t(3)),
    "svdvals": lambda l, F, t: l.linalg.svdvals(t(3, 3)),
    "eigh": lambda l, F, t: l.linalg.eigh(t(3, 3))[0],
    "cat": lambda l, F, t: l.cat([t(3), t(3).to(l.bfloat16)]),
    "cat of low": lambda l, F, t: l.cat([t(3).to(l.bfloat16), t(3).to(l.bfloat16)]),
    "stack": lambda l, F, t: l.stack([t(3), t(3).to(l.bfloat16)]),
    "embedding": lambda l, F, t: F.embedding(l.tensor([0, 1]), t(3, 4)),
    "bilinear": lambda l, F, t: F.bilinear(t(3, 4), t(3, 5), t(2, 4, 5)),
    "fft": lambda l, F, t: l.fft.fft(t(4)),
    "dropout": lambda l, F, t: F.dropout(t(3), 0.5),
    "addmv": lambda l, F, t: l.addmv(t(3), t(3, 4), t(4)),
    "addr": lambda l, F, t: l.addr(t(3, 4), t(3), t(4)),
    "outer": lambda l, F, t: l.outer(t(3), t(4)),
    "inner": lambda l, F, t: l.inner(t(3, 4), t(2, 4)),
    "kron": lambda l, F, t: l.kron(t(2, 2), t(2, 2)),
    "matrix_power": lambda l, F, t: l.linalg.matrix_power(t(3, 3), 3),
    "multi_dot": lambda l, F, t: l.linalg.multi_dot([t(3, 4), t(4, 5), t(5, 2)]),
    "chain_matmul": lambda l, F, t: l.chain_matmul(t(3, 4), t(4, 5), t(5, 2)),
    "matrix_exp": lambda l, F, t: l.matrix_exp(t(3, 3)),
    "cov": lambda l, F, t: l.cov(t(3, 4)),
    "det": lambda l, F, t: l.det(t(3, 3)),
    "matrix_norm": lambda l, F, t: l.linalg.matrix_norm(t(3, 3)),
    "pinv": lambda l, F, t: l.linalg.pinv(t(3, 3)),
    "cosine": lambda l, F, t: F.cosine_similarity(t(3, 4), t(3, 4)),
    "pairwise": lambda l, F, t: F.pairwise_distance(t(3, 4), t(3, 4)),
    "unfold": lambda l, F, t: F.unfold(t(1, 2, 4, 4), 2),
    "vander": lambda l, F, t: l.vander(t(3)),
    "var": lambda l, F, t: t(3, 4).var(),
    "logsumexp": lambda l, F, t: t(3, 4).logsumexp(1),
    "lerp": lambda l, F, t: l.lerp(t(3), t(3), 0.5),
    "where": lambda l, F, t: l.where(t(3) > 0, t(3), t(3)),
    "index_add": lambda l, F, t: t(3).index_add(0, l.tensor([0]), t(1)),
    "scatter_add": lambda l, F, t: t(3).scatter_add(0, l.tensor([0]), t(1)),
    "nll of maps": lambda l, F, t: F.nll_loss(t(2, 4, 3), l.zeros(2, 3, dtype=l.int64)),
    "gaussian nll": lambda l, F, t: F.gaussian_nll_loss(t(3), t(3), t(3).abs() + 1),
    "multilabel soft": lambda l, F, t: F.multilabel_soft_margin_loss(t(3, 4), t(3, 4).sigmoid()),
    "ctc": lambda l, F, t: F.ctc_loss(t(5, 2, 4).log_softmax(2), l.ones(2, 2, dtype=l.int64), l.tensor([5, 5]), l.tensor([2, 2])),
    "stft": lambda l, F, t: l.stft(t(64), 16, window=t(16), return_complex=True),
    "gru": lambda l, F, t: l.nn.GRU(4, 5)(t(3, 2, 4))[0],
    "rnn": lambda l, F, t: l.nn.RNN(4, 5)(t(3, 2, 4))[0],
    "lstm cell": lambda l, F, t: l.nn.LSTMCell(4, 5)(t(3, 4))[0],
    "rnn cell": lambda l, F, t: l.nn.RNNCell(4, 5)(t(3, 4)),
    "gru cell": lambda l, F, t: l.nn.GRUCell(4, 5)(t(3, 4)),
    "lstm": lambda l, F, t: l.nn.LSTM(4, 5)(t(3, 2, 4))[0],
    "multi head": lambda l, F, t: l.nn.MultiheadAttention(4, 2)(t(3, 2, 4), t(3, 2, 4), t(3, 2, 4))[0],
}  # fmt: skip


@pytest.mark.parametrize("kind", ["float32", "bfloat16", "float64"])
@pytest.mark.parametrize("name", CALLS)
def test_dtypes_agree(name, kind):
    found = []
    for library in (torch, flambeau):
        try:
            t = tensors(library, kind)
            with library.autocast("cpu", dtype=library.bfloat16):
                result = CALLS[name](library, library.nn.functional, t)
            found.append((str(result.dtype).rpartition(".")[2], result.detach()))
        except ModuleNotFoundError as error:
            pytest.skip(str(error))
        except (RuntimeError, NotImplementedError) as error:
            found.append(error)
    theirs, ours = found
    if isinstance(theirs, Exception):
        return  # we may be able to do more
    assert not isinstance(ours, Exception), ours
    if "pad" not in name:  # PyTorch widens padding by reflection and replication, which has no arithmetic
        assert ours[0] == theirs[0]
    if name not in ("dropout", "multi head", "matrix_exp") and not re.search("gru|lstm|rnn", name):
        a, b = (
            x[1].to(lib.complex128 if "complex" in x[0] else lib.float64).numpy()
            for x, lib in ((ours, flambeau), (theirs, torch))
        )
        np.testing.assert_allclose(a, b, rtol=4e-2, atol=4e-2)


def make_transformer(library):
    nn = library.nn

    class Block(nn.Module):
        def __init__(self):
            super().__init__()
            self.norm1, self.norm2 = nn.LayerNorm(32), nn.LayerNorm(32)
            self.qkv, self.out = nn.Linear(32, 96), nn.Linear(32, 32)
            self.up, self.down = nn.Linear(32, 64), nn.Linear(64, 32)

        def forward(self, x):
            n, length, width = x.shape
            q, k, v = (
                y.reshape(n, length, 4, width // 4).transpose(1, 2) for y in self.qkv(self.norm1(x)).chunk(3, -1)
            )
            a = nn.functional.scaled_dot_product_attention(q, k, v, is_causal=True)
            x = x + self.out(a.transpose(1, 2).reshape(n, length, width))
            return x + self.down(nn.functional.gelu(self.up(self.norm2(x))))

    class Model(nn.Module):
        def __init__(self):
            super().__init__()
            self.embed = nn.Embedding(17, 32)
            self.blocks = nn.Sequential(Block(), Block())
            self.head = nn.Linear(32, 17)

        def forward(self, x):
            return self.head(self.blocks(self.embed(x)))

    return Model()


@pytest.mark.parametrize("scaled", [False, True])
def test_training_a_transformer_follows(scaled):
    rng = np.random.default_rng(0)
    tokens = rng.integers(0, 17, (8, 13))
    reference = make_transformer(torch)
    weights = {k: v.detach().numpy().copy() for k, v in reference.state_dict().items()}
    losses = []
    for library in (torch, flambeau):
        model = make_transformer(library)
        model.load_state_dict({k: library.tensor(v) for k, v in weights.items()})
        opt = library.optim.AdamW(model.parameters(), lr=3e-3)
        scaler = library.amp.GradScaler("cpu", enabled=scaled, init_scale=128.0)
        x = library.tensor(tokens)
        path = []
        for _ in range(20):
            opt.zero_grad()
            with library.autocast("cpu", dtype=library.bfloat16):
                logits = model(x[:, :-1])
                loss = library.nn.functional.cross_entropy(logits.reshape(-1, 17), x[:, 1:].reshape(-1))
            assert logits.dtype == library.bfloat16
            assert loss.dtype == library.float32
            scaler.scale(loss).backward()
            scaler.step(opt)
            scaler.update()
            path.append(loss.item())
        assert all(p.grad.dtype == library.float32 for p in model.parameters())
        losses.append(path)
    theirs, ours = losses
    assert ours == pytest.approx(theirs, rel=3e-2)
    assert ours[-1] < 0.7 * ours[0]


def test_scaler_states_agree():
    found = []
    for library in (torch, flambeau):
        p = library.ones(3, requires_grad=True)
        opt = library.optim.SGD([p], lr=0.1)
        scaler = library.amp.GradScaler("cpu", init_scale=8.0, growth_interval=2)
        path = []
        for value in (1.0, 2.0, float("inf"), 1.0, float("nan"), 1.0, 1.0):
            opt.zero_grad()
            scaler.scale((p * value).sum()).backward()
            scaler.step(opt)
            scaler.update()
            path.append((scaler.get_scale(), scaler._get_growth_tracker(), p.detach().tolist()))
        found.append((path, scaler.state_dict()))
    assert found[0] == found[1]


WARNED = [
    lambda l: l.autocast("cuda"), lambda l: l.autocast("cpu", dtype=l.float32), lambda l: l.cuda.amp.autocast(),
    lambda l: l.cpu.amp.autocast(), lambda l: l.cuda.amp.GradScaler(), lambda l: l.amp.GradScaler(),
    lambda l: l.autocast("cpu"), lambda l: l.autocast("cuda", enabled=False), lambda l: l.amp.GradScaler("cpu"),
]  # fmt: skip


@pytest.mark.parametrize("make", WARNED)
def test_warnings_agree(make):
    seen = []
    for library in (torch, flambeau):
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            make(library)
        seen.append([w.category for w in caught])
    assert seen[0] == seen[1]


@pytest.mark.parametrize(
    "make", [lambda l: l.autocast(3), lambda l: l.autocast("nonsense"), lambda l: l.get_autocast_dtype("nonsense")]
)
def test_bad_devices_agree(make):
    seen = []
    for library in (torch, flambeau):
        with pytest.raises(Exception) as error:
            make(library)
        seen.append(type(error.value))
    assert seen[0] is seen[1]
