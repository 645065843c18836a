"""The launcher: environments, failures, restarts, several nodes, functions."""

import json
import os
import pathlib
import subprocess
import sys
import textwrap
import threading
import time
from types import SimpleNamespace

import pytest

from flambeau.distributed import HashStore
from flambeau.distributed.elastic._agent import Agent
from flambeau.distributed.elastic.multiprocessing import DefaultLogsSpecs, Std, start_processes

sys.path.append(str(pathlib.Path(__file__).parent.parent))
from launching import child_environment, free_port

REPORT = """
import os, sys, torch, torch.distributed as dist
dist.init_process_group("gloo")
t = torch.ones(1)
dist.all_reduce(t)
names = ("RANK", "LOCAL_RANK", "WORLD_SIZE", "GROUP_RANK", "LOCAL_WORLD_SIZE", "TORCHELASTIC_RESTART_COUNT")
sys.stdout.write(f"sum {int(t)} of " + " ".join(os.environ[name] for name in names) + " " + " ".join(sys.argv[1:]) + "\\n")
dist.destroy_process_group()
"""


@pytest.fixture
def launch(tmp_path):
    def start(body, *options, arguments=(), module="torch.distributed.run", wait=True):
        program = tmp_path / f"program{len(list(tmp_path.iterdir()))}.py"
        program.write_text(textwrap.dedent(body))
        command = [sys.executable, "-m", module, *options, str(program), *arguments]
        process = subprocess.Popen(
            command, env=child_environment(), stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, cwd=tmp_path
        )
        if not wait:
            return process
        output, _ = process.communicate(timeout=60)
        return process.returncode, output

    return start


def lines(output):
    return sorted(line.strip() for line in output.splitlines() if line.startswith("sum"))


def test_workers_find_each_other(launch):
    code, output = launch(REPORT, "--standalone", "--nproc-per-node=3", arguments=("--flag", "x"))
    assert code == 0, output
    assert lines(output) == [f"sum 3 of {r} {r} 3 0 3 0 --flag x" for r in range(3)], output


def test_default_options_and_old_spellings(launch):
    code, output = launch(REPORT, "--nnodes=1", "--nproc_per_node", "2")
    assert code == 0 and len(lines(output)) == 2, output


def test_a_failing_worker_is_reported_and_ends_the_others(launch):
    code, output = launch(
        """
        import os, time
        from torch.distributed.elastic.multiprocessing.errors import record
        @record
        def main():
            if os.environ["RANK"] == "1":
                raise ValueError("broken on purpose")
            time.sleep(100)
        main()
        """,
        "--standalone", "--nproc-per-node=2",
    )  # fmt: skip
    assert code == 1 and "FAILED" in output and "broken on purpose" in output and "rank      : 1" in output, output


def test_workers_are_restarted(launch, tmp_path):
    code, output = launch(
        """
        import os, signal, sys, torch, torch.distributed as dist
        dist.init_process_group("gloo")
        attempt = int(os.environ["TORCHELASTIC_RESTART_COUNT"])
        dist.all_reduce(torch.ones(1))
        if dist.get_rank() == 1 and attempt < 2:
            os.kill(os.getpid(), signal.SIGKILL)
        t = torch.ones(1)
        dist.all_reduce(t)
        sys.stdout.write(f"sum {int(t)} attempt {attempt}\\n")
        """,
        "--standalone", "--nproc-per-node=3", "--max-restarts=3",
    )  # fmt: skip
    assert code == 0 and lines(output) == ["sum 3 attempt 2"] * 3, output


def test_two_agents_are_two_nodes(launch):
    port = free_port()
    options = (
        "--nnodes=2",
        "--nproc-per-node=2",
        "--rdzv-backend=c10d",
        f"--rdzv-endpoint=127.0.0.1:{port}",
        "--rdzv-id=job",
    )
    agents = [launch(REPORT, *options, wait=False) for _ in range(2)]
    outputs = [agent.communicate(timeout=60)[0] for agent in agents]
    assert [agent.returncode for agent in agents] == [0, 0], outputs
    ranks = sorted(line.split()[3] for output in outputs for line in lines(output))
    assert ranks == ["0", "1", "2", "3"] and all("sum 4" in line for output in outputs for line in lines(output)), (
        outputs
    )


