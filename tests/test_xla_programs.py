"""More of what programs for PyTorch/XLA do in one process: divided modules, checkpoints, accumulated gradients, traces."""

import functools
import json
import os
import subprocess
import sys

import pytest

pytest.importorskip("jaxlib", reason="jaxlib is not installed")

import flambeau as fl
from flambeau import xla
from flambeau.xla.core import functions
from flambeau.xla.core import xla_model as xm
from flambeau.xla.debug import profiler as xp
from flambeau.xla.distributed import spmd
from flambeau.xla.distributed.fsdp import XlaFullyShardedDataParallel, checkpoint_module
from flambeau.xla.distributed.fsdp.wrap import transformer_auto_wrap_policy
from flambeau.xla.experimental.assume_pure import assume_pure
from flambeau.xla.experimental.distributed_checkpoint import CheckpointManager, prime_optimizer
from flambeau.xla.experimental.gradient_accumulation import gradient_accumulation
from flambeau.xla.experimental.scan_layers import scan_layers
from flambeau.xla.experimental.spmd_fully_sharded_data_parallel import SpmdFullyShardedDataParallel


def mlp():
    fl.manual_seed(0)
    return fl.nn.Sequential(fl.nn.Linear(4, 8), fl.nn.ReLU(), fl.nn.Linear(8, 2)).to("xla")


def trained(model, steps=3):
    optimizer = fl.optim.SGD(model.parameters(), lr=0.1)
    x = fl.arange(12.0, device="xla").reshape(3, 4)
    losses = []
    for _ in range(steps):
        with xla.step():
            optimizer.zero_grad()
            loss = model(x).float().square().mean()
            loss.backward()
            xm.optimizer_step(optimizer)
        losses.append(loss.item())
    return losses


def test_divided_modules_train_as_whole_ones():
    expected = trained(mlp())
    policy = functools.partial(transformer_auto_wrap_policy, transformer_layer_cls={fl.nn.Linear})
    divided = XlaFullyShardedDataParallel(mlp(), auto_wrap_policy=policy)
    assert isinstance(divided.module[0], XlaFullyShardedDataParallel) and divided.module[0].weight.shape == (8, 4)
    assert trained(divided) == pytest.approx(expected)
    assert divided.clip_grad_norm_(1.0) > 0 and divided.get_shard_metadata()["world_size"] == 1
    assert trained(XlaFullyShardedDataParallel(mlp(), compute_dtype=fl.bfloat16)) == pytest.approx(expected, rel=0.1)
    assert trained(checkpoint_module(mlp())) == pytest.approx(expected)
    with pytest.raises(ValueError, match="the one process"):
        XlaFullyShardedDataParallel(mlp(), sharding_rank=1, sharding_world_size=2)


def test_modules_over_a_mesh():
    seen = []
    spmd.set_global_mesh(spmd.get_1d_mesh("fsdp"))
    model = SpmdFullyShardedDataParallel(mlp(), shard_output=lambda output, mesh: seen.append(mesh.axis_names))
    assert trained(model, 1) == pytest.approx(trained(mlp(), 1)) and seen == [("fsdp",)]
    spec = spmd.ShardingSpec(spmd.get_global_mesh(), ("fsdp", None))
    assert spec.can_apply(fl.ones(2, 2)) and not spec.can_apply(fl.ones(2))


def test_gradients_are_accumulated():
    model, x, y = mlp(), fl.randn(4, 3, 4, device="xla"), fl.randn(4, 3, 2, device="xla")

    def step(x, y, count):
        return fl.nn.functional.mse_loss(model(x), y), count + 1

    loss, count = gradient_accumulation(step, (x, y), model, fl.zeros((), device="xla"))
    xla.sync()
    accumulated = [p.grad.clone() for p in model.parameters()]
    model.zero_grad()
    whole = fl.nn.functional.mse_loss(model(x.reshape(12, 4)), y.reshape(12, 2))
    whole.backward()
    assert count.item() == 4 and loss.item() == pytest.approx(whole.item())
    for a, p in zip(accumulated, model.parameters()):
        fl.testing.assert_close(a.cpu(), p.grad.cpu())


