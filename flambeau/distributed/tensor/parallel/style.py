"""Styles: how the parameters of a layer are divided, and how its inputs and outputs lie.

`ColwiseParallel` followed by `RowwiseParallel` needs one reduction for both (Shoeybi et al., "Megatron-LM", 2019).
"""

from __future__ import annotations

from typing import Any

from flambeau import nn
from flambeau.distributed.device_mesh import DeviceMesh
from flambeau.distributed.tensor._api import DTensor, distribute_module, distribute_tensor
from flambeau.distributed.tensor.placement_types import Placement, Replicate, Shard

__all__ = [
    "ColwiseParallel", "ParallelStyle", "PrepareModuleInput", "PrepareModuleInputOutput", "PrepareModuleOutput",
    "RowwiseParallel", "SequenceParallel",
]  # fmt: skip


class ParallelStyle:
    """Base of the styles."""

    src_data_rank: int | None = 0

    def _apply(self, module: Any, device_mesh: DeviceMesh) -> Any:
        raise NotImplementedError


def _placed(value: Any, mesh: DeviceMesh, layout: Placement | None, wanted: Placement | None) -> Any:
    """A value as a distributed tensor with a wanted placement; plain ones lie as `layout` says."""
    if layout is None:
        return value
    tensor = value if isinstance(value, DTensor) else DTensor.from_local(value, mesh, (layout,))
    return tensor if wanted is None or tensor.placements == (wanted,) else tensor.redistribute(placements=(wanted,))


def _replace(module: Any, name: str, mesh: DeviceMesh, placement: Placement, source: int | None) -> None:
    parameter = module._parameters.get(name)
    if parameter is not None:
        spread = distribute_tensor(parameter.detach(), mesh, [placement], src_data_rank=source)
        module.register_parameter(name, nn.Parameter(spread, requires_grad=parameter.requires_grad))


class _Divided(ParallelStyle):
    """What the column- and row-wise styles share."""

    input_layouts: tuple[Placement, ...]
    output_layouts: tuple[Placement, ...]
    use_local_output: bool

    def _wanted_input(self, module: Any) -> Placement:
        raise NotImplementedError

    def _divide(self, module: Any, mesh: DeviceMesh) -> None:
        raise NotImplementedError

    def _apply(self, module: Any, device_mesh: DeviceMesh) -> Any:
        if not isinstance(module, (nn.Linear, nn.Embedding)):
            raise NotImplementedError(
                f"[{type(self).__name__}] currently only support nn.Linear and nn.Embedding, got {type(module).__name__}"
            )
        wanted = self._wanted_input(module)

        def prepare(own: Any, inputs: Any, mesh: DeviceMesh) -> Any:
            return (_placed(inputs[0], mesh, self.input_layouts[0], wanted), *inputs[1:])

        def finish(own: Any, output: Any, mesh: DeviceMesh) -> Any:
            if output.placements != self.output_layouts:
                output = output.redistribute(placements=self.output_layouts)
            return output.to_local() if self.use_local_output else output

        def partition(name: str, own: Any, mesh: DeviceMesh) -> None:
            self._divide(own, mesh)

        return distribute_module(module, device_mesh, partition, prepare, finish)


class ColwiseParallel(_Divided):
    """Divides the outputs of a linear layer, or the columns of an embedding."""

    def __init__(
        self,
        *,
        input_layouts: Placement | None = None,
        output_layouts: Placement | None = None,
        use_local_output: bool = True,
    ) -> None:
        self.input_layouts = (input_layouts or Replicate(),)
        self.output_layouts = (output_layouts or Shard(-1),)
        self.desired_input_layouts = (Replicate(),)
        self.use_local_output = use_local_output

    def _wanted_input(self, module: Any) -> Placement:
        return Replicate()

    def _divide(self, module: Any, mesh: DeviceMesh) -> None:
        linear = isinstance(module, nn.Linear)
        _replace(module, "weight", mesh, Shard(0) if linear else Shard(1), self.src_data_rank)
        _replace(module, "bias", mesh, Shard(0), self.src_data_rank)


class RowwiseParallel(_Divided):
    """Divides the inputs of a linear layer, or the rows of an embedding; outputs are summed."""

    def __init__(
        self,
        *,
        input_layouts: Placement | None = None,
        output_layouts: Placement | None = None,
        use_local_output: bool = True,
    ) -> None:
        self.input_layouts = (input_layouts or Shard(-1),)
        self.output_layouts = (output_layouts or Replicate(),)
        self.use_local_output = use_local_output

    def _wanted_input(self, module: Any) -> Placement:
        return Shard(-1) if isinstance(module, nn.Linear) else Replicate()

    def _divide(self, module: Any, mesh: DeviceMesh) -> None:
        linear = isinstance(module, nn.Linear)
        _replace(module, "weight", mesh, Shard(1) if linear else Shard(0), self.src_data_rank)
        _replace(module, "bias", mesh, Replicate(), self.src_data_rank)