def test_static_nodes(launch):
    port = free_port()
    agents = [
        launch(
            REPORT, "--nnodes=2", "--nproc-per-node=1", f"--node-rank={node}", "--master-addr=127.0.0.1",
            f"--master-port={port}", wait=False,
        )
        for node in (1, 0)
    ]  # fmt: skip
    outputs = [agent.communicate(timeout=60)[0] for agent in agents]
    assert [agent.returncode for agent in agents] == [0, 0], outputs
    assert [lines(output)[0].split()[3] for output in outputs] == ["1", "0"], outputs


@pytest.mark.parametrize("options", [["--rdzv-backend=file"], ["--rdzv-backend=c10d", "--rdzv-conf=store_type=file"]])
def test_nodes_meet_in_a_file(launch, tmp_path, options):
    file = tmp_path / "meeting"
    for _ in range(2):  # what the first job wrote does not mislead the second
        agents = [
            launch(REPORT, "--nnodes=2", *options, f"--rdzv-endpoint={file}", "--rdzv-id=job", wait=False)
            for _ in range(2)
        ]
        outputs = [agent.communicate(timeout=60)[0] for agent in agents]
        assert [agent.returncode for agent in agents] == [0, 0], outputs
        assert [line.split()[3] for line in lines("".join(outputs))] == ["0", "1"], outputs


def test_unknown_backends_are_refused(launch):
    code, output = launch(REPORT, "--rdzv-backend=etcd")
    assert code != 0 and "expected one of the backends static, c10d and file, got 'etcd'" in output


@pytest.mark.parametrize("end", ["raise ValueError('bad data')", "sys.exit(3)"])
def test_the_first_cause_is_told(launch, end):
    body = f"""
        import sys, torch, torch.distributed as dist
        dist.init_process_group("gloo")
        dist.all_reduce(torch.ones(1))
        if dist.get_rank() == 1:
            {end}
        dist.all_reduce(torch.ones(1))
    """
    code, output = launch(body, "--standalone", "--nproc-per-node=3")
    cause = output.partition("Root Cause")[2]
    assert code == 1 and "rank      : 1 (local_rank: 1)" in cause, output
    assert ("ValueError: bad data" in cause) == ("ValueError" in end), output
    assert ".py FAILED" in output and "-u FAILED" not in output, output


