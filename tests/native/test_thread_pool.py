"""The thread pool by itself, under ThreadSanitizer where the compiler has it."""

import pathlib
import shutil
import subprocess

import pytest

ROOT = pathlib.Path(__file__).resolve().parents[2]
SOURCES = [
    ROOT / "tests/native/thread_pool_stress.cpp", ROOT / "csrc/core/thread_pool.cpp", ROOT / "csrc/core/thread_limits.cpp",
    ROOT / "csrc/core/thread_places.cpp",
]  # fmt: skip


def test_the_pool_has_no_races(tmp_path):
    compiler = shutil.which("g++") or shutil.which("clang++")
    if compiler is None:
        pytest.skip("this test needs a C++ compiler")
    program = tmp_path / "stress"
    command = [
        compiler,
        "-std=c++17",
        "-O1",
        "-g",
        "-w",
        f"-I{ROOT / 'csrc'}",
        *map(str, SOURCES),
        "-o",
        str(program),
        "-lpthread",
    ]
    if subprocess.run([*command, "-fsanitize=thread"], capture_output=True).returncode:
        subprocess.run(command, check=True)  # without a sanitizer it still finds deadlocks
    done = subprocess.run([str(program)], capture_output=True, text=True, timeout=120)
    if "unexpected memory mapping" in done.stderr:
        pytest.skip("ThreadSanitizer cannot run on this kernel")
    assert done.returncode == 0, done.stderr[-4000:]


# ---------------------------------------------------------------- machines with several memory nodes


@pytest.fixture(scope="module")
def places(tmp_path_factory):
    """The program that says where threads go on a machine whose nodes have the given lists of processors."""
    compiler = shutil.which("g++") or shutil.which("clang++")
    if compiler is None:
        pytest.skip("this test needs a C++ compiler")
    folder = tmp_path_factory.mktemp("places")
    sources = [ROOT / "tests/native/thread_places_check.cpp", ROOT / "csrc/core/thread_places.cpp"]
    command = [compiler, "-std=c++17", f"-I{ROOT / 'csrc'}", *map(str, sources), "-o", str(folder / "check")]
    subprocess.run(command, check=True)

    def run(machine, usable, first, threads, own):
        nodes = folder / str(abs(hash((tuple(machine), usable, first))))
        for node, processors in enumerate(machine):
            (nodes / f"node{node}").mkdir(parents=True, exist_ok=True)
            (nodes / f"node{node}" / "cpulist").write_text(processors + "\n")
        if machine:
            (nodes / "online").write_text(f"0-{len(machine) - 1}\n")
        numbers = map(str, (usable, first, threads, own))
        done = subprocess.run([str(folder / "check"), str(nodes), *numbers], capture_output=True, text=True, check=True)
        return done.stdout.splitlines()

    return run


def test_threads_fill_one_node_after_the_other(places):
    nodes, threads = places(["0-31,64-95", "32-63,96-127"], 128, 0, 128, 1)
    assert nodes.split() == ["64:0", "64:32"]
    assert threads == "1" * 64 + "0" * 64


def test_few_threads_stay_on_the_node_of_their_caller(places):
    _, threads = places(["0-15", "16-31", "32-47", "48-63"], 64, 0, 20, 2)
    assert threads == "2" * 16 + "3" * 4


def test_nodes_are_limited_to_the_affinity_mask(places):
    nodes, threads = places(["0-7", "8-15"], 6, 4, 12, 0)  # processors 4 to 9
    assert nodes.split() == ["4:4", "2:8"]
    assert threads == "000011000011"  # more threads than processors begin again


def test_machines_that_do_not_tell_have_no_nodes(places):
    nodes, threads = places([], 4, 0, 3, 0)
    assert nodes.split() == [] and threads == "000"
