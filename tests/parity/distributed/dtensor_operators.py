"""Operators on distributed tensors, forward and backward, for each way to divide their inputs."""
# ranks: 4

import itertools

import torch
import torch.nn.functional as F
from cases import case, filled, main
from meshes import grid, line
from torch import nn
from torch.distributed.tensor import DTensor, Partial, Replicate, Shard, distribute_tensor


def values(*shape):
    return torch.sin(torch.arange(float(torch.Size(shape).numel())) * 0.9 + 0.3).view(*shape)


def tried(function, *arguments):
    try:
        return function(*arguments)
    except Exception as error:
        return {"refused": type(error).__name__, "message": str(error)[:300]}  # what PyTorch refuses may work here


def whole(value):
    if isinstance(value, DTensor):
        return value.full_tensor()
    if isinstance(value, (list, tuple)):
        return [whole(v) for v in value]
    return value


def ways(tensors, extra=()):
    """All combinations of placements that divide each tensor along one of its first two dimensions, or not at all."""
    choices = [[Replicate(), *(Shard(d) for d in range(min(t.dim(), 2))), *extra] for t in tensors]
    return itertools.product(*choices)


def forward(function, *tensors, extra=()):
    """The whole result for each way to divide the inputs."""

    def one(placements):
        placed = [distribute_tensor(t, line(), [p]) for t, p in zip(tensors, placements)]
        return whole(function(*placed))

    return {str(placements): tried(one, placements) for placements in ways(tensors, extra)}


def both_ways(function, *tensors):
    """The whole result and the whole gradients for each way to divide the inputs."""

    def one(placements):
        leaves = [distribute_tensor(t, line(), [p]).requires_grad_() for t, p in zip(tensors, placements)]
        out = function(*leaves)
        weights = torch.cos(torch.arange(float(out.numel()))).view(out.shape)
        (out * distribute_tensor(weights, line(), [Replicate()])).sum().backward()
        return [whole(out), [leaf.grad.full_tensor() for leaf in leaves]]

    return {str(placements): tried(one, placements) for placements in ways(tensors)}


def placed(function, *tensors):
    """Placements of the result for each way to divide the inputs."""

    def one(placements):
        out = function(*(distribute_tensor(t, line(), [p]) for t, p in zip(tensors, placements)))
        return str(out.placements) if isinstance(out, DTensor) else str(type(out))

    return {str(placements): tried(one, placements) for placements in ways(tensors)}


@case
def unary():
    names = (
        "abs acos asin atan ceil cos cosh digamma erf erfc exp exp2 expm1 floor frac isfinite isinf isnan lgamma log1p neg reciprocal "
        "round rsqrt sigmoid sign signbit sin sinc sinh sqrt square tan tanh trunc logical_not positive rad2deg"
    )
    x = values(8, 4)
    return {name: forward(getattr(torch, name), x) for name in names.split()}


@case
def activations():
    names = (
        "relu relu6 elu selu celu gelu silu mish softplus hardtanh hardswish hardsigmoid leaky_relu logsigmoid softsign tanhshrink "
        "softshrink hardshrink"
    )
    return {name: both_ways(getattr(F, name), values(8, 4)) for name in names.split()}


@case
def binary():
    names = "add sub mul div pow maximum minimum fmod remainder atan2 hypot eq ne lt le gt ge logical_and logical_or copysign"
    a, b = values(8, 4).abs() + 0.5, values(8, 4).cos() + 1.5
    return {name: forward(getattr(torch, name), a, b) for name in names.split()}


@case
def binary_gradients():
    a, b = values(8, 4).abs() + 0.5, values(4).cos() + 1.5
    return {name: both_ways(getattr(torch, name), a, b) for name in "add sub mul div pow maximum".split()}


@case
def ternary():
    a, b, c = values(8, 4), values(8, 4).cos(), values(8, 4).exp()
    return {
        "where": forward(lambda x, y, z: torch.where(x > 0, y, z), a, b, c),
        "addcmul": forward(lambda x, y, z: torch.addcmul(x, y, z, value=0.5), a, b, c),
        "addcdiv": forward(lambda x, y, z: torch.addcdiv(x, y, z, value=0.5), a, b, c),
        "lerp": forward(torch.lerp, a, b, c),
        "clamp": forward(lambda x: x.clamp(-0.5, 0.5), a),
        "masked_fill": forward(lambda x, y: x.masked_fill(y > 0, -1.0), a, b),
        "lerp scalar": forward(lambda x, y: torch.lerp(x, y, 0.3), a, b),
    }