def test_a_round_that_closes_while_a_node_joins_counts_it():
    class Slow:
        """A store whose second joiner is held up, so that the first closes the round meanwhile."""

        def __init__(self, store):
            self.store = store

        def add(self, key, by):
            place = self.store.add(key, by)
            if key.endswith("joined") and by == 1 and place > 1:
                time.sleep(0.2)
            return place

        def __getattr__(self, name):
            return getattr(self.store, name)

    store, rounds = HashStore(), []
    job = SimpleNamespace(join_timeout=5, max_nodes=2, min_nodes=2, workers=1, node_rank=None, last_call=1)

    def meet():
        agent = object.__new__(Agent)
        agent.job, agent.store = job, Slow(store)
        rounds.append(agent._meet())

    threads = [threading.Thread(target=meet) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted((one.number, one.node, one.world_size) for one in rounds) == [(0, 0, 2), (0, 1, 2)]


def test_output_goes_to_files(launch, tmp_path):
    logs = tmp_path / "logs"
    code, output = launch(REPORT, "--standalone", "--nproc-per-node=2", "--redirects=3", f"--log-dir={logs}")
    assert code == 0 and not lines(output), output
    written = [path.read_text() for path in logs.rglob("stdout.log")]
    assert len(written) == 2 and all("sum 2" in text for text in written)
    code, output = launch(REPORT, "--standalone", "--nproc-per-node=2", "--tee=3", f"--log-dir={logs}")
    assert code == 0 and "[default0]:sum 2" in output and "[default1]:sum 2" in output, output
    assert len(list(logs.glob("*/attempt_0/*/stdout.log"))) == 4


def test_errors_lie_beside_output(launch, tmp_path):
    program = """
        import os
        from torch.distributed.elastic.multiprocessing.errors import record

        @record
        def main():
            if os.environ["RANK"] == "1":
                raise ValueError("recorded")

        main()
    """
    code, output = launch(program, "--standalone", "--nproc-per-node=2", f"--log-dir={tmp_path / 'logs'}")
    assert code == 1, output
    (path,) = tmp_path.glob("logs/*/attempt_0/1/error.json")
    assert json.loads(path.read_text())["message"]["message"] == "ValueError: recorded"


def test_lines_of_workers_stay_whole(launch):
    program = """
        import torch, torch.distributed as dist

        dist.init_process_group("gloo")
        for step in range(300):
            dist.barrier()
            print("rank", dist.get_rank(), "step", step)
    """
    code, output = launch(program, "--standalone", "--nproc-per-node=2")
    expected = [f"rank {rank} step {step}" for rank in (0, 1) for step in range(300)]
    assert code == 0 and sorted(one for one in output.splitlines() if one.startswith("rank")) == sorted(expected)


def test_functions_are_launched(launch):
    program = """
        import torch, torch.distributed as dist
        from torch.distributed.launcher.api import LaunchConfig, elastic_launch
        def work(scale):
            dist.init_process_group("gloo")
            t = torch.tensor([float(dist.get_rank() + 1)])
            dist.all_reduce(t)
            dist.destroy_process_group()
            return scale * t.item()
        def spawned(rank, size, port):
            dist.init_process_group("gloo", init_method=f"tcp://127.0.0.1:{port}", rank=rank, world_size=size)
            t = torch.ones(2)
            dist.all_reduce(t)
            assert t.tolist() == [size, size]
            dist.destroy_process_group()
        if __name__ == "__main__":
            import sys, torch.multiprocessing as mp
            mp.spawn(spawned, args=(2, int(sys.argv[1])), nprocs=2)
            config = LaunchConfig(min_nodes=1, max_nodes=1, nproc_per_node=2, run_id="x", rdzv_backend="c10d",
                                  rdzv_endpoint="localhost:0", max_restarts=0)
            assert elastic_launch(config, work)(10) == {0: 30.0, 1: 30.0}
            print("sum ok")
    """
    process = launch(program, "--standalone", arguments=(str(free_port()),), wait=False)
    output, _ = process.communicate(timeout=60)
    assert process.returncode == 0 and lines(output) == ["sum ok"], output


def test_command_line(tmp_path):
    program = tmp_path / "program.py"
    program.write_text(REPORT)
    command = [sys.executable, "-m", "flambeau", "launch", "--nproc-per-node=2", str(program)]
    environment = {k: v for k, v in os.environ.items() if k != "FLAMBEAU_AS_TORCH"} | {
        "PYTHONPATH": child_environment()["PYTHONPATH"]
    }
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=60)
    assert done.returncode == 0 and len(lines(done.stdout)) == 2, done.stdout + done.stderr


def square(value):
    print(f"value {value} of {os.environ['NAME']}", flush=True)
    if value < 0:
        raise ValueError("negative")
    return value * value


def test_processes_are_started_and_watched_together(tmp_path):
    envs = {0: {"NAME": "a"}, 1: {"NAME": "b"}}
    logs = DefaultLogsSpecs(log_dir=str(tmp_path), redirects=Std.ALL)
    context = start_processes("programs", "echo", {0: ("x",), 1: ("y",)}, envs, logs)
    result = context.wait()
    assert not result.is_failed() and [pathlib.Path(result.stdouts[i]).read_text() for i in range(2)] == ["x\n", "y\n"]
    context = start_processes("functions", square, {0: (2,), 1: (3,)}, envs, logs, start_method="fork")
    result = context.wait(timeout=60)
    assert result.return_values == {0: 4, 1: 9} and pathlib.Path(result.stdouts[1]).read_text() == "value 3 of b\n"
    context = start_processes("failing", square, {0: (2,), 1: (-3,)}, envs, logs, start_method="fork")
    result = context.wait(timeout=60)
    assert set(result.failures) == {1} and "negative" in str(result.failures[1].message)
    context = start_processes("slow", "sleep", {0: (60,)}, {0: {}}, logs)
    assert context.wait(timeout=0.1) is None and context.pids()[0] > 0
    context.close()