def test_layers_in_a_row_and_pure_functions():
    layers, x = [fl.nn.Linear(4, 4).to("xla") for _ in range(3)], fl.ones(2, 4, device="xla")
    fl.testing.assert_close(scan_layers(layers, x).cpu(), layers[2](layers[1](layers[0](x))).cpu())
    draw = assume_pure(lambda t: fl.rand_like(t), add_rng_seed_argument=True)
    assert draw(x, rng_seed=3).tolist() == draw(x, rng_seed=3).tolist() != draw(x, rng_seed=4).tolist()
    assert functions.all_reduce(xm.REDUCE_SUM, x, 0.5).tolist() == [[0.5] * 4] * 2


def test_checkpoints_of_steps(tmp_path):
    model = mlp()
    optimizer = prime_optimizer(fl.optim.AdamW(model.parameters(), lr=0.1))
    before = [p.tolist() for p in model.parameters()]
    assert before == [p.tolist() for p in mlp().parameters()] and optimizer.param_groups[0]["lr"] == 0.1
    manager = CheckpointManager(tmp_path, save_interval=2, max_to_keep=2)
    for step in range(7):
        assert manager.save(step, {"model": model.state_dict()}) == (step % 2 == 0)
    assert manager.all_steps() == [4, 6]
    with fl.no_grad():
        model[0].weight.zero_()
    state = {"model": model.state_dict()}
    manager.restore(6, state)
    model.load_state_dict(state["model"])
    assert [p.tolist() for p in model.parameters()] == before
    with pytest.raises(ValueError, match="one of the steps"):
        manager.restore(5, state)


def test_traces(tmp_path):
    xp.start_trace(str(tmp_path / "a"))
    with xp.StepTrace("train_step"):
        fl.ones(2, device="xla") + 1
    xp.stop_trace()
    server = xp.start_server(0)
    xp.trace(f"localhost:{server.server_address[1]}", str(tmp_path / "b"), duration_ms=20)
    server.shutdown()
    for name in "ab":
        (path,) = (tmp_path / name).glob("plugins/profile/*/*.trace.json")
        events = json.loads(path.read_text())["traceEvents"]
        assert name == "b" or any(e.get("name") == "train_step" for e in events)


def test_what_torch_xla_lacks_is_no_attribute(tmp_path):
    program = "import flambeau.as_torch, torch_xla; print(hasattr(torch_xla, 'nothing_of_this_name'), torch_xla.version.__version__)"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert done.stdout.split()[0] == "False", done.stderr


def test_libraries_that_look_for_torch_xla_find_what_the_program_imports(tmp_path):
    site = tmp_path / "site-packages"
    site.mkdir()
    (site / "looks.py").write_text(
        "import importlib.util\n"
        "found = importlib.util.find_spec('torch_xla') is not None\n"
        "try:\n    import torch_xla.core.xla_model as xm\nexcept ImportError:\n    xm = None\n"
    )
    looks = "import looks; print(looks.found, looks.xm is not None)"
    for program, environment, printed in (
        (f"import flambeau.as_torch; {looks}", {}, "False False"),
        (f"import flambeau.as_torch, torch_xla; {looks}", {}, "True True"),
        (f"import flambeau.as_torch; {looks}", {"PJRT_DEVICE": "CPU"}, "True True"),
    ):
        outside = {name: value for name, value in os.environ.items() if name != "PJRT_DEVICE"}
        path = os.pathsep.join([str(site), *sys.path])
        done = subprocess.run(
            [sys.executable, "-c", program],
            env={**outside, **environment, "PYTHONPATH": path},
            capture_output=True,
            text=True,
        )
        assert done.stdout.strip() == printed, done.stdout + done.stderr
