"""`fully_shard`: what programs do around a step, such as optimizers in backward, accumulated gradients and state dicts."""
# ranks: 2

import torch
import torch.distributed as dist
from cases import case, filled, main
from torch import nn
from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard
from torch.distributed.tensor import DTensor
from torch.distributed.tensor.debug import CommDebugMode


def model(policy=None, **options):
    net = filled(nn.Sequential(nn.Linear(8, 8), nn.ReLU(), nn.Linear(8, 8)))
    options |= {} if policy is None else {"mp_policy": policy}
    fully_shard(net[0], **options)
    return fully_shard(net, **options)


def inputs(rows=2):
    return torch.sin(torch.arange(8.0 * rows) * (dist.get_rank() + 1)).view(rows, 8)


def gradients(net):
    return [None if p.grad is None else p.grad.full_tensor() for p in net.parameters()]


@case
def state_dict_after_forward():
    net = model(reshard_after_forward=False)
    net(inputs())
    kinds = [isinstance(value, DTensor) for value in net.state_dict().values()]
    net.load_state_dict({key: value * 2 for key, value in net.state_dict().items()})
    net(inputs()).sum().backward()
    return [kinds, gradients(net), [p.full_tensor() for p in net.parameters()]]


@case
def hooks_on_parts():
    net, seen = model(), []
    names = {parameter: name for name, parameter in net.named_parameters()}

    def take(parameter):
        seen.append([names[parameter], isinstance(parameter.grad, DTensor), parameter.grad.full_tensor()])
        parameter.grad = None

    for parameter in net.parameters():
        parameter.register_post_accumulate_grad_hook(take)
    net(inputs()).sum().backward()
    return [sorted(seen, key=lambda row: row[0]), gradients(net)]


@case
def optimizers_in_backward():
    net, losses = model(), []
    optimizers = {p: torch.optim.SGD([p], lr=0.1, momentum=0.9) for p in net.parameters()}

    def step(parameter):
        optimizers[parameter].step()
        optimizers[parameter].zero_grad()

    for parameter in net.parameters():
        parameter.register_post_accumulate_grad_hook(step)
    for _ in range(3):
        loss = net(inputs()).square().mean()
        loss.backward()
        losses.append(loss.detach())
    return [losses, [p.full_tensor() for p in net.parameters()]]


@case
def accumulated_gradients_have_the_dtype_of_reductions():
    results = []
    for reduced in (torch.float32, torch.bfloat16):
        net = model(MixedPrecisionPolicy(param_dtype=torch.bfloat16, reduce_dtype=reduced))
        x = torch.ones(1, 8) * (1 + 2**-7)
        for i in range(4):
            net.set_requires_gradient_sync(i == 3)
            (net(x * 2.0 ** (-3 * i)).float() * (dist.get_rank() + 1)).sum().backward()
        results.append([(gradient * 64).round() for gradient in gradients(net)])
    return results


@case
def collectives_of_a_step():
    net = model()
    with CommDebugMode() as forward:
        loss = net(inputs()).sum()
    with CommDebugMode() as backward:
        loss.backward()
    counts = [{str(key): n for key, n in mode.get_comm_counts().items()} for mode in (forward, backward)]
    # PyTorch keeps the parameters of the outermost module after forward, where here they are gathered again.
    return [counts[0], counts[1]["c10d._reduce_scatter_base_"]]


if __name__ == "__main__":
    main()
