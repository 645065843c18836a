"""Operators on distributed tensors and their derivatives agree with those on plain tensors."""
# ranks: 2

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor import DTensor, Replicate, Shard, distribute_tensor

dist.init_process_group("gloo")
mesh = init_device_mesh("cpu", (2,))
plain = False  # whether operators run on plain tensors, for comparison


def data(*shape):
    count = torch.Size(shape).numel()
    return torch.sin(torch.arange(float(count)) * 0.7).view(shape)


def spread(tensor, placement):
    return tensor if plain else distribute_tensor(tensor, mesh, [placement])


def whole(values):
    return spread(values, Replicate())


OPERATORS = {
    "cat": lambda x: torch.cat([x, x * 2], 0),
    "slice": lambda x: x[1:3],
    "column": lambda x: x[:, 2],
    "index": lambda x: x[whole(torch.tensor([0, 2]))],
    "index_select": lambda x: torch.index_select(x, 1, whole(torch.tensor([0, 2]))),
    "topk": lambda x: torch.topk(x, 2, dim=1)[0],
    "sort": lambda x: torch.sort(x, dim=1)[0],
    "cumsum": lambda x: x.cumsum(1),
    "where": lambda x: torch.where(x > 0, x, x * 3),
    "masked_fill": lambda x: x.masked_fill(x > 0, 0.0),
    "var": lambda x: x.var(1),
    "std": lambda x: x.std(),
    "norm": lambda x: x.norm(),
    "softmax": lambda x: x.softmax(1),
    "softmax of columns": lambda x: x.softmax(0),
    "max": lambda x: x.max(),
    "amax": lambda x: x.amax(0),
    "max of rows": lambda x: x.max(1)[0],
    "max of columns": lambda x: x.max(0)[0],
    "product": lambda x: x @ x.t(),
    "view": lambda x: x.view(2, 2, 6),
    "reshape": lambda x: x.reshape(-1),
    "expand": lambda x: x.unsqueeze(0).expand(3, 4, 6),
    "gather": lambda x: torch.gather(x, 1, whole(torch.tensor([[0], [1], [2], [3]]))),
    "flip": lambda x: x.flip(0),
    "pad": lambda x: F.pad(x, (1, 1)),
    "diagonal": lambda x: x[:, :4].diagonal(),
    "layer_norm": lambda x: F.layer_norm(x, (6,)),
    "rms_norm": lambda x: F.rms_norm(x, (6,), whole(data(6) + 2)),
    "logsumexp": lambda x: x.logsumexp(1),
    "einsum": lambda x: torch.einsum("ij,kj->ik", x, x),
    "gelu": lambda x: F.gelu(x),
    "repeat": lambda x: x.repeat(2, 1),
    "tril": lambda x: x.tril(),
    "double": lambda x: x.double(),
    "bfloat16": lambda x: x.bfloat16().float(),
    "chunk": lambda x: x.chunk(3, 1)[1],
    "roll": lambda x: x.roll(1, 1),
    "nll_loss": lambda x: F.nll_loss(x.log_softmax(1), whole(torch.tensor([0, 1, 2, 3]))),
    "linear": lambda x: F.linear(x, whole(data(3, 6)), whole(data(3))),
}


def gathered(tensor):
    return tensor.full_tensor() if isinstance(tensor, DTensor) else tensor


def derivative(function, placement):
    x = spread(data(4, 6), placement).requires_grad_()
    y = function(x)
    (y * whole(data(*y.shape) + 0.3)).sum().backward()
    return gathered(y.detach()), gathered(x.grad)


def embedding(placement):
    table = spread(data(10, 4), placement).requires_grad_()
    y = F.embedding(whole(torch.tensor([[1, 2], [9, 5]])), table)
    (y * y).sum().backward()
    return gathered(y.detach()), gathered(table.grad)


def normalized(placement):
    x = spread(data(4, 6), placement).requires_grad_()
    weight, bias = (whole(data(6) + i).requires_grad_() for i in (1, 2))
    F.layer_norm(x, (6,), weight, bias).square().sum().backward()
    return [gathered(t.grad) for t in (x, weight, bias)]


def stepped(placement):
    """Steps of an optimizer on parameters that lie differently."""
    weight, bias = spread(data(4, 6), placement).requires_grad_(), whole(data(6)).requires_grad_()
    optimizer = torch.optim.AdamW([weight, bias], lr=0.1)
    for _ in range(2):
        optimizer.zero_grad()
        (whole(data(3, 4)) @ weight + bias).square().sum().backward()
        optimizer.step()
    return gathered(weight.detach()), gathered(bias.detach())


cases = {name: lambda p, f=function: derivative(f, p) for name, function in OPERATORS.items()}
cases |= {"embedding": embedding, "norm with weights": normalized, "optimizer": stepped}
for name, run in cases.items():
    plain = True
    expected = run(None)
    plain = False
    for placement in (Shard(0), Shard(1), Replicate()):
        for mine, theirs in zip(run(placement), expected, strict=True):
            assert torch.allclose(mine, theirs, atol=1e-5), (name, placement, mine, theirs)

# Random numbers do not repeat from part to part, and replicas are alike.
torch.manual_seed(dist.get_rank())
x = spread(torch.zeros(4, 4), Shard(0)).uniform_()
assert x.full_tensor().unique().numel() == 16
y = torch.randn_like(whole(torch.zeros(4, 4)))
both = [None, None]
dist.all_gather_object(both, y.to_local().tolist())
assert both[0] == both[1]

# A mesh may have fewer processes than there are.
part = init_device_mesh("cpu", (1,))
assert part.size() == 1 and (part.get_coordinate() is None) == (dist.get_rank() == 1)
dist.destroy_process_group()
