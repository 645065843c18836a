"""The recipes of docs/distributed.md for clusters, with what a cluster would set played by this machine."""

import itertools
import os
import pathlib
import re
import shlex
import subprocess
import sys

import pytest

sys.path.append(str(pathlib.Path(__file__).parent.parent))
from launching import ROOT, child_environment, free_port

GLOO = ROOT / "flambeau" / "libflambeau_gloo.so"
RECIPES = (ROOT / "docs" / "distributed.md").read_text()
TRAIN = """
import os, torch, torch.distributed as dist
dist.init_process_group("gloo")
ones = torch.ones(1)
dist.all_reduce(ones)
os.write(1, f"rank {dist.get_rank()} local {os.environ['LOCAL_RANK']} sum {int(ones)}\\n".encode())
dist.destroy_process_group()
"""
# What Slurm's command does for a job of one step on several hosts: the program on each task, with its variables.
SRUN = """#!{python}
import os, subprocess, sys
place = sys.argv.index("--ntasks-per-node")
each, command, hosts = int(sys.argv[place + 1]), sys.argv[place + 2 :], {hosts}
tasks = []
for task in range(each * len(hosts)):
    variables = {{
        "SLURM_PROCID": task, "SLURM_LOCALID": task % each, "SLURM_NODEID": task // each, "SLURM_NTASKS": each * len(hosts),
        "SLURM_JOB_ID": {job}, "SLURM_JOB_NODELIST": "localhost", "FLAMBEAU_HOST": hosts[task // each],
    }}
    tasks.append(subprocess.Popen(command, env=os.environ | {{name: str(value) for name, value in variables.items()}}))
sys.exit(max(task.wait() for task in tasks))
"""


@pytest.fixture
def machine(tmp_path):
    """A folder with train.py and, on the path, the programs that recipes call."""
    (tmp_path / "train.py").write_text(TRAIN)
    programs = tmp_path / "programs"
    programs.mkdir()

    def add(name, text):
        (programs / name).write_text(text)
        (programs / name).chmod(0o755)

    add("flambeau", f'#!/bin/sh\nexec {sys.executable} -m flambeau "$@"\n')
    environment = child_environment()
    environment["PATH"] = f"{programs}{os.pathsep}{environment['PATH']}"
    return tmp_path, add, environment


def report(outputs):
    return sorted(line for output in outputs for line in output.splitlines() if line.startswith("rank"))


def meeting_port():
    """A free one among those that are derived from the number of a Slurm job."""
    while not 20000 < (port := free_port()) < 40000:
        pass
    return port


@pytest.mark.parametrize("hosts", [["one"], ["one", "two"]])
def test_slurm(machine, hosts):
    if len(hosts) > 1 and not GLOO.exists():
        pytest.skip("built without Gloo (libgloo-dev)")
    folder, add, environment = machine
    command = shlex.split(re.search(r"^ +(srun .*)$", RECIPES, re.M)[1])
    add("srun", SRUN.format(python=sys.executable, hosts=hosts, job=meeting_port() - 20000))
    ended = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, timeout=100)
    count = 4 * len(hosts)
    expected = sorted(f"rank {rank} local {rank % 4} sum {count}" for rank in range(count))
    assert report([ended.stdout]) == expected, ended.stdout + ended.stderr


def manifest():
    yaml = pytest.importorskip("yaml")
    block = re.search(r"^    apiVersion: v1\n(?:(?:    .*)?\n)+", RECIPES, re.M)[0]
    service, job = yaml.safe_load_all("\n".join(line[4:] for line in block.splitlines()))
    return service, job


def test_the_manifest_for_kubernetes_fits_together():
    service, job = manifest()
    name, spec = job["metadata"]["name"], job["spec"]
    pod = spec["template"]["spec"]
    assert (service["kind"], job["kind"], spec["completionMode"]) == ("Service", "Job", "Indexed")
    assert pod["subdomain"] == service["metadata"]["name"]
    assert service["spec"]["selector"] == {"job-name": name}
    (container,) = pod["containers"]
    command = container["command"]
    assert all(isinstance(word, str) for word in command)
    options = dict(itertools.pairwise(command))
    assert int(options["--nnodes"]) == spec["completions"] == spec["parallelism"]
    assert options["--rdzv-endpoint"].partition(":")[0] == f"{name}-0.{pod['subdomain']}"
    assert {mount["name"] for mount in container["volumeMounts"]} == {volume["name"] for volume in pod["volumes"]}


def test_pods_meet(machine):
    folder, _, environment = machine
    _, job = manifest()
    command = list(job["spec"]["template"]["spec"]["containers"][0]["command"])
    command[command.index("--rdzv-endpoint") + 1] = f"localhost:{free_port()}"
    command[command.index("--nproc-per-node") + 1] = "1"
    pods = [
        subprocess.Popen(
            command, cwd=folder, env=environment | {"JOB_COMPLETION_INDEX": str(index)}, stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT, text=True,
        )
        for index in range(job["spec"]["completions"])
    ]  # fmt: skip
    outputs = [pod.communicate(timeout=100)[0] for pod in pods]
    assert [pod.returncode for pod in pods] == [0] * 4, outputs
    assert report(outputs) == [f"rank {rank} local 0 sum 4" for rank in range(4)], outputs
