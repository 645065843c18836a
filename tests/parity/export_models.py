"""Models for exchanging exported programs: each is written once, over either library, with example inputs and dynamic sizes.

`python export_models.py write LIB FOLDER` exports and saves all models, with inputs of another size and the results;
`python export_models.py read LIB FOLDER` loads and runs what is there and prints what differs.
"""

import importlib
import json
import pathlib
import sys
import traceback
from collections import namedtuple

import numpy

MODELS = {}
Pair = namedtuple("Pair", "first second")


def model(**options):
    """Registers a function (lib, nn, F) -> (module, example args, dynamic_shapes, other args)."""

    def register(function):
        MODELS[function.__name__] = (function, options)
        return function

    return register


def random(lib, *shape, seed=0):
    values = numpy.random.default_rng(seed).standard_normal(shape).astype("float32")
    return lib.from_numpy(values)


def module_of(lib, forward, **parts):
    """A module with these parts whose forward is a function of it."""

    class Model(lib.nn.Module):
        def __init__(self):
            super().__init__()
            for name, part in parts.items():
                if isinstance(part, lib.nn.Module):
                    self.add_module(name, part)
                elif isinstance(part, lib.nn.Parameter):
                    self.register_parameter(name, part)
                else:
                    self.register_buffer(name, part)

    Model.forward = forward
    return Model().eval()


@model()
def turned_groups(lib, nn, F):
    """Normalisation over groups of a tensor that is not contiguous, and windows of an image as columns."""

    def forward(self, x):
        columns = F.unfold(x.unsqueeze(1), (2, 3), dilation=(1, 2), padding=(1, 0), stride=(2, 1))
        return self.norm(x.transpose(1, 2)), columns, F.unfold(x[:2], 2)

    batch = lib.export.Dim("batch", min=2, max=64)
    return (
        module_of(lib, forward, norm=nn.GroupNorm(2, 8)),
        (random(lib, 4, 6, 8),),
        ({0: batch},),
        (random(lib, 7, 6, 8),),
    )


@model()
def mlp(lib, nn, F):
    net = nn.Sequential(
        nn.Linear(8, 16), nn.GELU(), nn.LayerNorm(16), nn.Dropout(0.1), nn.Linear(16, 4), nn.Softmax(-1)
    )
    batch = lib.export.Dim("batch", min=2, max=64)
    return net.eval(), (random(lib, 4, 8),), ({0: batch},), (random(lib, 7, 8),)


@model()
def conv_net(lib, nn, F):
    def forward(self, x):
        y = F.max_pool2d(F.relu(self.norm(self.conv(x))), 2)
        y = F.relu6(self.down(y)) + F.hardswish(F.avg_pool2d(self.group(y), 2))
        return self.head(F.adaptive_avg_pool2d(y, 1).flatten(1))

    net = module_of(
        lib, forward, conv=nn.Conv2d(3, 8, 3, padding=1), norm=nn.BatchNorm2d(8), down=nn.Conv2d(8, 8, 3, 2, 1),
        group=nn.GroupNorm(2, 8), head=nn.Linear(8, 5),
    )  # fmt: skip
    return net, (random(lib, 2, 3, 16, 16),), ({0: lib.export.Dim.AUTO},), (random(lib, 5, 3, 16, 16),)


@model()
def resizing(lib, nn, F):
    def forward(self, x):
        y = F.interpolate(x, scale_factor=2.0, mode="nearest")
        y = F.interpolate(y, size=(9, 9), mode="bilinear", align_corners=False)
        y = F.interpolate(y, size=(5, 5), mode="bicubic", align_corners=True)
        return F.pad(y, (1, 2, 0, 1)), F.pad(y, (1, 1, 1, 1), mode="reflect"), self.up(y)

    net = module_of(lib, forward, up=nn.ConvTranspose2d(3, 4, 3, stride=2, padding=1, output_padding=1))
    return net, (random(lib, 2, 3, 4, 4),), None, (random(lib, 2, 3, 4, 4, seed=1),)