@case
def integers():
    a, b = torch.arange(32).view(8, 4), torch.arange(32).view(8, 4).flip(0) + 1
    names = "bitwise_and bitwise_or bitwise_xor bitwise_left_shift floor_divide remainder".split()
    return {name: forward(getattr(torch, name), a, b.clamp(max=8)) for name in names} | {
        "not": forward(torch.bitwise_not, a),
        "sum": forward(torch.sum, a),
        "any": forward(lambda x: (x > 30).any(), a),
        "all": forward(lambda x: (x >= 0).all(), a),
        "any dim": forward(lambda x: (x > 30).any(1), a),
        "count": forward(lambda x: torch.count_nonzero(x), a),
        "float": forward(lambda x: x.float() / 2, a),
    }


@case
def reductions():
    x = values(8, 4)
    return {
        "sum": forward(torch.sum, x),
        "sum 0": forward(lambda t: t.sum(0), x),
        "sum 1 keep": forward(lambda t: t.sum(1, keepdim=True), x),
        "sum -1": forward(lambda t: t.sum(-1), x),
        "sum both": forward(lambda t: t.sum((0, 1)), x),
        "mean": forward(torch.mean, x),
        "mean 0": forward(lambda t: t.mean(0), x),
        "mean 1": forward(lambda t: t.mean(1), x),
        "prod": forward(torch.prod, x),
        "prod 0": forward(lambda t: t.prod(0), x),
        "max": forward(torch.max, x),
        "min": forward(torch.min, x),
        "max dim": forward(lambda t: t.max(1), x),
        "min dim": forward(lambda t: t.min(0), x),
        "amax": forward(lambda t: t.amax(0), x),
        "amin": forward(lambda t: t.amin(1), x),
        "argmax": forward(lambda t: t.argmax(), x),
        "argmax dim": forward(lambda t: t.argmax(0), x),
        "argmin dim": forward(lambda t: t.argmin(1, keepdim=True), x),
        "std": forward(lambda t: t.std(), x),
        "var": forward(lambda t: t.var(1), x),
        "var 0": forward(lambda t: t.var(0, correction=0), x),
        "var_mean": forward(lambda t: torch.var_mean(t, 1), x),
        "logsumexp": forward(lambda t: t.logsumexp(1), x),
        "norm": forward(lambda t: t.norm(), x),
        "norm 1": forward(lambda t: t.norm(1, dim=0), x),
        "norm inf": forward(lambda t: torch.linalg.vector_norm(t, float("inf")), x),
        "norm 3": forward(lambda t: torch.linalg.vector_norm(t, 3, dim=1), x),
        "cumsum": forward(lambda t: t.cumsum(0), x),
        "cumprod": forward(lambda t: t.cumprod(1), x),
        "median": forward(lambda t: t.median(), x),
        "trace": forward(lambda t: t[:4].trace(), x),
    }


@case
def reduction_placements():
    x = values(8, 4)
    return {
        "sum": placed(torch.sum, x),
        "sum 0": placed(lambda t: t.sum(0), x),
        "sum 1 keep": placed(lambda t: t.sum(1, keepdim=True), x),
        "mean": placed(torch.mean, x),
        "mean 0": placed(lambda t: t.mean(0), x),
        "max": placed(torch.max, x),
        "amax": placed(lambda t: t.amax(0), x),
        "var": placed(lambda t: t.var(1), x),
        "softmax": placed(lambda t: t.softmax(1), x),
        "log_softmax": placed(lambda t: t.log_softmax(0), x),
        "norm": placed(lambda t: torch.linalg.vector_norm(t), x),
        "cumsum": placed(lambda t: t.cumsum(0), x),
        "argmax": placed(lambda t: t.argmax(1), x),
    }


