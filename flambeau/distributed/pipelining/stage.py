"""`PipelineStage`: a part of a model on one process, with what it receives from the part before and sends to the next."""

from __future__ import annotations

from typing import Any

import flambeau
from flambeau.distributed import _collectives as collectives
from flambeau.distributed import _groups, _objects

__all__ = ["PipelineStage"]


def _listed(value: Any) -> list[Any]:
    return list(value) if isinstance(value, (tuple, list)) else [value]


class PipelineStage:
    """Stage `stage_index` of `num_stages`. Stages lie on the ranks of the group in turn."""

    def __init__(
        self,
        submodule: Any,
        stage_index: int,
        num_stages: int,
        device: Any = "cpu",
        input_args: Any = None,
        output_args: Any = None,
        output_args_meta: Any = None,
        group: Any = None,
        dw_builder: Any = None,
    ) -> None:
        if stage_index >= num_stages:
            raise ValueError(f"[PipelineStage] Stage index {stage_index} is out of range of {num_stages}")
        self.submod = self.submodule = submodule
        self.stage_index, self.num_stages, self.device = stage_index, num_stages, flambeau.device(device)
        self.group = group if group is not None else _groups._get_default_group()
        self.group_rank, self.group_size = self.group.rank(), self.group.size()
        self._shapes: list[tuple[Any, Any]] | None = None  # of the inputs from the stage before
        self._running: dict[int, tuple[list[Any], list[Any]]] = {}  # inputs and outputs by microbatch
        self._local: dict[tuple[str, int], list[Any]] = {}  # handed over within the process
        self._sends: list[Any] = []
        self.neighbours: dict[int, PipelineStage] = {}
        self.stage_to_rank: list[int] | None = None  # set by schedules that place stages otherwise than in turn

    @property
    def is_first(self) -> bool:
        return self.stage_index == 0

    @property
    def is_last(self) -> bool:
        return self.stage_index == self.num_stages - 1

    def _rank_of(self, stage: int) -> int:
        return self.stage_to_rank[stage] if self.stage_to_rank is not None else stage % self.group_size

    def _tag(self, kind: str, stage: int, microbatch: int, number: int) -> int:
        """A number for each tensor that is under way at a time."""
        return ((microbatch * self.num_stages + stage) * 2 + (kind == "backward")) * 64 + number + (1 << 20)

    def _put(self, kind: str, stage: int, microbatch: int, tensors: list[Any]) -> None:
        """Sends tensors to the process of a stage."""
        if stage in self.neighbours:
            self.neighbours[stage]._local[kind, microbatch] = tensors
            return
        target = self._rank_of(stage)
        if kind == "forward" and microbatch == 0:
            shapes = [(tuple(t.shape), t.dtype) for t in tensors]
            data = _objects._pack(shapes)
            size = flambeau.tensor([data.numel()])
            self._send(size, target, self._tag(kind, stage, 0, 62))
            self._send(data, target, self._tag(kind, stage, 0, 63))
        for number, tensor in enumerate(tensors):
            if tensor is not None:
                self._send(tensor.detach().contiguous(), target, self._tag(kind, stage, microbatch, number))

    def _send(self, tensor: Any, target: int, tag: int) -> None:
        self._sends.append(collectives.isend(tensor, group=self.group, group_dst=target, tag=tag))

    def _take(self, kind: str, microbatch: int, source: int, shapes: list[tuple[Any, Any]]) -> list[Any]:
        """Tensors from the process of a stage."""
        if source in self.neighbours:
            return self._local.pop((kind, microbatch))
        received = []
        for number, (shape, dtype) in enumerate(shapes):
            tensor = flambeau.empty(shape, dtype=dtype, device=self.device)
            tag = self._tag(kind, self.stage_index, microbatch, number)
            collectives.recv(tensor, group=self.group, group_src=self._rank_of(source), tag=tag)
            received.append(tensor)
        return received

    def _input_shapes(self, microbatch: int) -> list[tuple[Any, Any]]:
        before = self.stage_index - 1
        if before in self.neighbours:
            return []
        if microbatch == 0:
            source = self._rank_of(before)
            size = flambeau.zeros(1, dtype=flambeau.int64)
            collectives.recv(
                size, group=self.group, group_src=source, tag=self._tag("forward", self.stage_index, 0, 62)
            )
            data = flambeau.empty(int(size), dtype=flambeau.uint8)
            collectives.recv(
                data, group=self.group, group_src=source, tag=self._tag("forward", self.stage_index, 0, 63)
            )
            self._shapes = _objects._unpack(data)
        return self._shapes or []

    def forward_one(self, microbatch: int, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Runs one microbatch and passes its outputs on; returns them."""
        if not self.is_first:
            received = self._take("forward", microbatch, self.stage_index - 1, self._input_shapes(microbatch))
            args = tuple(
                t.detach().requires_grad_(t.is_floating_point() and flambeau.is_grad_enabled()) for t in received
            )
        output = self.submod(*args, **kwargs)
        outputs = _listed(output)
        inputs = [value for value in args if isinstance(value, flambeau.Tensor)]
        self._running[microbatch] = (inputs, outputs)
        if not self.is_last:
            self._put("forward", self.stage_index + 1, microbatch, [t.detach() for t in outputs])
        return output

    def backward_one(self, microbatch: int, loss: Any = None) -> None:
        """Gradients of one microbatch, from its loss or from the next stage; passes those of the inputs back."""
        inputs, outputs = self._running.pop(microbatch)
        if self.is_last:
            if loss is None:
                raise RuntimeError(
                    "[PipelineStage] expected a loss in the last stage, got none: give the schedule a loss_fn"
                )
            loss.backward()
        else:
            trained = [t for t in outputs if t.requires_grad]
            shapes = [(tuple(t.shape), t.dtype) for t in trained]
            gradients = self._take("backward", microbatch, self.stage_index + 1, shapes)
            flambeau.autograd.backward(trained, gradients)
        if not self.is_first:
            # The stage before expects a gradient for each output that has one.
            gradients = [t.grad if t.grad is not None else flambeau.zeros_like(t) for t in inputs if t.requires_grad]
            self._put("backward", self.stage_index - 1, microbatch, gradients)

    def finish(self) -> None:
        for work in self._sends:
            if work is not None:
                work.wait()
        self._sends.clear()
        self._running.clear()

    def scale_grads(self, grad_scale_factor: int) -> None:
        with flambeau.no_grad():
            for parameter in self.submod.parameters():
                if parameter.grad is not None:
                    parameter.grad.div_(grad_scale_factor)
