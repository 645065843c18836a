"""Parts of the API that programs meet less often: wrappers, state of optimizers, planners, losses on parts, schedules."""
# ranks: 2

import copy
import functools
import tempfile

import torch
import torch.distributed as dist
import torch.distributed.checkpoint as dcp
import torch.nn.functional as F
from torch import nn
from torch.distributed.checkpoint import DefaultLoadPlanner, DefaultSavePlanner, FileSystemReader
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import FullOptimStateDictConfig, FullStateDictConfig, StateDictType, fully_shard
from torch.distributed.fsdp import FullyShardedDataParallel as FSDP
from torch.distributed.fsdp.wrap import enable_wrap, wrap
from torch.distributed.tensor import DTensor, Replicate, Shard, distribute_tensor
from torch.distributed.tensor.parallel import loss_parallel

dist.init_process_group("gloo")
rank, size = dist.get_rank(), dist.get_world_size()
mesh = init_device_mesh("cpu", (size,))


def model():
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Linear(16, 4))


def shared_folder():
    box = [tempfile.mkdtemp()]
    dist.broadcast_object_list(box, src=0)
    return box[0]


def train(module, optimizer, steps=2):
    losses = []
    for i in range(steps):
        optimizer.zero_grad()
        loss = module(torch.full((2, 8), 0.1 * (i + 1) + rank)).square().mean()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    return losses


def logits_stay_divided_in_the_loss():
    torch.manual_seed(1)
    logits, target = torch.randn(4, 6), torch.tensor([0, 2, 5, 3])
    for options in ({}, {"reduction": "sum"}, {"weight": torch.arange(1.0, 7.0), "ignore_index": 2}):
        plain = logits.clone().requires_grad_()
        expected = F.cross_entropy(plain, target, **options)
        expected.backward()
        divided = distribute_tensor(logits, mesh, [Shard(1)]).requires_grad_()
        with loss_parallel():
            loss = F.cross_entropy(divided, target, **options)
            loss.backward()
        assert torch.allclose(loss.full_tensor(), expected), options
        assert divided.grad.placements == (Shard(1),)
        assert torch.allclose(divided.grad.full_tensor(), plain.grad, atol=1e-6), options


def sharded_gradients_go_through_hooks():
    from torch.distributed.algorithms._comm_hooks import default_hooks

    def losses(hook, state):
        net = FSDP(model(), device_id=torch.device("cpu"))
        if hook is not None:
            net.register_comm_hook(state, hook)
        return torch.tensor(train(net, torch.optim.SGD(net.parameters(), lr=0.1)))

    plain = losses(None, None)
    state = default_hooks.LowPrecisionState(dist.group.WORLD)
    assert torch.allclose(
        losses(default_hooks.reduce_scatter_hook, default_hooks.DefaultState(dist.group.WORLD)), plain
    )
    for hook in (default_hooks.fp16_compress_hook, default_hooks.bf16_compress_hook):
        assert torch.allclose(losses(hook, state), plain, rtol=0.02, atol=1e-3)


def optimizer_state_moves_between_sharded_models():
    full = StateDictType.FULL_STATE_DICT, FullStateDictConfig(), FullOptimStateDictConfig(rank0_only=False)
    first = FSDP(model(), device_id=torch.device("cpu"), use_orig_params=True)
    one = torch.optim.Adam(first.parameters(), lr=0.01)
    train(first, one)
    FSDP.set_state_dict_type(first, *full)
    state, optim = first.state_dict(), FSDP.optim_state_dict(first, one)
    assert optim["state"]["0.weight"]["exp_avg"].shape == (16, 8)
    second = FSDP(model(), device_id=torch.device("cpu"), use_orig_params=True)
    two = torch.optim.Adam(second.parameters(), lr=0.01)
    FSDP.set_state_dict_type(second, *full)
    second.load_state_dict(state)
    two.load_state_dict(FSDP.optim_state_dict_to_load(second, two, optim))
    assert torch.allclose(torch.tensor(train(first, one)), torch.tensor(train(second, two)), atol=1e-6)
    with enable_wrap(wrapper_cls=FSDP, device_id=torch.device("cpu")):
        assert isinstance(wrap(nn.Linear(2, 2)), FSDP)


