"""`import torch` as a name of flambeau: in programs, their child processes, and what libraries ask about it."""

import os
import pathlib
import subprocess
import sys
import textwrap

import pytest

ROOT = pathlib.Path(__file__).resolve().parent.parent


def run(tmp_path, source, *arguments, command=("run",)):
    """Output of a program under `flambeau run`."""
    path = tmp_path / "program.py"
    path.write_text(textwrap.dedent(source))
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    done = subprocess.run(
        [sys.executable, "-m", "flambeau", *command, str(path), *arguments],
        capture_output=True, text=True, env=environment, cwd=tmp_path, timeout=120,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    return done.stdout.split("\n")[:-1]


def test_modules_are_the_same_objects_under_both_names(tmp_path):
    lines = run(
        tmp_path,
        """
        import sys
        import torch, flambeau
        import torch.nn.functional as F
        from torch.linalg import inv
        from torch.autograd import Function
        import torch.utils._pytree
        print(torch is flambeau, F is flambeau.nn.functional, inv is flambeau.linalg.inv)
        print(sys.modules["torch.nn"] is sys.modules["flambeau.nn"], Function is flambeau.autograd.Function)
        print(torch.__name__, torch.__spec__.name, sys.argv[1:], __name__, __file__.endswith("program.py"))
        """,
        "a", "--b",
    )  # fmt: skip
    assert lines == ["True True True", "True True", "torch flambeau ['a', '--b'] __main__ True"]


def test_libraries_find_a_version_and_a_distribution(tmp_path):
    lines = run(
        tmp_path,
        """
        import importlib.metadata, importlib.util
        print(importlib.metadata.version("torch"), importlib.util.find_spec("torch") is not None)
        print(importlib.util.find_spec("torch.no_such_module"), importlib.util.find_spec("torch.linalg") is not None)
        import torch
        print(torch.__version__, torch.version.__version__, torch.__version__ >= (2, 1), torch.__version__ < "2.9")
        print(tuple(int(n) for n in torch.__version__.split("+")[0].split(".")[:2]) >= (2, 0))
        print("torch" in importlib.metadata.packages_distributions())
        """,
    )
    assert lines == [
        "2.13.0+flambeau True",
        "None True",
        "2.13.0+flambeau 2.13.0+flambeau True False",
        "True",
        "True",
    ]


@pytest.mark.parametrize("first", ["", "import flambeau.nn"])
def test_classes_of_tensors_say_that_they_are_of_torch(tmp_path, first):
    program = f"""
{first}
import flambeau.as_torch
import io, pickle
import torch
layer = torch.nn.Linear(2, 2)
for value in (torch.ones(2), layer.weight, layer.weight * 2):
    assert type(value).__module__.partition(".")[0] == "torch", type(value)
    assert pickle.loads(pickle.dumps(value)).tolist() == value.tolist()
    assert pickle.loads(pickle.dumps(type(value))) is type(value)
assert (torch.Tensor.__module__, torch.nn.Parameter.__module__) == ("torch", "torch.nn.parameter")
file = io.BytesIO()
torch.save({{"kind": torch.Tensor, "weight": layer.weight}}, file)
file.seek(0)
loaded = torch.load(file, weights_only=False)
assert loaded["kind"] is torch.Tensor and type(loaded["weight"]) is torch.nn.Parameter
fast = torch.compile(layer, fullgraph=True)
assert torch.allclose(fast(torch.ones(1, 2)), layer(torch.ones(1, 2)))
assert "Parameter" in repr(layer.weight)
"""
    path = tmp_path / "program.py"
    path.write_text(program)
    ended = subprocess.run([sys.executable, path], capture_output=True, text=True)
    assert ended.returncode == 0, ended.stderr


def test_functions_that_share_their_name_with_a_module_stay_functions(tmp_path):
    lines = run(
        tmp_path,
        """
        import importlib, os, sys, types, warnings
        import torch
        warnings.simplefilter("ignore")
        root = os.path.dirname(torch.__file__)
        modules = set()
        for base in (root, os.path.join(root, "_compat", "torch")):
            for folder, folders, files in os.walk(base):
                folders[:] = [name for name in folders if name not in ("__pycache__", "_compat", "include", "samples")]
                place = os.path.relpath(folder, base).replace(os.sep, ".")
                names = [file[:-3] for file in files if file.endswith(".py") and file != "__init__.py"]
                modules |= {f"torch.{place}.{name}".replace("...", ".") for name in (*names, *folders)}
        functions = []
        for name in sorted(modules):
            parent, _, leaf = name.rpartition(".")
            try:
                package = importlib.import_module(parent)
                before = vars(package).get(leaf)
                importlib.import_module(name)
            except (ModuleNotFoundError, ImportError):
                continue
            after = getattr(package, leaf)
            if before is not None and not isinstance(before, types.ModuleType):
                assert after is before, f"{name} became {after}"
                functions.append(name.removeprefix("torch."))
        print(len(modules) > 400, *functions)
        """,
    )
    many, *functions = lines[0].split()
    assert many == "True"
    assert set(functions) >= {
        "_higher_order_ops.cond", "ao.quantization.quantize", "autograd.gradcheck", "multiprocessing.spawn",
        "nn.parallel.data_parallel", "nn.parallel.replicate", "nn.utils.spectral_norm", "nn.utils.weight_norm",
    }  # fmt: skip


def test_missing_names_raise_what_probing_programs_expect(tmp_path):
    lines = run(
        tmp_path,
        """
        import torch
        for probe in ("torch.nope", "torch.linalg.nope", "torch.fx.nope", "torch.ones(1).nope"):
            try:
                eval(probe)
            except AttributeError as error:
                print(error)
        print(hasattr(torch, "nope"), getattr(torch.linalg, "nope", 3))
        try:
            from torch.linalg import nope
        except ImportError as error:
            print("ImportError nope" if "nope" in str(error) else error)
        try:
            import torch.no_such_module
        except ModuleNotFoundError as error:
            print(error.name)
        """,
    )
    assert lines[:3] == [f"flambeau has no torch.{name}" for name in ("nope", "linalg.nope", "fx.nope")]
    assert "nope" in lines[3]
    assert lines[4:] == ["False 3", "ImportError nope", "torch.no_such_module"]


@pytest.mark.parametrize("method", ["spawn", "fork", "forkserver"])
def test_child_processes_see_the_alias(tmp_path, method):
    lines = run(
        tmp_path,
        f"""
        import multiprocessing
        import torch

        def work(queue):
            import torch as again
            queue.put((torch.__spec__.name, again.ones(2).sum().item()))

        if __name__ == "__main__":
            context = multiprocessing.get_context({method!r})
            queue = context.Queue()
            process = context.Process(target=work, args=(queue,))
            process.start()
            print(queue.get(timeout=60))
            process.join()
        """,
    )
    assert lines == ["('flambeau', 2.0)"]


def test_other_python_programs_started_from_one_see_the_alias(tmp_path):
    lines = run(
        tmp_path,
        """
        import subprocess, sys
        code = "import sys; early = 'flambeau' in sys.modules; import torch; print(early, torch.__spec__.name)"
        print(subprocess.run([sys.executable, "-c", code], capture_output=True, text=True).stdout.strip())
        """,
    )
    assert lines == ["False flambeau"]


def test_modules_run_by_name(tmp_path):
    package = tmp_path / "tool"
    package.mkdir()
    (package / "__main__.py").write_text("import sys, torch; print(torch.__spec__.name, sys.argv[1:])")
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    done = subprocess.run(
        [sys.executable, "-m", "flambeau", "run", "-m", "tool", "x"],
        capture_output=True, text=True, env=environment, cwd=tmp_path,
    )  # fmt: skip
    assert done.stdout == "flambeau ['x']\n", done.stderr


def test_importing_as_torch_is_enough(tmp_path):
    code = "import flambeau.as_torch, torch, flambeau; print(torch is flambeau, torch.__version__)"
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, env=environment)
    assert done.stdout == "True 2.13.0+flambeau\n", done.stderr


def test_a_sitecustomize_of_the_user_still_runs(tmp_path):
    (tmp_path / "sitecustomize.py").write_text("import builtins; builtins.seen = 1")
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(ROOT), str(tmp_path)])}
    (tmp_path / "program.py").write_text("import torch; print(seen, torch.__spec__.name)")
    done = subprocess.run(
        [sys.executable, "-m", "flambeau", "run", "program.py"],
        capture_output=True, text=True, env=environment, cwd=tmp_path,
    )  # fmt: skip
    assert done.stdout == "1 flambeau\n", done.stderr


def test_a_missing_script_is_reported(tmp_path):
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    done = subprocess.run(
        [sys.executable, "-m", "flambeau", "run", "nowhere.py"], capture_output=True, text=True, env=environment
    )
    assert done.returncode == 2 and "nowhere.py" in done.stderr