class SequenceParallel(ParallelStyle):
    """Layer norm, dropout and their like on a part of the sequence, with replicated parameters."""

    def __init__(self, *, sequence_dim: int = 1, use_local_output: bool = False) -> None:
        self.sequence_sharding = (Shard(sequence_dim),)
        self.use_local_output = use_local_output

    def _apply(self, module: Any, device_mesh: DeviceMesh) -> Any:
        wanted = self.sequence_sharding[0]

        def prepare(own: Any, inputs: Any, mesh: DeviceMesh) -> Any:
            return (_placed(inputs[0], mesh, wanted, wanted), *inputs[1:])

        def finish(own: Any, output: Any, mesh: DeviceMesh) -> Any:
            return output.to_local() if self.use_local_output else output

        return distribute_module(module, device_mesh, None, prepare, finish)


def _tupled(layouts: Any) -> tuple[Any, ...]:
    return tuple(layouts) if isinstance(layouts, (tuple, list)) else (layouts,)


class PrepareModuleInput(ParallelStyle):
    """Turns the inputs of a module into distributed tensors of wanted placements."""

    def __init__(
        self,
        *,
        input_layouts: Any = None,
        desired_input_layouts: Any = None,
        input_kwarg_layouts: dict[str, Placement] | None = None,
        desired_input_kwarg_layouts: dict[str, Placement] | None = None,
        use_local_output: bool = False,
    ) -> None:
        self.input_layouts = None if input_layouts is None else _tupled(input_layouts)
        self.desired_input_layouts = None if desired_input_layouts is None else _tupled(desired_input_layouts)
        self.input_kwarg_layouts = input_kwarg_layouts or {}
        self.desired_input_kwarg_layouts = desired_input_kwarg_layouts or {}
        self.use_local_output = use_local_output
        if self.input_layouts is not None and len(self.input_layouts) != len(self.desired_input_layouts or ()):
            raise AssertionError(
                "[PrepareModuleInput] input_layouts and desired_input_layouts should have same length!"
            )

    def _one(self, value: Any, mesh: DeviceMesh, layout: Any, wanted: Any) -> Any:
        placed = _placed(value, mesh, layout, wanted)
        return placed.to_local() if self.use_local_output and isinstance(placed, DTensor) else placed

    def _prepare(self, inputs: Any, kwargs: Any, mesh: DeviceMesh) -> Any:
        if self.input_layouts is not None:
            if len(inputs) != len(self.input_layouts):
                raise ValueError("[PrepareModuleInput] module inputs and input_layouts should have same length!")
            pairs = zip(inputs, self.input_layouts, self.desired_input_layouts or ())
            inputs = tuple(self._one(value, mesh, layout, wanted) for value, layout, wanted in pairs)
        named = dict(kwargs)
        for key in self.input_kwarg_layouts:
            if key in named:
                wanted = self.desired_input_kwarg_layouts.get(key)
                named[key] = self._one(named[key], mesh, self.input_kwarg_layouts[key], wanted)
        return inputs, named

    def _apply(self, module: Any, device_mesh: DeviceMesh) -> Any:
        module.register_forward_pre_hook(
            lambda own, inputs, kwargs: self._prepare(inputs, kwargs, device_mesh), with_kwargs=True
        )
        return module


class PrepareModuleOutput(ParallelStyle):
    """Turns the outputs of a module into wanted placements."""

    def __init__(self, *, output_layouts: Any, desired_output_layouts: Any, use_local_output: bool = True) -> None:
        self.output_layouts = _tupled(output_layouts)
        self.desired_output_layouts = _tupled(desired_output_layouts)
        self.use_local_output = use_local_output

    def _finish(self, outputs: Any, mesh: DeviceMesh) -> Any:
        listed = outputs if isinstance(outputs, tuple) else (outputs,)
        results = []
        for value, layout, wanted in zip(listed, self.output_layouts, self.desired_output_layouts):
            placed = _placed(value, mesh, layout, wanted)
            results.append(placed.to_local() if self.use_local_output and isinstance(placed, DTensor) else placed)
        return tuple(results) if isinstance(outputs, tuple) else results[0]

    def _apply(self, module: Any, device_mesh: DeviceMesh) -> Any:
        module.register_forward_hook(lambda own, inputs, outputs: self._finish(outputs, device_mesh))
        return module


class PrepareModuleInputOutput(ParallelStyle):
    """`PrepareModuleInput` and `PrepareModuleOutput` together."""

    def __init__(
        self,
        *,
        input_layouts: Any = None,
        desired_input_layouts: Any = None,
        input_kwarg_layouts: Any = None,
        desired_input_kwarg_layouts: Any = None,
        use_local_input: bool = False,
        output_layouts: Any,
        desired_output_layouts: Any,
        use_local_output: bool = True,
    ) -> None:
        self.prepare_module_input = PrepareModuleInput(
            input_layouts=input_layouts, desired_input_layouts=desired_input_layouts,
            input_kwarg_layouts=input_kwarg_layouts, desired_input_kwarg_layouts=desired_input_kwarg_layouts,
            use_local_output=use_local_input,
        )  # fmt: skip
        self.prepare_module_output = PrepareModuleOutput(
            output_layouts=output_layouts, desired_output_layouts=desired_output_layouts,
            use_local_output=use_local_output,
        )  # fmt: skip

    def _apply(self, module: Any, device_mesh: DeviceMesh) -> Any:
        self.prepare_module_input._apply(module, device_mesh)
        return self.prepare_module_output._apply(module, device_mesh)