def parameters_made_on_meta_are_filled_after_the_division():
    with torch.device("meta"):
        net = model()
    fully_shard(net)
    net.to_empty(device="cpu")
    with torch.no_grad():
        for parameter in net.parameters():
            parameter.fill_(0.5)
    net(torch.ones(2, 8)).sum().backward()
    assert all(parameter.grad is not None for parameter in net.parameters())
    assert torch.equal(net[0].weight.full_tensor(), torch.full((16, 8), 0.5))


class Renaming(DefaultSavePlanner):
    def set_up_planner(self, state_dict, storage_meta=None, is_coordinator=False):
        super().set_up_planner({f"new.{k}": v for k, v in state_dict.items()}, storage_meta, is_coordinator)


def planners_may_be_subclassed():
    folder = shared_folder()
    saved = {"a": torch.arange(4.0), "b": distribute_tensor(torch.arange(6.0), mesh, [Shard(0)])}
    dcp.save(saved, checkpoint_id=folder, planner=Renaming())
    assert sorted(FileSystemReader(folder).read_metadata().state_dict_metadata) == ["new.a", "new.b"]
    loaded = {"new": {"a": torch.zeros(4), "b": torch.zeros(6)}, "other": torch.zeros(1)}
    dcp.load(loaded, checkpoint_id=folder, planner=DefaultLoadPlanner(allow_partial_load=True))
    assert torch.equal(loaded["new"]["a"], torch.arange(4.0)) and torch.equal(loaded["new"]["b"], torch.arange(6.0))
    try:
        dcp.load({"other": torch.zeros(1)}, checkpoint_id=folder)
    except dcp.CheckpointException as error:
        assert sorted(error.failures) == [0, 1]
    else:
        raise AssertionError("a missing name was not told")


def safetensors_are_written_and_read():
    folder = shared_folder()
    state = {"a": torch.arange(4.0), "b": torch.ones(3)}
    writer = dcp.HuggingFaceStorageWriter(folder, fqn_to_index_mapping={"a": 1, "b": 2})
    dcp.save(state, storage_writer=writer)
    loaded = {"a": torch.zeros(4), "b": torch.zeros(3)}
    dcp.load(loaded, storage_reader=dcp.HuggingFaceStorageReader(folder))
    assert all(torch.equal(loaded[k], state[k]) for k in state)
    parts = shared_folder()
    divided = {"a": distribute_tensor(torch.arange(8.0), mesh, [Shard(0)])}
    dcp.save(divided, storage_writer=dcp.HuggingFaceStorageWriter(parts, save_distributed=True))
    whole = {"a": torch.zeros(8)}
    dcp.load(whole, storage_reader=dcp.HuggingFaceStorageReader(parts))
    assert torch.equal(whole["a"], torch.arange(8.0))


def in_place_collectives_are_in_one_graph():
    @functools.partial(torch.compile, fullgraph=True)
    def step(x):
        y = x * 2
        dist.all_reduce(y)
        whole = torch.empty(4)
        dist.all_gather_into_tensor(whole, y)
        part = torch.empty(2)
        dist.reduce_scatter_tensor(part, whole + 1)
        return part

    assert torch.equal(step(torch.ones(2)), torch.full((2,), (2.0 * size + 1) * size))