@case
def reduction_gradients():
    x = values(8, 4)
    return {
        "sum": both_ways(lambda t: t.sum(0), x),
        "mean": both_ways(lambda t: t.mean(1), x),
        "var": both_ways(lambda t: t.var(1), x),
        "max": both_ways(lambda t: t.amax(1), x),
        "softmax": both_ways(lambda t: t.softmax(1), x),
        "log_softmax": both_ways(lambda t: t.log_softmax(0), x),
        "logsumexp": both_ways(lambda t: t.logsumexp(0), x),
        "norm": both_ways(lambda t: torch.linalg.vector_norm(t, dim=1), x),
        "cumsum": both_ways(lambda t: t.cumsum(0), x),
        "prod": both_ways(lambda t: t.prod(0), x),
    }


@case
def products():
    a, b, c = values(8, 4), values(4, 8).cos(), values(8)
    return {
        "mm": both_ways(torch.mm, a, b),
        "matmul": both_ways(torch.matmul, values(4, 8, 4), b),
        "mv": both_ways(torch.mv, b, c),
        "dot": forward(torch.dot, c, c),
        "addmm": both_ways(torch.addmm, c, a, b),
        "bmm": both_ways(torch.bmm, values(4, 4, 2), values(4, 2, 4)),
        "baddbmm": forward(torch.baddbmm, values(4, 4, 4), values(4, 4, 2), values(4, 2, 4)),
        "einsum": both_ways(lambda x, y: torch.einsum("bij,jk->bik", x, y), values(4, 8, 4), b),
        "outer": forward(torch.outer, c, c),
        "linear": both_ways(F.linear, values(2, 8, 4), values(8, 4), c),
        "tensordot": forward(lambda x, y: torch.tensordot(x, y, dims=1), a, b),
        "tril": forward(torch.tril, values(4, 4)),
        "triu": both_ways(torch.triu, values(4, 4)),
    }


@case
def product_placements():
    a, b = values(8, 4), values(4, 8).cos()
    return {
        "mm": placed(torch.mm, a, b),
        "linear": placed(F.linear, a, values(8, 4)),
        "t": placed(torch.t, a),
    }


@case
def views():
    x, y = values(8, 4), values(4, 8, 4)
    functions = {
        "view": lambda t: t.view(2, 4, 4),
        "flat": lambda t: t.view(-1),
        "reshape": lambda t: t.reshape(4, 8),
        "unsqueeze": lambda t: t.unsqueeze(1),
        "squeeze": lambda t: t.unsqueeze(0).squeeze(0),
        "transpose": lambda t: t.transpose(0, 1),
        "permute": lambda t: t.permute(1, 0),
        "T": lambda t: t.T,
        "expand": lambda t: t.unsqueeze(0).expand(3, -1, -1),
        "repeat": lambda t: t.repeat(2, 1),
        "flatten": lambda t: t.flatten(),
        "unflatten": lambda t: t.unflatten(0, (2, 4)),
        "narrow": lambda t: t.narrow(0, 2, 4),
        "slice": lambda t: t[:, 1:3],
        "select": lambda t: t.select(0, 3),
        "row": lambda t: t[2],
        "step": lambda t: t[::2],
        "chunk": lambda t: t.chunk(2, 0)[1],
        "split": lambda t: t.split(3, 1)[0],
        "unbind": lambda t: t.unbind(0)[5],
        "flip": lambda t: t.flip(0),
        "roll": lambda t: t.roll(1, 0),
        "movedim": lambda t: t.movedim(0, 1),
        "contiguous": lambda t: t.t().contiguous(),
        "atleast": lambda t: torch.atleast_3d(t),
        "none": lambda t: t[None, :, None],
        "ellipsis": lambda t: t[..., 0],
        "tile": lambda t: t.tile(1, 2),
        "diagonal": lambda t: t.diagonal(),
        "as view": lambda t: t.view_as(t),
        "repeat_interleave": lambda t: t.repeat_interleave(2, 0),
    }
    return {name: both_ways(function, x) for name, function in functions.items()} | {
        "three": forward(lambda t: t.view(4, 32), y),
        "heads": both_ways(lambda t: t.view(4, 8, 2, 2).transpose(1, 2), y),
        "merge": both_ways(lambda t: t.transpose(1, 2).reshape(4, -1), y),
    }


