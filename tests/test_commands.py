"""The command `flambeau`: each subcommand does what its help says, in the words of its help."""

import json
import os
import subprocess
import sys
import textwrap

import pytest

import flambeau as fl
from flambeau.__main__ import COMMANDS, main
from flambeau._commands import companion, compare
from flambeau._inductor import build


def test_help_names_every_command(capsys):
    assert main(["help"]) == 0
    text = capsys.readouterr().out
    assert all(f"flambeau {name}" in text for name in (*COMMANDS, "run", "doctor", "version"))


@pytest.mark.parametrize("command", [*COMMANDS, "doctor"])
def test_every_command_has_help(command, capsys):
    with pytest.raises(SystemExit) as stop:
        main([command, "--help"])
    assert stop.value.code == 0 and f"usage: flambeau {command}" in capsys.readouterr().out


def test_unknown_command_is_named(capsys):
    assert main(["trian"]) == 2
    assert "there is no command 'trian'" in capsys.readouterr().err
    assert main(["rnu"]) == 2
    assert "did you mean `flambeau run`?" in capsys.readouterr().err


def test_a_reader_that_leaves_early_is_no_error():
    reader, writer = os.pipe()
    os.close(reader)
    command = [sys.executable, "-m", "flambeau", "help"]
    try:
        done = subprocess.run(command, stdout=writer, stderr=subprocess.PIPE, text=True)
    finally:
        os.close(writer)
    assert (done.returncode, done.stderr) == (1, "")


def test_env_tells_versions_and_settings(capsys, monkeypatch):
    monkeypatch.setenv("FLAMBEAU_LOGS", "graph_breaks")
    assert main(["env"]) == 0
    text = capsys.readouterr().out
    assert fl.__version__ in text and "Kernel cache" in text and "FLAMBEAU_LOGS=graph_breaks" in text


