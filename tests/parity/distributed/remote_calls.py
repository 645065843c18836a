"""rpc, remote references, distributed autograd and its optimizer."""
# ranks: 2

import time

import torch
import torch.distributed as dist
import torch.distributed.autograd as dist_autograd
import torch.distributed.rpc as rpc
from cases import case, filled, main
from torch import nn
from torch.distributed.optim import DistributedOptimizer


def rank():
    return dist.get_rank()


def other():
    return f"worker{1 - rank()}"


def add(a, b=1):
    return a + b


def fail():
    raise ValueError("expected to fail")


def nap(seconds):
    time.sleep(seconds)
    return "awake"


def call_back(name):
    return rpc.rpc_sync(name, add, args=(10, 5))


@rpc.functions.async_execution
def later(x):
    return rpc.rpc_async(f"worker{1 - rank()}", add, args=(x, 1)).then(lambda f: f.wait() * 10)


class Counter:
    def __init__(self, start):
        self.count = start

    def add(self, n):
        self.count += n
        return self.count

    @staticmethod
    def fixed(x):
        return x * 3

    @rpc.functions.async_execution
    def slow(self, x):
        return rpc.rpc_async(f"worker{1 - rank()}", add, args=(x, self.count))


def use(reference):
    return [
        reference.is_owner(),
        reference.to_here() if not reference.is_owner() else reference.local_value(),
        reference.owner_name(),
    ]


def value_of(reference):
    return reference.local_value()


def tried(function, *arguments, **named):
    try:
        return function(*arguments, **named)
    except Exception as error:
        return {"raised": [c.__name__ for c in type(error).__mro__]}


@case
def start():
    options = rpc.TensorPipeRpcBackendOptions(num_worker_threads=8, rpc_timeout=20)
    rpc.init_rpc(f"worker{rank()}", rank=rank(), world_size=2, rpc_backend_options=options)
    info = rpc.get_worker_info()
    return [
        info.name,
        info.id,
        rpc.get_worker_info(other()).id,
        repr(rpc.BackendType.TENSORPIPE),
        options.rpc_timeout,
        options.init_method,
    ]


@case
def calls():
    future = rpc.rpc_async(other(), add, args=(torch.ones(2),), kwargs={"b": torch.full((2,), 3.0)})
    return [
        rpc.rpc_sync(other(), add, args=(torch.ones(2), 2)), rpc.rpc_sync(1 - rank(), add, args=(1,)), future.wait(),
        rpc.rpc_sync(other(), torch.add, args=(torch.ones(2), 1)), rpc.rpc_sync(rpc.get_worker_info(other()), min, args=(3, 2)),
        rpc.rpc_sync(f"worker{rank()}", add, args=(5,)), rpc.rpc_sync(other(), Counter.fixed, args=(4,)),
        rpc.rpc_sync(other(), call_back, args=(f"worker{rank()}",)), [f.wait() for f in [rpc.rpc_async(other(), add, args=(i,)) for i in range(5)]],
        rpc.rpc_async(other(), add, args=(1,)).then(lambda f: f.wait() + 100).wait(), rpc.rpc_sync(other(), torch.nn.functional.relu, args=(torch.tensor([-1.0, 2.0]),)),
    ]  # fmt: skip


@case
def failures():
    message = ""
    try:
        rpc.rpc_sync(other(), fail)
    except ValueError as error:
        message = "expected to fail" in str(error)
    return [
        tried(rpc.rpc_sync, other(), fail), message, tried(rpc.rpc_sync, "nobody", add, args=(1,)), tried(rpc.rpc_sync, other(), 5),
        tried(rpc.rpc_sync, other(), nap, args=(1,), timeout=0.1), tried(rpc.rpc_async(other(), fail).wait), tried(rpc.remote(other(), fail).to_here),
        tried(rpc.init_rpc, "again", rank=rank(), world_size=2),
    ]  # fmt: skip


@case
def asynchronous():
    return [
        rpc.rpc_sync(other(), later, args=(2,)),
        rpc.rpc_async(other(), later, args=(3,)).wait(),
        rpc.remote(other(), later, args=(4,)).to_here(),
    ]


