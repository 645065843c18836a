"""`flambeau doctor` finds what a program would miss, where, and nothing else."""

import textwrap

import pytest

from flambeau._commands import doctor as command


@pytest.fixture
def doctor(tmp_path, capsys, monkeypatch):
    monkeypatch.chdir(tmp_path)

    def run(*arguments, **files):
        for name, source in files.items():
            (tmp_path / f"{name}.py").write_text(textwrap.dedent(source))
        status = command.main(list(arguments) or ["main.py"])
        return status, capsys.readouterr().out.splitlines()

    return run


def test_a_program_that_lacks_nothing(doctor):
    status, lines = doctor(
        main="""
        import torch, torch.nn as nn
        import torch.nn.functional as F
        from torch import optim
        class Net(nn.Module):
            def forward(self, x: torch.Tensor) -> torch.Tensor:
                return F.relu(x).to(torch.float32)
        torch.backends.cudnn.benchmark = True
        torch.ops.mine.op(1)
        """
    )
    assert status == 0 and len(lines) == 1 and "0 lacking" in lines[0]


def test_lacking_names_are_listed_with_their_place(doctor):
    status, lines = doctor(
        main="""\
        import torch
        from torch.nn import functional as fn
        def f(x):
            y = torch.no_such_function(x)
            return fn.no_such_layer(y)
        from torch.linalg import no_such_inverse
        import torch.no_such_module
        """
    )
    assert status == 1
    assert lines[:4] == [
        "main.py:4:9: flambeau has no torch.no_such_function",
        "main.py:5:12: flambeau has no torch.nn.functional.no_such_layer",
        "main.py:6:1: flambeau has no torch.linalg.no_such_inverse",
        "main.py:7:1: flambeau has no torch.no_such_module",
    ]
    assert "4 lacking" in lines[4]


def test_names_that_fail_when_used_come_with_the_reason(doctor):
    status, lines = doctor(main="import torch\nq = torch.empty_quantized((2,), torch.ones(2))\n")
    assert status == 1 and lines[0].startswith("main.py:2:5: flambeau has no torch.empty_quantized yet: ")
    assert "1 fail when used" in lines[-1]


def test_guarded_uses_do_not_count(doctor):
    source = """
        import torch
        try:
            from torch import no_such_name
        except ImportError:
            no_such_name = None
        if hasattr(torch, "other_name"):
            torch.other_name()
        getattr(torch, "third", None)
        """
    status, lines = doctor(main=source)
    assert status == 0 and len(lines) == 1 and "2 lacking but guarded" in lines[0]
    status, lines = doctor("main.py", "--guarded", main=source)
    assert status == 0 and len(lines) == 3


def test_shadowed_names_are_not_torch(doctor):
    status, _ = doctor(
        main="""
        import torch.nn as nn
        def f(nn):
            return nn.whatever
        torch = object()
        torch.whatever
        """
    )
    assert status == 0


def test_modules_of_the_program_are_followed(doctor):
    files = {
        "main": "import helper\nfrom json import loads\n",
        "helper": "import torch\ntorch.missing_here\n",
        "unrelated": "import torch\ntorch.missing_there\n",
    }
    status, lines = doctor(**files)
    assert status == 1 and lines[0].startswith("helper.py:2:1") and len(lines) == 2
    status, lines = doctor("main.py", "--no-follow", **files)
    assert status == 0
    status, lines = doctor(".", **files)
    assert status == 1 and len(lines) == 3


def test_files_that_cannot_be_read(doctor):
    status, lines = doctor(main="def broken(:\n")
    assert status == 2 and "cannot be read" in lines[0]
    assert doctor("nowhere.py")[0] == 2