def test_bench_times_the_cases_asked_for(capsys):
    assert main(["bench", "--only", "one element", "--seconds", "0.01"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[-1].startswith("a + b, one element") and "softmax" not in lines[-2]


@pytest.fixture
def cache(tmp_path, monkeypatch):
    """A cache with two objects of one kernel each, the second used later."""
    monkeypatch.setenv("FLAMBEAU_CACHE_DIR", str(tmp_path))
    folder = build.cache_dir()
    for i, name in enumerate("ab"):
        path = folder / f"{name}.so"
        path.write_bytes(name.encode() * 1000)
        path.with_suffix(".cpp").write_text("")
        (folder / f"k_{name}").write_text(f"{name}.so {build._digest(path)}")
        os.utime(path, (1000 + i, 1000 + i))
    return folder


def test_cache_show_counts(cache, capsys):
    assert main(["cache", "show"]) == 0
    text = capsys.readouterr().out
    assert str(cache) in text and "2 kernels in 2 objects" in text


def test_cache_prune_keeps_what_was_used_last(cache, capsys):
    assert main(["cache", "prune", "--most", "1.5K"]) == 0
    assert "deleted 1 of 2" in capsys.readouterr().out
    assert sorted(f.name for f in cache.iterdir()) == ["b.cpp", "b.so", "k_b"]
    assert main(["cache", "prune", "--most", "0"]) == 0
    assert not list(cache.iterdir())


def test_cache_prune_refuses_what_is_no_size(cache, capsys):
    with pytest.raises(SystemExit):
        main(["cache", "prune", "--most", "many"])
    assert "expected bytes such as 300M, got 'many'" in capsys.readouterr().err


def test_cache_verify_finds_and_deletes_damage(cache, capsys):
    assert main(["cache", "verify"]) == 0
    (cache / "a.so").write_bytes(b"spoilt")
    assert main(["cache", "verify"]) == 1
    assert "a.so: not as it was written" in capsys.readouterr().out
    assert main(["cache", "verify", "--repair"]) == 0
    assert sorted(f.name for f in cache.iterdir()) == ["b.cpp", "b.so", "k_b"]
    assert main(["cache", "verify"]) == 0


def test_explain_tells_of_breaks(tmp_path):
    script = tmp_path / "program.py"
    script.write_text(
        textwrap.dedent(
            """
            import sys
            import torch

            @torch.compile(fullgraph=True)
            def f(x):
                return x + 1 if x.sum() > 0 else x.sin()

            print("arguments", sys.argv[1:], f(torch.ones(2)).tolist())
            """
        )
    )
    command = [sys.executable, "-m", "flambeau", "explain", "--code", str(script), "--epochs", "3"]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert "arguments ['--epochs', '3'] [2.0, 2.0]" in done.stdout
    assert "compiled 1 function" in done.stdout and "GB0001" in done.stdout and "graph 2:" in done.stdout


@pytest.mark.parametrize("text", ["def f(:\n", "import torch\n\n\ndef f():\n    raise ValueError('my own')\n\n\nf()\n"])
def test_explain_shows_errors_of_the_program_without_its_own_frames(tmp_path, text):
    script = tmp_path / "program.py"
    script.write_text(text)
    done = subprocess.run([sys.executable, "-m", "flambeau", "explain", str(script)], capture_output=True, text=True)
    assert done.returncode == 1 and "program.py" in done.stderr and "explain.py" not in done.stderr
    assert done.stderr.strip().endswith(("SyntaxError: invalid syntax", "ValueError: my own"))
    assert "runpy" not in done.stderr and "compiled 0 functions" in done.stdout


def test_explain_of_a_missing_file(capsys):
    assert main(["explain", "nowhere.py"]) == 2
    assert "there is no file 'nowhere.py'" in capsys.readouterr().err


TRAINING = """
import torch
torch.manual_seed(0)
w = torch.ones(3, requires_grad=True)
for step in range(3):
    loss = (w * torch.arange(3.0)).square().sum()
    loss.backward()
    with torch.no_grad():
        w -= 0.01 * w.grad
        w.grad = None
    print(f"step {step} loss {loss.item():.4f}")
"""


def test_profile_writes_a_table_a_trace_and_a_flame_chart(tmp_path):
    program, output = tmp_path / "train.py", tmp_path / "step"
    program.write_text(TRAINING)
    command = [sys.executable, "-m", "flambeau", "profile", "-o", str(output), str(program)]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert "step 2 loss" in done.stdout and "aten::square" in done.stdout
    assert json.loads(output.with_suffix(".json").read_text())["traceEvents"]
    page = output.with_suffix(".html").read_text()
    assert "train.py(6)" in page and "aten::mul" in page


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_completion_knows_every_command(shell, capsys):
    assert main(["completion", shell]) == 0
    text = capsys.readouterr().out
    assert all(name in text for name in (*COMMANDS, "run", "doctor"))


def test_compare_finds_the_first_line_that_differs():
    same, other = ["start", "loss 0.5001 in 1.2 s"], ["start", "loss 0.5002 in 3.4 s"]
    assert compare.first_difference(same, other, 0.01) is None
    assert compare.first_difference(same, other, 0.0001) == (1, "a number differs by 0.0%")
    assert compare.first_difference(["a 1"], ["b 1"], 0.01) == (0, "the words differ")
    assert compare.first_difference(["a"], ["a", "b"], 0.01) == (1, "1 lines against 2")


def test_compare_refuses_what_it_cannot_run(capsys):
    with pytest.raises(SystemExit):
        main(["compare", "nothing.py"])
    assert "there is no file 'nothing.py'" in capsys.readouterr().err


def test_a_companion_satisfies_pip_and_goes_again(tmp_path):
    """In an environment of its own: `torch` is installed for pip, and importing it imports flambeau."""
    import venv

    venv.create(tmp_path / "env", with_pip=True, system_site_packages=False)
    python = tmp_path / "env" / "bin" / "python"
    wheel_paths = [str(companion.wheel(tmp_path, name)) for name in ("torch", "torchvision", "torchaudio")]
    pip = [str(python), "-m", "pip", "--disable-pip-version-check"]
    subprocess.run([*pip, "install", "-q", "--no-index", "--no-deps", *wheel_paths], check=True)
    assert "torch" in subprocess.run([*pip, "list"], capture_output=True, text=True, check=True).stdout
    dependent = subprocess.run(
        [*pip, "install", "--dry-run", "--no-index", "torch>=2.0", "torchvision"], capture_output=True, text=True
    )
    assert dependent.returncode == 0 and "Would install" not in dependent.stdout, dependent.stdout + dependent.stderr
    site = next((tmp_path / "env" / "lib").glob("python3*")) / "site-packages"
    environment = dict(os.environ, PYTHONPATH=f"{site}{os.pathsep}{os.path.dirname(os.path.dirname(fl.__file__))}")
    program = "import {}, torch, torch.nn as nn; print(torch.version.flambeau, nn.Linear(2, 3)(torch.ones(1, 2)).shape)"
    for first in ("torch", "torchvision.transforms", "torchaudio"):
        command = [sys.executable, "-c", program.format(first)]
        done = subprocess.run(command, env=environment, capture_output=True, text=True)
        assert done.returncode == 0 and "torch.Size([1, 3])" in done.stdout, done.stderr
    subprocess.run([*pip, "uninstall", "-q", "-y", "torch"], check=True)
    assert not (site / "torch.py").exists()
