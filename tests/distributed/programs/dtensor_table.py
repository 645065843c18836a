"""A table of operators: the whole result and the whole gradients equal those of plain tensors, however the inputs lie."""
# ranks: 2 4

import itertools
import warnings

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor import DTensor, Partial, Replicate, Shard, distribute_tensor

warnings.simplefilter("ignore")
dist.init_process_group("gloo")
size = dist.get_world_size()
line = init_device_mesh("cpu", (size,))
grid = init_device_mesh("cpu", (2, size // 2))


def values(*shape):
    return torch.sin(torch.arange(float(torch.Size(shape).numel())) * 0.9 + 0.3).view(*shape)


def place(tensor, mesh, placements):
    """The tensor on a mesh; parts differ between processes, and make the tensor when they are reduced."""
    placed = distribute_tensor(tensor, mesh, [Replicate() if isinstance(p, Partial) else p for p in placements])
    local = placed.to_local()
    for dim, placement in enumerate(placements):
        if isinstance(placement, Partial):
            rank, count = mesh.get_local_rank(dim), mesh.size(dim)
            if placement.reduce_op == "sum":
                local = local / count + (rank - (count - 1) / 2)
            elif placement.reduce_op == "avg":
                local = local + (rank - (count - 1) / 2)
            else:
                local = local - (0.5 * rank if placement.reduce_op == "max" else -0.5 * rank)
    return DTensor.from_local(local, mesh, placements, run_check=False, shape=tensor.shape, stride=tensor.stride())


def whole(value):
    if isinstance(value, DTensor):
        return value.full_tensor()
    return [whole(v) for v in value] if isinstance(value, (list, tuple)) else value


def leaves(value):
    return [v for one in value for v in leaves(one)] if isinstance(value, (list, tuple)) else [value]


def same(got, expected):
    got, expected = leaves(whole(got)), leaves(expected)
    return len(got) == len(expected) and all(
        torch.allclose(a, b, atol=1e-5, rtol=1e-4, equal_nan=True) and a.dtype == b.dtype and a.shape == b.shape
        if isinstance(a, torch.Tensor)
        else a == b
        for a, b in zip(got, expected)
    )


# Of one tensor, with derivatives.
SMOOTH = {
    "clone": lambda x: x.clone(), "float": lambda x: x.float(), "double": lambda x: x.double(), "sum": lambda x: x.sum(),
    "sum 0": lambda x: x.sum(0), "sum 1": lambda x: x.sum(1, keepdim=True), "mean": lambda x: x.mean(),
    "mean 0": lambda x: x.mean(0), "mean 1": lambda x: x.mean(1), "max": lambda x: x.max(), "amax": lambda x: x.amax(0),
    "amin": lambda x: x.amin(1), "prod": lambda x: x.prod(0), "max 0": lambda x: x.max(0)[0], "var": lambda x: x.var(),
    "var 0": lambda x: x.var(0), "std": lambda x: x.std(1), "var_mean": lambda x: torch.var_mean(x, 1),
    "norm": lambda x: torch.linalg.vector_norm(x), "norm 1": lambda x: torch.linalg.vector_norm(x, 1, dim=0),
    "norm inf": lambda x: torch.linalg.vector_norm(x, float("inf")), "logsumexp": lambda x: x.logsumexp(1),
    "softmax 0": lambda x: x.softmax(0), "softmax 1": lambda x: x.softmax(1), "log_softmax": lambda x: x.log_softmax(1),
    "cumsum": lambda x: x.cumsum(0), "cumprod": lambda x: x.cumprod(1), "neg": lambda x: -x, "abs": lambda x: x.abs(),
    "exp": lambda x: x.exp(), "relu": lambda x: x.relu(), "gelu": F.gelu, "tanh": lambda x: x.tanh(),
    "sigmoid": lambda x: x.sigmoid(), "erfc": lambda x: x.erfc(), "times": lambda x: x * 2, "times minus": lambda x: x * -2.0,
    "over": lambda x: x / 2, "plus": lambda x: x + 1, "minus": lambda x: x - 1, "one minus": lambda x: 1 - x,
    "square": lambda x: x**2, "clamp": lambda x: x.clamp(-0.5, 0.5), "t": lambda x: x.t(), "permute": lambda x: x.permute(1, 0),
    "view 3": lambda x: x.view(2, 4, 4), "view flat": lambda x: x.view(32), "view rows": lambda x: x.view(8, 2, 2),
    "reshape": lambda x: x.reshape(4, 8), "flatten": lambda x: x.flatten() * 2, "unflatten": lambda x: x.unflatten(0, (4, 2)),
    "unflatten 1": lambda x: x.unflatten(1, (2, 2)), "there and back": lambda x: (x.view(32) * 2).view(8, 4).sum(0),
    "flat, exp": lambda x: x.flatten().exp(), "flat, sum": lambda x: x.flatten().sum(), "flat, slice": lambda x: x.flatten()[3:9],
    "flat, softmax": lambda x: x.flatten().softmax(0), "unsqueeze": lambda x: x.unsqueeze(1).squeeze(1),
    "squeeze": lambda x: x.unsqueeze(0).squeeze(), "expand": lambda x: x.unsqueeze(0).expand(3, -1, -1),
    "repeat": lambda x: x.repeat(2, 1), "repeat 3": lambda x: x.repeat(2, 1, 1), "tile": lambda x: x.tile(2),
    "repeat_interleave": lambda x: x.repeat_interleave(2, 0), "slice": lambda x: x[1:3], "slice 1": lambda x: x[:, 1:3],
    "select": lambda x: x[0], "select 1": lambda x: x[:, 0], "narrow": lambda x: x.narrow(0, 0, 4), "step": lambda x: x[::2],
    "chunk": lambda x: x.chunk(2, 0), "split": lambda x: x.split([3, 5]), "unbind": lambda x: x.unbind(1)[2],
    "flip": lambda x: x.flip(0), "flip 1": lambda x: x.flip(1), "roll": lambda x: x.roll(1, 0), "roll flat": lambda x: x.roll(1),
    "diagonal": lambda x: x.diagonal(), "tril": lambda x: x.tril(), "cat": lambda x: torch.cat([x, x]),
    "cat 1": lambda x: torch.cat([x, x], 1), "stack": lambda x: torch.stack([x, x], 1), "sort": lambda x: x.sort(1)[0],
    "topk": lambda x: x.topk(2, 1)[0], "kthvalue": lambda x: x.kthvalue(1, 1)[0], "pad": lambda x: F.pad(x, (1, 1)),
    "pad 0": lambda x: F.pad(x, (0, 0, 1, 1)), "pad value": lambda x: F.pad(x, (1, 1), value=2.0),
    "layer_norm": lambda x: F.layer_norm(x, (4,)), "rms_norm": lambda x: F.rms_norm(x, (4,)), "normalize": F.normalize,
    "glu": F.glu, "masked_fill": lambda x: x.masked_fill(x > 0, 1.0), "where": lambda x: torch.where(x > 0, x, x * 0.5),
    "as_strided": lambda x: x.as_strided((4, 8), (8, 1)), "unfold": lambda x: x.unfold(0, 2, 2), "swapaxes": lambda x: x.swapaxes(0, 1),
}  # fmt: skip
PLAIN = {
    "int": lambda x: x.int(), "bool": lambda x: x.bool(), "long": lambda x: (x * 3).long(), "any": lambda x: (x > 0.9).any(),
    "all 0": lambda x: (x > -0.9).all(0), "argmax": lambda x: x.argmax(), "argmin": lambda x: x.argmin(1), "gt": lambda x: x > 0,
    "isnan": lambda x: x.isnan(), "zeros_like": torch.zeros_like, "full_like": lambda x: torch.full_like(x, 2.0),
    "new_zeros": lambda x: x.new_zeros(8, 4), "new_full": lambda x: x.new_full((3, 5), 2.0), "sign": lambda x: x.sign(),
    "floor": lambda x: x.floor(), "round": lambda x: x.round(), "count": lambda x: x.count_nonzero(), "median": lambda x: x.median(),
    "one_hot": lambda x: F.one_hot((x * 2).abs().long(), 3), "item": lambda x: round(x.sum().item(), 3),
    "mode": lambda x: x.round().mode(1)[0], "logical_not": lambda x: x.logical_not(),
}  # fmt: skip
TWO = {
    "add": torch.add, "sub": torch.sub, "mul": torch.mul, "div": lambda a, b: a / (b + 3), "alpha": lambda a, b: torch.add(a, b, alpha=2),
    "maximum": torch.maximum, "minimum": torch.minimum, "where": lambda a, b: torch.where(a > 0, a, b),
    "lerp": lambda a, b: torch.lerp(a, b, 0.5), "addcmul": lambda a, b: torch.addcmul(a, a, b), "mm": lambda a, b: a @ b.t(),
    "tmm": lambda a, b: a.t() @ b, "linear": F.linear, "bmm": lambda a, b: torch.bmm(a.unsqueeze(0), b.t().unsqueeze(0)),
    "mv": lambda a, b: torch.mv(a, b[0]), "dot": lambda a, b: torch.dot(a[0], b[0]),
    "dot flat": lambda a, b: torch.dot(a.view(-1), b.view(-1)), "outer": lambda a, b: torch.outer(a[:, 0], b[:, 0]),
    "matmul": lambda a, b: torch.matmul(a.view(2, 4, 4), b.t()), "addmm": lambda a, b: torch.addmm(a @ b.t(), a, b.t()),
    "cat": lambda a, b: torch.cat([a, b]), "cat 1": lambda a, b: torch.cat([a, b], 1), "stack": lambda a, b: torch.stack([a, b]),
    "row": lambda a, b: a + b[0], "column": lambda a, b: a * b[:, :1], "plus sum": lambda a, b: a + b.sum(), "times sum": lambda a, b: a * b.sum(),
    "mse": F.mse_loss, "l1": F.l1_loss, "mse none": lambda a, b: F.mse_loss(a, b, reduction="none"),
    "bce": F.binary_cross_entropy_with_logits, "smooth": F.smooth_l1_loss, "kl": lambda a, b: F.kl_div(a, b.softmax(1)),
    "cosine": F.cosine_similarity, "layer_norm": lambda a, b: F.layer_norm(a, (4,), b[0], b[1]), "flat": lambda a, b: a.flatten() * b.flatten(),
    "flat mixed": lambda a, b: a.flatten() * b.sum(), "gather": lambda a, b: a.gather(0, (b * 3).abs().long()),
    "gather 1": lambda a, b: a.gather(1, (b * 3).abs().long()), "scatter": lambda a, b: a.scatter(1, torch.zeros_like(b).long(), 2.0),
    "scatter_add": lambda a, b: a.scatter_add(1, (b * 3).abs().long(), a), "index_select": lambda a, b: a.index_select(0, (b[:, 0] * 3).abs().long()),
    "index_select 1": lambda a, b: a.index_select(1, (b[:, 0] * 3).abs().long()), "index": lambda a, b: a[(b[:, 0] * 3).abs().long()],
    "index 1": lambda a, b: a[:, (b[:, 0] * 3).abs().long()], "index two": lambda a, b: a[(b[:, 0] * 3).abs().long(), (b[:, 1] * 3).abs().long()],
    "embedding": lambda a, b: F.embedding((b * 3).abs().long(), a), "nll": lambda a, b: F.nll_loss(a, (b[:, 0] * 3).abs().long()),
    "entropy": lambda a, b: F.cross_entropy(a, (b[:, 0] * 3).abs().long()),
    "entropy ignoring": lambda a, b: F.cross_entropy(a, (b[:, 0] * 3).abs().long(), ignore_index=1),
    "entropy weight": lambda a, b: F.cross_entropy(a, (b[:, 0] * 3).abs().long(), weight=b[3].abs()),
    "entropy sum": lambda a, b: F.cross_entropy(a, (b[:, 0] * 3).abs().long(), reduction="sum"),
    "entropy none": lambda a, b: F.cross_entropy(a, (b[:, 0] * 3).abs().long(), reduction="none"),
    "copy": lambda a, b: a.clone().copy_(b), "equal": torch.equal,
}  # fmt: skip
WRITTEN = {
    "add_": lambda x, y: x.add_(1), "add_ y": lambda x, y: x.add_(y), "sub_ y": lambda x, y: x.sub_(y), "mul_": lambda x, y: x.mul_(2),
    "mul_ y": lambda x, y: x.mul_(y), "div_ y": lambda x, y: x.div_(y + 3), "zero_": lambda x, y: x.zero_(), "fill_": lambda x, y: x.fill_(2),
    "relu_": lambda x, y: x.relu_(), "neg_": lambda x, y: x.neg_(), "exp_": lambda x, y: x.exp_(), "clamp_": lambda x, y: x.clamp_(0, 1),
    "copy_": lambda x, y: x.copy_(y), "squeeze_": lambda x, y: x.squeeze_(), "unsqueeze_": lambda x, y: x.unsqueeze_(0),
    "t_": lambda x, y: x.t_(), "transpose_": lambda x, y: x.transpose_(0, 1), "masked_fill_": lambda x, y: x.masked_fill_(x > 0, 1.0),
    "tril_": lambda x, y: x.tril_(), "cumsum_": lambda x, y: x.cumsum_(0), "lerp_": lambda x, y: x.lerp_(y, 0.5),
    "chunk": lambda x, y: x.chunk(2)[1].mul_(3), "view of row": lambda x, y: x[1:3].view(2, 2, 2)[:, 0].zero_(),
    "column": lambda x, y: x[:, 1].copy_(y[:, 0]), "diagonal": lambda x, y: x.diagonal().fill_(5), "setitem": lambda x, y: x.__setitem__(0, 1.0), "scatter_add_": lambda x, y: x.scatter_add_(1, torch.zeros_like(y).long(), y),
}  # fmt: skip
PLACEMENTS = [Replicate(), Shard(0), Shard(1), Partial(), Partial("avg"), Partial("max"), Partial("min")]
failures = []


def tried(what, run):
    try:
        if not run():
            failures.append(what)
    except Exception as error:
        failures.append(f"{what}: {type(error).__name__}: {str(error)[:200]}")


def gradients(function, tensors):
    out = [o for o in leaves(function(*tensors)) if isinstance(o, torch.Tensor) and o.is_floating_point()]
    total = sum((o * o).sum() for o in out)
    return torch.autograd.grad(total, tensors, allow_unused=True)


def check(name, function, mesh, tensors, placements, smooth):
    def run():
        return same(function(*(place(t, mesh, p) for t, p in zip(tensors, placements))), function(*tensors))

    def backward():
        linear = all(p.is_replicate() or p.is_shard() for own in placements for p in own)
        if not linear:  # the gradient of parts is that of the whole only where these are summed
            return True
        plain = [t.clone().requires_grad_() for t in tensors]
        placed = [place(t, mesh, p).requires_grad_() for t, p in zip(tensors, placements)]
        expected, got = gradients(function, plain), gradients(function, placed)
        return all((a is None) == (b is None) and (a is None or same(b, a)) for a, b in zip(expected, got))

    where = " ".join(str(tuple(map(str, p))) for p in placements)
    tried(f"{name} {where}", run)
    if smooth:
        tried(f"backward of {name} {where}", backward)


x, y = values(8, 4), values(8, 4).cos() + 0.1
for name, function in SMOOTH.items():
    for p in PLACEMENTS:
        check(name, function, line, [x], [[p]], True)
for name, function in PLAIN.items():
    for p in PLACEMENTS:
        check(name, function, line, [x], [[p]], False)
for name, function in TWO.items():
    for p, q in itertools.product(PLACEMENTS[:5], repeat=2):
        smooth = name not in ("equal", "copy", "gather", "gather 1", "index")
        check(name, function, line, [x, y], [[p], [q]], smooth)
for name, function in WRITTEN.items():
    for p, q in itertools.product(PLACEMENTS[:5], repeat=2):

        def run(function=function, p=p, q=q):
            target, plain = place(x, line, [p]), x.clone()
            function(target, place(y, line, [q]))
            function(plain, y)
            return same(target, plain) and target.shape == plain.shape

        tried(f"{name} {p} {q}", run)
# Two dimensions of a mesh, three of a tensor, some of odd sizes.
FEW = {
    "flatten": lambda t: t.flatten(), "flatten 01": lambda t: t.flatten(0, 1), "flatten 12": lambda t: t.flatten(1, 2),
    "there and back": lambda t: (t.flatten(0, 1) * 2).view(t.shape), "back 12": lambda t: (t.flatten(1, 2).exp()).unflatten(1, t.shape[1:]),
    "permute": lambda t: t.permute(2, 0, 1), "sum": lambda t: t.sum(0), "mean": lambda t: t.mean(1), "softmax": lambda t: t.softmax(-1),
    "cat": lambda t: torch.cat([t, t], 2), "select": lambda t: t[:, 0], "slice": lambda t: t[:, 2:4], "norm": lambda t: torch.linalg.vector_norm(t),
    "layer_norm": lambda t: F.layer_norm(t, (t.shape[-1],)), "repeat": lambda t: t.repeat(1, 2, 1), "split": lambda t: t.split(2, 1)[0],
    "flat matmul": lambda t: t.flatten(0, 1) @ t.flatten(0, 1).t(), "max": lambda t: t.amax(1), "reshape": lambda t: t.reshape(t.shape[1], -1),
    "merge rows": lambda t: t.view(t.shape[0], -1).sum(1), "heads": lambda t: t.transpose(1, 2).reshape(t.shape[0], -1),
    "flat add": lambda t: t.flatten() + t.permute(2, 1, 0).flatten(), "clone": lambda t: t.clone(), "unflatten": lambda t: t.unflatten(1, (2, -1)),
}  # fmt: skip
KINDS = [Replicate(), Shard(0), Shard(1), Shard(2), Partial()]
for shape in ((4, 8, 4), (3, 6, 5)):
    tensor = values(*shape)
    for name, function in FEW.items():
        for own in itertools.product(KINDS, repeat=2):
            check(f"{name} {shape}", function, grid, [tensor], [own], True)
        for own in KINDS:
            check(f"{name} {shape}", function, line, [tensor], [[own]], True)
weight = values(4, 8)
for name, function in {
    "linear": lambda t, w: F.linear(t, w.t()),
    "matmul": torch.matmul,
    "tied": lambda t, w: (t @ w) @ w.t(),
}.items():
    for own, other in itertools.product(itertools.product(KINDS, repeat=2), itertools.product(KINDS[:3], repeat=2)):
        check(name, function, grid, [values(4, 8, 4), weight], [own, other], True)

assert not failures, f"{len(failures)} differ:\n" + "\n".join(failures[:60])
dist.destroy_process_group()
