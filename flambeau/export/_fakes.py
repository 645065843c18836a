"""Programs of fake tensors: models and inputs without data are exported as tensors of the same geometry."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any

import flambeau as fl
from flambeau import _C


@contextlib.contextmanager
def without_fake_modes() -> Iterator[None]:
    """Inside, new tensors are not fake, whatever modes are entered."""
    from flambeau._subclasses.fake_tensor import FakeTensorMode

    modes = [_C._pop_torch_function_mode() for _ in range(_C._len_torch_function_stack())]
    others = [mode for mode in reversed(modes) if not isinstance(mode, FakeTensorMode)]
    for mode in others:
        _C._push_torch_function_mode(mode)
    try:
        yield
    finally:
        for _ in others:
            _C._pop_torch_function_mode()
        for mode in reversed(modes):
            _C._push_torch_function_mode(mode)


def stand_in(fake: Any) -> Any:
    """A tensor of a fake's geometry, whose memory nobody reads."""
    with without_fake_modes():
        real = fl.empty_strided(tuple(fake.shape), fake.stride(), dtype=fake.dtype, device=fake.device)
        return real.requires_grad_(fake.requires_grad)


@contextlib.contextmanager
def state_with_stand_ins(mod: Any) -> Iterator[dict[int, Any]]:
    """Inside, the module's fake parameters and buffers are stand-ins; gives the fake of each, by its id."""
    from flambeau._subclasses.fake_tensor import FakeTensor

    fakes: dict[int, Any] = {}
    replaced: list[tuple[dict[str, Any], str, Any]] = []
    stand_ins: dict[int, Any] = {}
    for module in mod.modules():
        for table in (module._parameters, module._buffers):
            for name, value in table.items():
                if not isinstance(value, FakeTensor):
                    continue
                real = stand_ins.get(id(value))
                if real is None:
                    real = stand_in(value)
                    if isinstance(value, fl.nn.Parameter):
                        real = fl.nn.Parameter(real, value.requires_grad)
                    stand_ins[id(value)] = real
                replaced.append((table, name, value))
                fakes[id(real)] = value
                table[name] = real
    try:
        yield fakes
    finally:
        for table, name, value in replaced:
            table[name] = value