@case
def view_placements():
    x = values(8, 4)
    return {
        "view": placed(lambda t: t.view(2, 4, 4), x),
        "split rows": placed(lambda t: t.view(4, 2, 4), x),
        "unsqueeze": placed(lambda t: t.unsqueeze(0), x),
        "transpose": placed(lambda t: t.transpose(0, 1), x),
        "slice": placed(lambda t: t[:, 1:3], x),
        "slice own": placed(lambda t: t[1:3], x),
        "select": placed(lambda t: t[0], x),
        "expand": placed(lambda t: t.unsqueeze(0).expand(3, -1, -1), x),
        "repeat": placed(lambda t: t.repeat(2, 1), x),
        "cat": placed(lambda a, b: torch.cat([a, b]), x, x),
        "cat 1": placed(lambda a, b: torch.cat([a, b], 1), x, x),
        "split": placed(lambda t: t.split(2, 1)[0], x),
        "split own": placed(lambda t: t.split(4, 0)[0], x),
        "unbind": placed(lambda t: t.unbind(1)[0], x),
    }


@case
def joined():
    x, y = values(8, 4), values(8, 4).cos()
    return {
        "cat": both_ways(lambda a, b: torch.cat([a, b]), x, y),
        "cat 1": both_ways(lambda a, b: torch.cat([a, b], 1), x, y),
        "stack": both_ways(lambda a, b: torch.stack([a, b]), x, y),
        "hstack": forward(lambda a, b: torch.hstack([a, b]), x, y),
        "vstack": forward(lambda a, b: torch.vstack([a, b]), x, y),
        "meshgrid": forward(lambda a, b: torch.meshgrid(a[:, 0], b[:, 0], indexing="ij"), x, y),
    }


@case
def indexing():
    x, index = values(8, 4), torch.tensor([3, 0, 7, 1])
    replicated = lambda t: distribute_tensor(t, line(), [Replicate()])  # noqa: E731
    grid_index = torch.arange(32).view(8, 4) % 4
    return {
        "index": both_ways(lambda t: t[replicated(index)], x),
        "index two": forward(lambda t: t[replicated(index), replicated(index % 4)], x),
        "index_select": both_ways(lambda t: t.index_select(0, replicated(index)), x),
        "index_select 1": forward(lambda t: t.index_select(1, replicated(index % 4)), x),
        "gather": both_ways(lambda t: t.gather(1, replicated(grid_index)), x),
        "gather sharded": forward(lambda t, i: t.gather(1, i), x, grid_index),
        "scatter": forward(lambda t: t.scatter(1, replicated(grid_index), 0.5), x),
        "scatter_add": forward(lambda t: t.scatter_add(1, replicated(grid_index), replicated(values(8, 4))), x),
        "index_add": forward(lambda t: t.index_add(0, replicated(index), replicated(values(4, 4))), x),
        "take_along_dim": forward(lambda t: t.take_along_dim(replicated(grid_index), 1), x),
        "topk": forward(lambda t: t.topk(2, 1), x),
        "topk 0": forward(lambda t: t.topk(3, 0), x),
        "sort": forward(lambda t: t.sort(0), x),
        "argsort": forward(lambda t: t.argsort(1), x),
        "masked_select": forward(lambda t: t.masked_fill(t > 0, 0.0), x),
        "embedding": both_ways(lambda w: F.embedding(replicated(index), w), x),
        "embedding divided": forward(lambda w, i: F.embedding(i, w), x, index),
        "put": forward(lambda t: torch.index_put(t, (replicated(index),), replicated(values(4, 4))), x),
        "item": forward(lambda t: t[0, 0].item(), x),
        "unique row": forward(lambda t: t.unfold(0, 2, 2), x),
    }


