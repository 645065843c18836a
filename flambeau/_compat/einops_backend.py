"""einops on tensors of flambeau, without the alias: a backend that is added when einops is imported."""

from __future__ import annotations

from typing import Any


def add(backends: Any) -> None:
    """einops finds backends among the subclasses of its base class."""

    class FlambeauBackend(backends.AbstractBackend):  # type: ignore[misc]
        framework_name = "flambeau"

        def __init__(self) -> None:
            import flambeau

            self.fl = flambeau

        def is_appropriate_type(self, tensor: Any) -> bool:
            return isinstance(tensor, self.fl.Tensor)

        def from_numpy(self, x: Any) -> Any:
            variable = self.fl.from_numpy(x)
            return variable.requires_grad_() if variable.is_floating_point() else variable

        def to_numpy(self, x: Any) -> Any:
            return x.detach().cpu().numpy()

        def arange(self, start: int, stop: int) -> Any:
            return self.fl.arange(start, stop, dtype=self.fl.int64)

        def reduce(self, x: Any, operation: str, axes: Any) -> Any:
            if operation in ("min", "max"):
                operation = f"a{operation}"
            if operation != "prod":
                return getattr(x, operation)(dim=tuple(axes))
            for axis in sorted(axes, reverse=True):
                x = x.prod(dim=axis)
            return x

        def transpose(self, x: Any, axes: Any) -> Any:
            return x.permute(axes)

        def stack_on_zeroth_dimension(self, tensors: list[Any]) -> Any:
            return self.fl.stack(tensors)

        def add_axes(self, x: Any, n_axes: int, pos2len: dict[int, int]) -> Any:
            repeats = [-1] * n_axes
            for position, length in pos2len.items():
                x = x.unsqueeze(position)
                repeats[position] = length
            return x.expand(repeats)

        def tile(self, x: Any, repeats: Any) -> Any:
            return x.repeat(repeats)

        def concat(self, tensors: Any, axis: int) -> Any:
            return self.fl.cat(tensors, dim=axis)

        def add_axis(self, x: Any, new_position: int) -> Any:
            return x.unsqueeze(new_position)

        def is_float_type(self, x: Any) -> bool:
            return bool(x.is_floating_point() or x.is_complex())

        def einsum(self, pattern: str, *x: Any) -> Any:
            return self.fl.einsum(pattern, *x)

    backends.FlambeauBackend = FlambeauBackend  # the base class refers to it only weakly
