"""Archives that C++ programs write: read by LibTorch and by PyTorch, and the other way round."""

import os
import pathlib
import subprocess
import sys

import pytest
import torch

import flambeau as fl
from flambeau._inductor import build

RUNTIME = pathlib.Path(__file__).parents[1] / "runtime"
SOURCE = RUNTIME / "libtorch" / "interchange.cpp"
PACKAGE = pathlib.Path(fl.__file__).parent
THEIRS = pathlib.Path(torch.__file__).parent
pytestmark = pytest.mark.skipif(build.compiler() is None, reason="programs need a C++ compiler")


def built(source, target, standard, includes, folder, *libraries):
    command = [build.compiler(), "-O0", "-w", f"-std={standard}", *(f"-I{path}" for path in includes), source]
    command += ["-o", target, f"-L{folder}", *libraries, f"-Wl,-rpath,{folder}", "-pthread"]
    subprocess.run(command, check=True)
    return target


def built_here(source, target):
    return built(source, target, "c++17", [PACKAGE / "include"], PACKAGE, "-lflambeau")


@pytest.fixture(scope="module")
def programs(tmp_path_factory):
    folder = tmp_path_factory.mktemp("programs")
    include = THEIRS / "include"
    includes = [include, include / "torch" / "csrc" / "api" / "include"]
    libraries = ["-ltorch", "-ltorch_cpu", "-lc10"]
    return {
        "flambeau": built_here(SOURCE, folder / "ours"),
        "torch": built(SOURCE, folder / "theirs", "c++20", includes, THEIRS / "lib", *libraries),
    }


@pytest.mark.parametrize(("writer", "reader"), [("flambeau", "torch"), ("torch", "flambeau")])
def test_archives_are_interchanged(programs, writer, reader, tmp_path):
    for program, what in ((writer, "save"), (reader, "load")):
        done = subprocess.run([programs[program], tmp_path, what], capture_output=True, text=True)
        assert done.returncode == 0, done.stderr
    for library in (torch, fl):
        module = library.jit.load(tmp_path / "net.pt")
        assert len(list(module.parameters())) == 10
        assert next(name for name, _ in module.named_buffers()) == "count"
        archive = library.jit.load(tmp_path / "archive.pt")
        assert (archive.name, archive.rate, archive.list, archive.nested.flag) == ("best", 0.5, [1, 2, 3], True)
        assert library.load(tmp_path / "pickle.pt").tolist() == [1, 1, 1]


def test_state_dicts_of_python_are_values(tmp_path):
    source = tmp_path / "state.cpp"
    source.write_text("""
        #include <fstream>
        #include <iostream>
        #include <torch/torch.h>
        int main(int, char** argv) {
          std::ifstream file(argv[1], std::ios::binary);
          const std::vector<char> bytes((std::istreambuf_iterator<char>(file)), std::istreambuf_iterator<char>());
          for (const auto& entry : torch::pickle_load(bytes).toGenericDict())
            std::cout << entry.key().toStringRef() << " " << entry.value().toTensor().sum().item<double>() << std::endl;
        }
    """)
    module = torch.nn.Linear(2, 1)
    torch.nn.init.ones_(module.weight)
    torch.nn.init.zeros_(module.bias)
    torch.save(module.state_dict(), tmp_path / "state.pt")
    program = built_here(source, tmp_path / "state")
    done = subprocess.run([program, tmp_path / "state.pt"], capture_output=True, text=True)
    assert done.stdout.split() == ["weight", "2", "bias", "0"], done.stderr


def test_scripts_that_programs_save_run_in_pytorch(tmp_path):
    command = [sys.executable, "-W", "ignore", "-c", f"import deployed; deployed.save_all({str(tmp_path)!r})"]
    environment = {k: v for k, v in os.environ.items() if not k.startswith("FLAMBEAU_AS_TORCH")}
    subprocess.run(command, check=True, cwd=pathlib.Path(__file__).parent / "script", env=environment)
    archives = sorted(tmp_path.glob("*.pt"))
    program = built_here(RUNTIME / "script.cpp", tmp_path / "script")
    done = subprocess.run([program, *archives], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    for path in archives:
        module = torch.jit.load(f"{path}.saved").eval()
        torch.testing.assert_close(module(*module.example), module.expected, atol=1e-5, rtol=1e-4)