def attention_over_divided_sequences():
    from torch.distributed.tensor.experimental import context_parallel
    from torch.distributed.tensor.experimental._attention import context_parallel_unshard

    torch.manual_seed(3)
    whole = [torch.randn(1, 2, 8, 4) for _ in range(3)]
    plain = [t.clone().requires_grad_() for t in whole]
    expected = F.scaled_dot_product_attention(*plain, is_causal=True)
    expected.square().sum().backward()
    parts = [t.clone() for t in whole]
    with context_parallel(mesh, buffers=parts, buffer_seq_dims=[2, 2, 2], no_restore_buffers=set(parts)):
        for t in parts:
            t.requires_grad_()
        output = F.scaled_dot_product_attention(*parts, is_causal=True)
        output.square().sum().backward()
    joined = context_parallel_unshard(mesh, [output.detach(), *(t.grad for t in parts)], [2, 2, 2, 2])
    for found, wanted in zip(joined, [expected, *(t.grad for t in plain)]):
        assert torch.allclose(found, wanted, atol=1e-5)


def stages_down_and_up_the_ranks():
    from torch.distributed.pipelining import PipelineStage, ScheduleInterleavedZeroBubble, ScheduleZBVZeroBubble

    torch.manual_seed(4)
    layers = [nn.Linear(4, 4) for _ in range(2 * size)]
    data, target = torch.randn(8, 4), torch.randn(8, 4)
    reference = copy.deepcopy(nn.Sequential(*layers))
    F.mse_loss(reference(data), target).backward()
    for kind, own in (
        (ScheduleInterleavedZeroBubble, [rank, rank + size]),
        (ScheduleZBVZeroBubble, [rank, 2 * size - 1 - rank]),
    ):
        copies = copy.deepcopy(layers)
        stages = [PipelineStage(copies[i], i, 2 * size, torch.device("cpu")) for i in own]
        schedule = kind(stages, n_microbatches=4, loss_fn=F.mse_loss)
        inputs = (data,) if 0 in own else ()
        schedule.step(*inputs, target=target) if 2 * size - 1 in own else schedule.step(*inputs)
        for i in own:
            assert torch.allclose(copies[i].weight.grad, reference[i].weight.grad, atol=1e-5), (kind, i)


def programs_register_rules():
    from torch.distributed.tensor.experimental import register_sharding

    @register_sharding(torch.ops.aten.cumsum.default)
    def columns(x, dim, **_):
        others = [i for i in range(x.ndim) if i != dim % x.ndim]
        return [([Replicate()], [Replicate(), None]), *(([Shard(i)], [Shard(i), None]) for i in others)]

    values = distribute_tensor(torch.ones(4, 2), mesh, [Shard(0)])
    assert values.cumsum(1).placements == (Shard(0),)
    assert isinstance(values, DTensor)


def norms_of_parts_make_the_norm_of_the_whole():
    whole = torch.sin(torch.arange(24.0)).view(4, 6)
    divided = distribute_tensor(whole, mesh, [Shard(0)])
    for order, dims in ((2, None), (2, 0), (2, 1), (1, 0), (3, [0, 1]), (float("inf"), None)):
        result = torch.linalg.vector_norm(divided, order, dims)
        assert not result.placements[0].is_replicate(), "its parts were gathered"
        assert torch.allclose(result.full_tensor(), torch.linalg.vector_norm(whole, order, dims), atol=1e-5)


def collectives_are_counted():
    from torch.distributed.tensor.debug import CommDebugMode

    divided = distribute_tensor(torch.ones(4, 4), mesh, [Shard(0)])
    with CommDebugMode() as counter:
        divided.redistribute(mesh, [Replicate()])
    counts, ops = counter.get_comm_counts(), torch.ops.c10d_functional
    assert counts[ops.all_gather_into_tensor] == 1 and counts[ops.all_reduce] == 0


logits_stay_divided_in_the_loss()
collectives_are_counted()
norms_of_parts_make_the_norm_of_the_whole()
sharded_gradients_go_through_hooks()
optimizer_state_moves_between_sharded_models()
parameters_made_on_meta_are_filled_after_the_division()
planners_may_be_subclassed()
safetensors_are_written_and_read()
in_place_collectives_are_in_one_graph()
attention_over_divided_sequences()
stages_down_and_up_the_ranks()
programs_register_rules()
dist.destroy_process_group()