@model()
def attention(lib, nn, F):
    def forward(self, x, mask):
        b, t, c = x.shape
        q, k, v = (part.view(b, t, 2, c // 2).transpose(1, 2) for part in self.qkv(x).split(c, dim=2))
        scores = (q @ k.transpose(-2, -1) * c**-0.5).masked_fill(mask[:, None, None, :] == 0, float("-inf"))
        y = scores.softmax(-1) @ v
        z = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        return (y + z).transpose(1, 2).reshape(b, t, c)

    net = module_of(lib, forward, qkv=nn.Linear(8, 24))
    batch, time = lib.export.Dim("batch"), lib.export.Dim("time", min=2, max=32)
    shapes = {"x": {0: batch, 1: time}, "mask": {0: batch, 1: time}}
    return net, (random(lib, 2, 6, 8), lib.ones(2, 6)), shapes, (random(lib, 3, 9, 8), lib.ones(3, 9))


@model()
def encoder(lib, nn, F):
    layer = nn.TransformerEncoderLayer(16, 2, 32, batch_first=True, dropout=0.0)
    net = module_of(lib, lambda self, x: self.layer(x), layer=layer)
    for p in net.parameters():
        p.requires_grad_(True)
    return net.train(), (random(lib, 2, 5, 16),), None, (random(lib, 2, 5, 16, seed=3),)


@model()
def lstm(lib, nn, F):
    def forward(self, x):
        out, (h, c) = self.rnn(self.embed(x))
        return self.head(out[:, -1]), h, c

    net = module_of(
        lib, forward, embed=nn.Embedding(11, 6), rnn=nn.LSTM(6, 8, 2, batch_first=True), head=nn.Linear(8, 3)
    )
    tokens = lib.tensor([[1, 2, 3, 4], [5, 6, 7, 8]])
    return net, (tokens,), None, (tokens.flip(1),)


@model()
def gru(lib, nn, F):
    net = module_of(lib, lambda self, x: self.rnn(x)[0], rnn=nn.GRU(5, 4, bidirectional=True))
    return net, (random(lib, 6, 2, 5),), None, (random(lib, 6, 2, 5, seed=2),)


@model()
def buffer_mutation(lib, nn, F):
    def forward(self, x):
        self.count.add_(1)
        self.total.copy_(self.total * 0.5 + x.mean(0))
        return x * self.count + self.total

    net = module_of(lib, forward, count=lib.zeros(1), total=lib.zeros(4))
    return net, (random(lib, 3, 4),), ({0: lib.export.Dim("n", min=2)},), (random(lib, 6, 4),)


@model()
def input_mutation(lib, nn, F):
    net = module_of(lib, lambda self, x, y: (x.add_(y), x.mul(2))[1])
    return net, (random(lib, 3), random(lib, 3, seed=1)), None, (random(lib, 3, seed=2), random(lib, 3, seed=4))


@model()
def constants(lib, nn, F):
    table = lib.tensor([1.0, 2.0, 3.0])

    def forward(self, x):
        return x * lib.tensor([0.5, 1.5, 2.5]) + table + lib.arange(3) + lib.zeros(3) + lib.full((3,), 2.0)

    return module_of(lib, forward), (random(lib, 2, 3),), None, (random(lib, 2, 3, seed=1),)


@model()
def pytrees(lib, nn, F):
    def forward(self, batch, pair, *, scale=2.0, flag=True, note="x", nothing=None):
        x = batch["x"] + batch["deep"][0] * scale
        y = pair[0] - pair[1][0]
        return {"sum": x + y, "both": (x, [y if flag else x]), "scale": scale, "none": None}

    args = ({"x": random(lib, 3), "deep": [random(lib, 3, seed=1)]}, (random(lib, 3, seed=2), [random(lib, 3, seed=3)]))
    return module_of(lib, forward), args, None, args


@model()
def derived_sizes(lib, nn, F):
    def forward(self, x, y):
        return x + y[1:], x.shape[0] * 2 + 1, x.reshape(-1), lib.cat([x, y]).sum(0)

    d = lib.export.Dim("d", min=2, max=20)
    shapes = ({0: d}, {0: d + 1})
    return (
        module_of(lib, forward),
        (random(lib, 4, 3), random(lib, 5, 3)),
        shapes,
        (random(lib, 7, 3), random(lib, 8, 3)),
    )


@model()
def many_operators(lib, nn, F):
    def forward(self, x, i):
        a = lib.where(x > 0, x, x * 0.1).clamp(-1.0, 1.0) ** 2
        b = (2 - x) / (1 + x.abs()) + 1 / (x.exp() + 1)
        c = x.sum(1, keepdim=True) - x.mean() + x.amax(1, True) + x.std(1, keepdim=True) + x.norm(dim=1, keepdim=True)
        d = lib.stack([a, b]).permute(1, 0, 2).flatten(1)[:, ::2].chunk(2, 1)[0]
        values, index = x.topk(2, 1)
        e = x.gather(1, i) + x.index_select(0, lib.tensor([1, 0, 2]))[:, :2] + values + x[:, [0, 1]] + x[i[:, 0]][:, :2]
        f = lib.einsum("ij,kj->ik", x, x).tril().argmax(1), x.to(lib.float64).cumsum(0), index.float()
        g = (x == 0) | (x >= 1) & ~(x < -1), x.sort(1)[0], x.unsqueeze(1).expand(3, 2, 4).squeeze(1), x.t().roll(1, 0)
        h = F.one_hot(i, 5).float().sum(-1), x.masked_fill(x > 0, 1.0), lib.outer(x[0], x[1]), x.repeat(1, 2).flip(1)
        k = x.var(dim=0, unbiased=False), x.prod(1), (x > 0).any(1), (x > 0).all(), x.logsumexp(1), x.unbind(0)[1]
        return (
            a,
            b,
            c,
            d,
            e,
            f,
            g,
            h,
            k,
            x.floor() // 2,
            x % 3,
            x.round(),
            -x,
            x.rsqrt().nan_to_num(0.0),
            x.split([1, 3], 1),
        )

    return module_of(lib, forward), (random(lib, 3, 4), lib.tensor([[0, 1], [2, 1], [1, 0]])), None, (
        random(lib, 3, 4, seed=5), lib.tensor([[1, 0], [2, 2], [0, 1]]),
    )  # fmt: skip


@model()
def losses(lib, nn, F):
    def forward(self, x, y, t):
        cross = F.cross_entropy(x, t) + F.cross_entropy(x, t, label_smoothing=0.1, reduction="sum")
        rest = F.mse_loss(x, y) + F.l1_loss(x, y) + F.smooth_l1_loss(x, y, beta=0.5) + F.huber_loss(x, y)
        more = F.binary_cross_entropy_with_logits(x, y.sigmoid()) + F.kl_div(
            x.log_softmax(1), y.softmax(1), reduction="sum"
        )
        return cross + rest + more + F.nll_loss(x.log_softmax(1), t) + F.cosine_similarity(x, y).sum()

    t = lib.tensor([1, 0, 2])
    args = random(lib, 3, 4), random(lib, 3, 4, seed=1), t
    return module_of(lib, forward), args, None, (args[1], args[0], t)


@model()
def activations(lib, nn, F):
    def forward(self, x):
        made = [
            F.elu(x),
            F.selu(x),
            F.celu(x),
            F.silu(x),
            F.mish(x),
            F.softplus(x),
            F.hardsigmoid(x),
            F.leaky_relu(x, 0.2),
        ]
        made += [F.logsigmoid(x), F.softshrink(x), F.hardshrink(x), F.tanhshrink(x), F.softsign(x), F.glu(x, 1)]
        made += [F.gelu(x, approximate="tanh"), F.hardtanh(x, -0.5, 0.5), F.threshold(x, 0.1, 20.0), self.prelu(x)]
        made += [
            F.normalize(x, dim=1),
            F.log_softmax(x, 1),
            F.layer_norm(x, (4,)),
            F.rms_norm(x, (4,)),
            lib.sigmoid(x).tanh(),
        ]
        return made

    return module_of(lib, forward, prelu=nn.PReLU()), (random(lib, 3, 4),), None, (random(lib, 3, 4, seed=5),)


@model()
def no_grad_region(lib, nn, F):
    def forward(self, x):
        with lib.no_grad():
            y = self.lin(x) * 2
        return self.lin(x) + y

    return module_of(lib, forward, lin=nn.Linear(4, 4)), (random(lib, 2, 4),), None, (random(lib, 2, 4, seed=1),)


@model()
def branches(lib, nn, F):
    def forward(self, x, y):
        return lib.cond(x.sum() > 0, lambda x, y: (self.lin(x) + y,), lambda x, y: (x - y,), (x, y))

    net = module_of(lib, forward, lin=nn.Linear(4, 4))
    return (
        net,
        (random(lib, 2, 4), random(lib, 2, 4, seed=1)),
        None,
        (-random(lib, 2, 4).abs(), random(lib, 2, 4, seed=2)),
    )


@model()
def loops(lib, nn, F):
    def forward(self, x, n):
        def go(i, y):
            return i < n

        def step(i, y):
            return i + 1, lib.tanh(self.lin(y)) + 1

        count, y = lib._higher_order_ops.while_loop(go, step, (lib.zeros((), dtype=lib.int64), x))
        return count, y

    net = module_of(lib, forward, lin=nn.Linear(4, 4))
    return net, (random(lib, 2, 4), lib.tensor(3)), None, (random(lib, 2, 4, seed=1), lib.tensor(5))


@model()
def mapped(lib, nn, F):
    def forward(self, xs, y):
        return lib._higher_order_ops.map(lambda x, y: x * y + self.lin(x), xs, y)

    net = module_of(lib, forward, lin=nn.Linear(4, 4))
    return net, (random(lib, 3, 4), random(lib, 4)), None, (random(lib, 3, 4, seed=1), random(lib, 4, seed=2))


@model()
def tied_and_views(lib, nn, F):
    base = nn.Parameter(random(lib, 4, 4))

    def forward(self, x):
        return x @ self.first + x @ self.second.t()

    net = module_of(lib, forward, first=base)
    net.register_parameter("second", base)
    return net, (random(lib, 2, 4),), None, (random(lib, 2, 4, seed=1),)


@model()
def dtypes(lib, nn, F):
    def forward(self, x):
        y = x.to(lib.bfloat16) * 2
        return (
            y.float(),
            x.long(),
            x.to(lib.int32) + 1,
            x.double(),
            x > 0,
            x.half().float(),
            x.bool(),
            lib.zeros_like(x),
        )

    return module_of(lib, forward), (random(lib, 5),), None, (random(lib, 5, seed=1),)


@model()
def mixed_precision(lib, nn, F):
    def forward(self, x):
        with lib.autocast("cpu", dtype=lib.bfloat16):
            y = self.layer(x)
            with lib.autocast("cpu", enabled=False):
                z = self.layer(x)
        return y.float() + z

    return module_of(lib, forward, layer=nn.Linear(3, 3)), (random(lib, 2, 3),), None, (random(lib, 2, 3, seed=1),)


@model(unflatten=True)
def gradients_off_and_on(lib, nn, F):
    def forward(self, x):
        with lib.no_grad():
            y = self.layer(x)
            with lib.enable_grad():
                z = self.layer(x)
        return y * z

    return module_of(lib, forward, layer=nn.Linear(3, 3)), (random(lib, 2, 3),), None, (random(lib, 2, 3, seed=1),)


@model(unflatten=True)
def repeated_modules(lib, nn, F):
    inner = nn.Sequential(nn.Linear(3, 3), nn.ReLU())
    net = module_of(lib, lambda self, x: self.inner(x) + self.inner(x + 1), inner=inner)
    return net, (random(lib, 2, 3),), None, (random(lib, 2, 3, seed=1),)


@model()
def an_integer_that_varies(lib, nn, F):
    net = module_of(lib, lambda self, x, n: x[:n] * n)
    return net, (random(lib, 8, 3), 4), (None, lib.export.Dim.DYNAMIC), (random(lib, 8, 3), 6)


@model()
def a_cache_written_by_views(lib, nn, F):
    def forward(self, x, position):
        self.keys[:, position] = x
        self.keys[0].mul_(2)
        return self.keys.sum(0) + self.offset

    net = module_of(lib, forward, keys=lib.zeros(2, 5, 3))
    net.offset = lib.ones(3)
    return net, (random(lib, 2, 1, 3), lib.tensor([1])), None, (random(lib, 2, 1, 3, seed=1), lib.tensor([3]))


# ---------------------------------------------------------------------------------------------- across processes


def arrays(lib, value):
    """Results as NumPy arrays."""
    leaves = importlib.import_module(f"{lib.__name__}.utils._pytree").tree_leaves(value)
    return [x.detach().numpy() if isinstance(x, lib.Tensor) else x for x in leaves]


def inputs_of(lib, value):
    tree = importlib.import_module(f"{lib.__name__}.utils._pytree")
    return tree.tree_map(lambda x: x.detach().clone() if isinstance(x, lib.Tensor) else x, value)


def written(lib, folder, names):
    """Saves each model with inputs and what it makes of them."""
    problems = {}
    for name in names:
        build, _ = MODELS[name]
        try:
            lib.manual_seed(0)
            net, args, shapes, other = build(lib, lib.nn, lib.nn.functional)
            program = lib.export.export(net, args, dynamic_shapes=shapes)
            lib.export.save(program, folder / f"{name}.pt2")
            core = program.run_decompositions()
            lib.export.save(core, folder / f"{name}_core.pt2")
            lib.save((inputs_of(lib, other),), folder / f"{name}.inputs")
            wanted = arrays(lib, net(*inputs_of(lib, other)))
            numpy.save(folder / f"{name}.npy", numpy.array([*wanted, None], dtype=object), allow_pickle=True)
        except Exception:
            problems[name] = traceback.format_exc(limit=-6)
    return problems


def read(lib, folder, names):
    """Runs what another process saved."""
    problems = {}
    for name in names:
        for kind in ("", "_core"):
            path = folder / f"{name}{kind}.pt2"
            if not (folder / f"{name}.npy").exists():
                continue
            try:
                (args,) = lib.load(folder / f"{name}.inputs")
                program = lib.export.load(path)
                found = arrays(lib, program.module()(*inputs_of(lib, args)))
                if MODELS[name][1].get("unflatten"):
                    found = arrays(lib, lib.export.unflatten(program)(*args))
                wanted = list(numpy.load(folder / f"{name}.npy", allow_pickle=True))[:-1]
                if len(found) != len(wanted):
                    raise AssertionError(f"expected {len(wanted)} results, got {len(found)}")
                for i, (a, b) in enumerate(zip(found, wanted)):
                    if isinstance(b, numpy.ndarray):
                        if a.dtype != b.dtype:
                            raise AssertionError(f"result {i}: {a.dtype} and {b.dtype}")
                        numpy.testing.assert_allclose(a, b, rtol=1e-4, atol=1e-5, err_msg=f"result {i}")
                    elif a != b:
                        raise AssertionError(f"result {i}: {a} and {b}")
            except Exception:
                problems[name + kind] = traceback.format_exc(limit=-6)
    return problems


def main():
    action, library, folder, *names = sys.argv[1:]
    lib = importlib.import_module(library)
    importlib.import_module(f"{library}.export")
    names = names or list(MODELS)
    problems = (written if action == "write" else read)(lib, pathlib.Path(folder), names)
    print(json.dumps(problems))


if __name__ == "__main__":
    main()
