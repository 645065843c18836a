"""The simulator of training steps: limits that any schedule has to keep, and the command that proposes plans."""

import textwrap

import pytest

import flambeau as fl
from flambeau import nn
from flambeau._commands import plan as command
from flambeau.distributed.simulator import Cluster, Layer, Plan, profile, propose, simulate

LAYERS = [Layer(f"{i}", 4e12, 2e8, 1e8, 1e7) for i in range(8)]
FAST = Cluster(hosts=1, gpus=8, inside=1e15, latency_inside=0.0)


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.up, self.down = nn.Linear(64, 256), nn.Linear(256, 64)

    def forward(self, x):
        return x + self.down(nn.functional.gelu(self.up(x)))


def model():
    return nn.Sequential(nn.Embedding(100, 64), nn.Sequential(*[Block() for _ in range(4)]), nn.Linear(64, 100))


def test_blocks_are_profiled_without_data():
    with fl.device("meta"):
        layers = profile(model(), (fl.zeros(2, 16, dtype=fl.int64),))
    assert [layer.name for layer in layers] == ["0", "1.0", "1.1", "1.2", "1.3", "2"]
    block = layers[1]
    assert block.operations == 2 * 2 * 32 * 64 * 256 and block.parameters == 4 * (2 * 64 * 256 + 256 + 64)
    assert block.output == 32 * 64 * 4 and block.activations == 32 * (256 + 64) * 4


def test_one_process_only_computes():
    report = simulate(LAYERS, FAST, Plan())
    assert report.communication == 0 and report.step == pytest.approx(3 * 32e12 / FAST.operations)


def test_collectives_take_the_time_of_rings():
    cluster = Cluster(hosts=4, gpus=8, inside=1e9, between=1e8, latency_inside=0, latency_between=0)
    assert cluster.all_reduce(8e6, 8) == pytest.approx(2 * 7 / 8 * 8e6 / 1e9)
    assert cluster.all_reduce(8e6, 4, stride=8) == pytest.approx(2 * 3 / 4 * 8e6 / 1e8)
    both = cluster.all_reduce(8e6, 32)
    assert both == pytest.approx(2 * (7 / 8 * 8e6 / 1e9 + 3 / 4 * 1e6 / 1e8))


def test_gradients_are_reduced_behind_backward():
    slow = Cluster(hosts=1, gpus=8, inside=2e10, latency_inside=0)
    report = simulate(LAYERS, slow, Plan(data=8, bucket=1e8))
    assert 0 < report.hidden < 1 and report.step < report.compute + report.communication
    whole = simulate(LAYERS, slow, Plan(data=8, bucket=1e12))
    assert whole.hidden == pytest.approx(0, abs=1e-6) and whole.step == pytest.approx(
        whole.compute + whole.communication
    )
    assert simulate(LAYERS, FAST, Plan(data=8)).step == pytest.approx(report.compute, rel=1e-3)


def test_pipelines_idle_while_they_fill():
    few = simulate(LAYERS, FAST, Plan(pipeline=4, microbatches=4))
    many = simulate(LAYERS, FAST, Plan(pipeline=4, microbatches=16))
    assert few.idle / few.step == pytest.approx(3 / 7, rel=0.01) and many.idle / many.step == pytest.approx(
        3 / 19, rel=0.01
    )


def test_sharding_saves_memory_and_costs_traffic():
    plain, sharded = (simulate(LAYERS, FAST, Plan(data=8, shard=shard)) for shard in (False, True))
    assert sharded.memory < plain.memory / 2
    cluster = Cluster(hosts=1, gpus=8)
    costs = [simulate(LAYERS, cluster, Plan(data=8, shard=shard)).communication for shard in (False, True)]
    assert costs[1] == pytest.approx(1.5 * costs[0], rel=0.2)


def test_plans_fit_into_memory():
    large = [Layer(f"{i}", 1e14, 1e10, 5e9, 1e8) for i in range(16)]
    reports = propose(large, Cluster(hosts=8, gpus=8))
    assert reports and all(report.memory <= 139e9 for report in reports)
    assert all(report.plan.size == 64 for report in reports)
    assert propose(LAYERS, Cluster(hosts=1, gpus=8))[0].plan.data == 8  # a small model is only replicated or sharded


def test_the_command_prints_a_table(tmp_path, capsys):
    program = tmp_path / "model.py"
    program.write_text(
        textwrap.dedent("""
        import flambeau as torch
        from flambeau import nn

        def make():
            return nn.Sequential(*[nn.Linear(4096, 4096) for _ in range(8)]), torch.zeros(64, 4096)
    """)
    )
    assert command.main([str(program), "--gpus", "16"]) == 0
    printed = capsys.readouterr().out
    assert "8 blocks, 0.54 GB of parameters, 2 hosts of 8 GPUs" in printed and "DDP" in printed
    assert command.main([f"{program}:other", "--gpus", "8"]) == 2
    program.write_text("from flambeau import nn\n\ndef make():\n    return nn.Linear(4, 4)\n")
    assert command.main([str(program), "--gpus", "8"]) == 2
    assert "expected (model, inputs) from make(), got Linear" in capsys.readouterr().err