@case
def layers():
    x = values(8, 4, 4)
    weight, bias = values(4).cos(), values(4)
    return {
        "layer_norm": both_ways(lambda t, w, b: F.layer_norm(t, (4,), w, b), x, weight, bias),
        "rms_norm": both_ways(lambda t, w: F.rms_norm(t, (4,), w), x, weight),
        "group_norm": forward(lambda t: F.group_norm(t, 2), values(8, 4, 3)),
        "dropout": forward(lambda t: F.dropout(t, 0.5, training=False), x),
        "normalize": both_ways(lambda t: F.normalize(t, dim=1), values(8, 4)),
        "glu": forward(lambda t: F.glu(t, -1), x),
        "pad": forward(lambda t: F.pad(t, (1, 1)), x),
        "conv": forward(  # PyTorch gives a wrong shape for a divided weight
            lambda t: F.conv2d(t, distribute_tensor(values(4, 3, 3, 3), line(), [Replicate()]), padding=1),
            values(4, 3, 4, 4),
        ),
        "max_pool": forward(lambda t: F.max_pool2d(t, 2), values(4, 4, 4, 4)),
        "avg_pool": forward(lambda t: F.adaptive_avg_pool2d(t, 1), values(4, 4, 4, 4)),
        "interpolate": forward(lambda t: F.interpolate(t, scale_factor=2), values(4, 4, 3, 3)),
        "sdpa": both_ways(
            F.scaled_dot_product_attention, values(4, 4, 3, 2), values(4, 4, 3, 2).cos(), values(4, 4, 3, 2)
        ),
        "sdpa causal": forward(
            lambda q, k, v: F.scaled_dot_product_attention(q, k, v, is_causal=True),
            values(4, 4, 3, 2),
            values(4, 4, 3, 2).cos(),
            values(4, 4, 3, 2),
        ),
    }


@case
def losses():
    logits, labels = values(8, 4), torch.arange(8) % 4
    replicated = lambda t: distribute_tensor(t, line(), [Replicate()])  # noqa: E731
    return {
        "mse": forward(lambda a, b: F.mse_loss(a, b), logits, logits.cos()),
        "l1": forward(lambda a, b: F.l1_loss(a, b), logits, logits.cos()),
        "smooth": forward(lambda a, b: F.smooth_l1_loss(a, b), logits, logits.cos()),
        "huber": forward(lambda a, b: F.huber_loss(a, b), logits, logits.cos()),
        "bce": forward(lambda a, b: F.binary_cross_entropy_with_logits(a, b.sigmoid()), logits, logits.cos()),
        "kl": forward(
            lambda a, b: F.kl_div(a.log_softmax(1), b.softmax(1), reduction="batchmean"), logits, logits.cos()
        ),
        "cross_entropy": both_ways(lambda a: F.cross_entropy(a, replicated(labels)), logits),
        "cross_entropy sum": both_ways(lambda a: F.cross_entropy(a, replicated(labels), reduction="sum"), logits),
        "cross_entropy none": both_ways(lambda a: F.cross_entropy(a, replicated(labels), reduction="none"), logits),
        "cross_entropy smooth": both_ways(
            lambda a: F.cross_entropy(a, replicated(labels), label_smoothing=0.1), logits
        ),
        "cross_entropy divided": forward(lambda a, b: F.cross_entropy(a, b), logits, labels),
        "nll": forward(lambda a, b: F.nll_loss(a.log_softmax(1), b), logits, labels),
        "weights": forward(
            lambda a: F.cross_entropy(a, replicated(labels), weight=replicated(logits[0].abs()), reduction="sum"),
            logits,
        ),
    }


@case
def written_in_place():
    def run(function):
        def one(placement):
            x = distribute_tensor(values(8, 4), line(), [placement])
            out = function(x)
            return [whole(x), str(x.placements), out is x]

        return {str(p): tried(one, p) for p in (Replicate(), Shard(0), Shard(1))}

    other = lambda: distribute_tensor(values(8, 4).cos(), line(), [Shard(0)])  # noqa: E731
    return {
        "add_": run(lambda t: t.add_(1)),
        "mul_": run(lambda t: t.mul_(other())),
        "sub_": run(lambda t: t.sub_(other(), alpha=2)),
        "zero_": run(lambda t: t.zero_()),
        "fill_": run(lambda t: t.fill_(2.5)),
        "copy_": run(lambda t: t.copy_(other())),
        "clamp_": run(lambda t: t.clamp_(0, 0.5)),
        "relu_": run(lambda t: t.relu_()),
        "addcmul_": run(lambda t: t.addcmul_(other(), other(), value=0.1)),
        "lerp_": run(lambda t: t.lerp_(other(), 0.3)),
        "masked_fill_": run(lambda t: t.masked_fill_(other() > 0, 7.0)),
        "exp_": run(lambda t: t.exp_()),
        "iadd": run(lambda t: t.__iadd__(3)),
        "pow_": run(lambda t: t.abs_().pow_(2)),
        "div_": run(lambda t: t.div_(3)),
    }


