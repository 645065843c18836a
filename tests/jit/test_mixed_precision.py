"""`autocast` in scripts: regions run in mixed precision, and errors leave them."""

import io

import pytest

import flambeau as torch


def nested(x, y):
    with torch.autocast("cpu", dtype=torch.bfloat16):
        first = torch.mm(x, y)
        with torch.autocast(device_type="cpu", enabled=False):
            second = torch.mm(x, y)
        third = torch.mm(x, y)
    return first, second, third, torch.mm(x, y)


def older(x, y):
    with torch.cpu.amp.autocast():
        return torch.mm(x, y)


def failing(x):
    with torch.autocast("cpu", dtype=torch.bfloat16):
        return x.view(3, 3)


def test_scripts_enter_and_leave_autocast():
    x = torch.ones(2, 2)
    script = torch.jit.script(nested)
    file = io.BytesIO()
    torch.jit.save(script, file)
    file.seek(0)
    loaded = torch.jit.load(file)
    for _ in range(8):  # compiled from the seventh call on
        for function in (script, loaded):
            dtypes = [result.dtype for result in function(x, x)]
            assert dtypes == [torch.bfloat16, torch.float32, torch.bfloat16, torch.float32]
    assert torch.jit.script(older)(x, x).dtype == torch.bfloat16


def test_errors_leave_autocast():
    script = torch.jit.script(failing)
    for _ in range(2):
        with pytest.raises(RuntimeError):
            script(torch.ones(2))
        assert not torch.is_autocast_enabled("cpu")