@case
def references():
    made = rpc.remote(other(), Counter, args=(10,))
    tensor = rpc.remote(other(), torch.add, args=(torch.ones(2), 3))
    own = rpc.RRef([1, 2])
    results = [
        made.rpc_sync().add(5), made.rpc_async().add(5).wait(), made.remote().add(5).to_here(), made.is_owner(), made.owner_name(), made.owner().id,
        tensor.to_here(), own.local_value(), own.is_owner(), own.to_here(), rpc.rpc_sync(other(), use, args=(own,)), rpc.rpc_sync(other(), use, args=(tensor,)),
        tried(made.local_value), rpc.rpc_sync(other(), value_of, args=(tensor,)), made.rpc_sync().slow(1), own.confirmed_by_owner(),
    ]  # fmt: skip
    made._get_future().wait() if hasattr(made, "_get_future") else None
    return [*results, made.confirmed_by_owner()]


@case
def wait_all():
    with rpc.api._wait_all():
        first = rpc.rpc_async(other(), add, args=(1,))
        second = rpc.rpc_async(other(), add, args=(2,))
    return [first.done(), first.value(), second.value()]


PARAMETER = {}


def multiply(x):
    if "w" not in PARAMETER:
        PARAMETER["w"] = torch.full((2,), 2.0, requires_grad=True)
    return x * PARAMETER["w"]


def gradient_of_parameter(context):
    return dist_autograd.get_gradients(context)[PARAMETER["w"]]


def through_both(x, name):
    return rpc.rpc_sync(name, multiply, args=(x * 3,))


@case
def gradients():
    x = torch.tensor([1.0, 2.0], requires_grad=True)
    with dist_autograd.context() as context:
        y = rpc.rpc_sync(other(), multiply, args=(x,))
        loss = (y * y + x).sum()
        dist_autograd.backward(context, [loss])
        own = dist_autograd.get_gradients(context)[x]
        remote = rpc.rpc_sync(other(), gradient_of_parameter, args=(context,))
    dist.barrier()
    with dist_autograd.context() as context:
        z = rpc.rpc_sync(other(), through_both, args=(x, f"worker{rank()}")).sum()
        dist_autograd.backward(context, [z])
        nested = dist_autograd.get_gradients(context)[x]
    dist.barrier()
    with dist_autograd.context() as context:
        local = (x * 5).sum()
        dist_autograd.backward(context, [local])
        plain = dist_autograd.get_gradients(context)[x]
    wrong = tried(dist_autograd.get_gradients, 12345)
    return [y, own, remote, nested, plain, x.grad, wrong]


class Layer(nn.Module):
    def __init__(self):
        super().__init__()
        self.linear = filled(nn.Linear(2, 2))

    def forward(self, x):
        return self.linear(x)

    def parameter_rrefs(self):
        return [rpc.RRef(p) for p in self.parameters()]


@case
def training():
    dist.barrier()
    if rank() == 1:
        dist.barrier()
        return None
    remote = rpc.remote("worker1", Layer)
    local = Layer()
    parameters = [*remote.rpc_sync().parameter_rrefs(), *local.parameter_rrefs()]
    optimizer = DistributedOptimizer(torch.optim.SGD, parameters, lr=0.1)
    losses = []
    for _ in range(3):
        with dist_autograd.context() as context:
            out = local(remote.rpc_sync().forward(torch.ones(1, 2)))
            loss = out.square().sum()
            dist_autograd.backward(context, [loss])
            optimizer.step(context)
        losses.append(loss.detach())
    dist.barrier()
    return [
        losses,
        [p.detach() for p in local.parameters()],
        [r.to_here() for r in remote.rpc_sync().parameter_rrefs()],
    ]


@case
def remote_modules():
    from torch.distributed.nn import RemoteModule

    dist.barrier()
    if rank() == 1:
        dist.barrier()
        return None
    module = RemoteModule("worker1/cpu", nn.Linear, args=(2, 1))
    out = module.forward(torch.ones(3, 2))
    later = module.forward_async(torch.ones(3, 2)).wait()
    count = len(module.remote_parameters())
    dist.barrier()
    return [list(out.shape), torch.equal(out, later), count]


@case
def end():
    rpc.shutdown()
    return tried(rpc.rpc_sync, "worker0", add, args=(1,))


if __name__ == "__main__":
    main()