@case
def two_dimensions():
    placements = [
        (Replicate(), Replicate()), (Shard(0), Shard(1)), (Shard(0), Replicate()), (Replicate(), Shard(0)), (Shard(0), Shard(0)), (Shard(1), Shard(0)),
    ]  # fmt: skip

    def run(function):
        def one(own):
            x = distribute_tensor(values(8, 4), grid(), own).requires_grad_()
            out = function(x)
            (out * out).sum().backward()
            return [whole(out), whole(x.grad)]

        return {str(own): tried(one, own) for own in placements}

    weight = lambda *own: distribute_tensor(values(4, 8), grid(), own)  # noqa: E731
    return {
        "mm": run(lambda t: t @ weight(Replicate(), Shard(1))),
        "mm rows": run(lambda t: t @ weight(Replicate(), Shard(0))),
        "mm both": run(lambda t: t @ weight(Shard(0), Shard(1))),
        "softmax": run(lambda t: t.softmax(1)),
        "sum": run(lambda t: t.sum(0)),
        "mean": run(lambda t: t.mean()),
        "view": run(lambda t: t.view(4, 2, 4).transpose(0, 1)),
        "flatten": run(lambda t: t.flatten()),
        "slice": run(lambda t: t[2:6]),
        "layer_norm": run(lambda t: F.layer_norm(t, (4,))),
        "cat": run(lambda t: torch.cat([t, t], 1)),
    }


def parts(tensor, placement):
    """A tensor that is to be reduced, of which each process holds the same part."""
    return DTensor.from_local(tensor.clone(), line(), [placement], run_check=False)


@case
def placements_of_parts():
    """Where results lie when inputs are parts to be reduced."""
    x, y = values(8, 4), values(8, 4).cos()
    one = {
        "double": lambda t: t.double(), "bool": lambda t: t.bool(), "sum": lambda t: t.sum(0),
        "mean": lambda t: t.mean(0), "amax": lambda t: t.amax(0), "amin": lambda t: t.amin(1), "prod": lambda t: t.prod(0), "neg": lambda t: -t,
        "exp": lambda t: t.exp(), "relu": lambda t: t.relu(), "erfc": lambda t: t.erfc(), "plus": lambda t: t + 1,
        "times": lambda t: t * 2, "over": lambda t: t / 2, "new_zeros": lambda t: t.new_zeros(8, 4), "new_full": lambda t: t.new_full((8, 4), 2.0),
        "new_empty": lambda t: t.new_empty(8, 4), "empty_like": torch.empty_like, "zeros_like": torch.zeros_like, "view": lambda t: t.view(32),
        "flip": lambda t: t.flip(0), "roll": lambda t: t.roll(1, 0), "pad": lambda t: F.pad(t, (1, 1)), "repeat": lambda t: t.repeat(2, 1),
        "cat": lambda t: torch.cat([t, t]), "product": lambda t: t * t, "tril": lambda t: t.tril(), "softmax": lambda t: t.softmax(1),
        "argmax": lambda t: t.argmax(1), "squeeze_": lambda t: t.squeeze_(),
    }  # fmt: skip
    two = {
        "add": torch.add, "sub": torch.sub, "mul": torch.mul, "div": torch.div, "maximum": torch.maximum, "eq": torch.eq,
        "mm": lambda a, b: a @ b.t(), "cat": lambda a, b: torch.cat([a, b]), "copy": lambda a, b: torch.empty_like(a).copy_(b),
    }  # fmt: skip
    kinds = [Partial(), Partial("avg"), Partial("max"), Partial("min")]

    def where(function, *tensors):
        return tried(lambda: str(function(*tensors).placements))

    replicated = lambda t: distribute_tensor(t, line(), [Replicate()])  # noqa: E731
    return {
        "one": {f"{name} {p}": where(function, parts(x, p)) for name, function in one.items() for p in kinds},
        "beside a whole one": {f"{n} {p}": where(f, parts(x, p), replicated(y)) for n, f in two.items() for p in kinds[:2]},
        "to a whole one": {f"{n} {p}": where(f, replicated(y), parts(x, p)) for n, f in two.items() for p in kinds[:2]},
        "two": {f"{n} {p}": where(f, parts(x, p), parts(y, p)) for n, f in two.items() for p in kinds[:2] if n != "mm"},
    }  # fmt: skip


@case
def joined_dimensions():
    """Dimensions in front of a divided one are joined with it: its pieces stay where they are."""
    functions = {
        "flatten": lambda t: t.flatten(), "front": lambda t: t.flatten(0, 1), "back": lambda t: t.flatten(1, 2),
        "there and back": lambda t: (t.flatten(0, 1) * 2).view(4, 8, 4), "last": lambda t: t.flatten(1, 2).unflatten(1, (8, 4)),
        "one_hot": lambda t: F.one_hot(t.abs().long(), 3), "squeeze_": lambda t: t.unsqueeze(0).squeeze_(0),
        "new_zeros": lambda t: t.new_zeros(4, 8, 4), "product": lambda t: t.flatten(0, 1) @ distribute_tensor(values(4, 8), t.device_mesh, [Replicate()] * t.device_mesh.ndim),
    }  # fmt: skip
    x = values(4, 8, 4)

    def seen(function, mesh, own):
        out = function(distribute_tensor(x, mesh, own))
        return [str(out.placements), out.to_local(), whole(out)]

    results = {}
    for name, function in functions.items():
        for own in [[Shard(0)], [Shard(1)], [Shard(2)]]:
            results[f"{name} {own}"] = tried(seen, function, line(), own)
        for own in itertools.product([Replicate(), Shard(0), Shard(1)], repeat=2):
            results[f"{name} {own}"] = tried(seen, function, grid(), own)
    return results


@case
def foreach():
    xs = [distribute_tensor(values(8, 4) * i, line(), [Shard(0)]) for i in (1, 2)]
    ys = [distribute_tensor(values(8, 4).cos() * i, line(), [Shard(0)]) for i in (1, 2)]
    return [
        tried(lambda: whole(torch._foreach_norm(xs))),
        tried(lambda: whole(torch._foreach_add(xs, ys))),
        tried(lambda: whole(torch._foreach_mul(xs, 2.0))),
        tried(lambda: torch._foreach_mul_(xs, 0.5) is None and whole(xs)),
        tried(lambda: whole(nn.utils.get_total_norm(xs))),
    ]


@case
def equality_and_numbers():
    x = distribute_tensor(values(8, 4), line(), [Shard(0)])
    y = distribute_tensor(values(8, 4), line(), [Shard(0)])
    return [
        tried(lambda: torch.equal(x, y)), tried(lambda: torch.equal(x, y + 1)), tried(lambda: torch.allclose(x, y)), tried(lambda: bool((x == y).all())), x.dim(), x.numel(), list(x.size()), x.size(1), x.stride(),
        x.is_contiguous(), str(x.dtype), x.requires_grad, x.is_leaf, x.element_size(), x.nbytes, x.itemsize, x.ndim, len(x),
        tried(lambda: torch.is_floating_point(x)), tried(lambda: torch.is_tensor(x)), tried(lambda: str(x.device)), x.is_cuda, x.layout == torch.strided,
        tried(lambda: x.tolist()), tried(lambda: x.storage_offset()),
    ]  # fmt: skip


@case
def gradients_written():
    model = filled(nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 4)))
    torch.distributed.tensor.distribute_module(
        model, line(), lambda name, module, mesh: [
            module.register_parameter(key, nn.Parameter(distribute_tensor(p, mesh, [Shard(0)]))) for key, p in list(module.named_parameters(recurse=False))
        ],
    )  # fmt: skip
    x = distribute_tensor(values(8, 4), line(), [Replicate()])
    out = model(x)
    out.pow(2).mean().backward()
    norm = torch.nn.utils.clip_grad_norm_(model.parameters(), 0.1)
    grads = [whole(p.grad) for p in model.parameters()]
    model.zero_grad(set_to_none=False)
    return [
        whole(norm),
        grads,
        [whole(p.grad) for p in model.parameters()],
        [str(p.placements) for p in model.parameters()],
    ]


if __name__ == "__main__":
    main()
