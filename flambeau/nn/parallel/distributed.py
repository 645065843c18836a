"""`DistributedDataParallel`: each process trains a replica on its share of the data, with gradients averaged during backward."""

from __future__ import annotations

import contextlib
import copy
import itertools
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import flambeau as fl
from flambeau import Tensor
from flambeau.nn.modules.module import Module
from flambeau.nn.parallel.scatter_gather import _device

__all__ = ["DistributedDataParallel"]


@dataclass
class _MixedPrecision:
    """Dtypes of parameters in forward, of gradients while they are reduced, and of buffers."""

    param_dtype: Any = None
    reduce_dtype: Any = None
    buffer_dtype: Any = None


def _tensors_in(value: Any) -> Iterator[Tensor]:
    """The tensors in what a module returned."""
    if isinstance(value, Tensor):
        yield value
    elif isinstance(value, (list, tuple)):
        for item in value:
            yield from _tensors_in(item)
    elif isinstance(value, dict):
        for item in value.values():
            yield from _tensors_in(item)
    elif hasattr(value, "__dataclass_fields__"):
        for name in value.__dataclass_fields__:
            yield from _tensors_in(getattr(value, name))


def _moved(value: Any, device: Any) -> Any:
    if isinstance(value, Tensor):
        return value.to(device)
    if isinstance(value, (list, tuple)):
        items = [_moved(item, device) for item in value]
        return type(value)(*items) if hasattr(value, "_fields") else type(value)(items)
    if isinstance(value, dict):
        return type(value)((key, _moved(item, device)) for key, item in value.items())
    return value


class DistributedDataParallel(Module):
    """Calls its module; `backward` leaves in every process the mean of the gradients of all processes.

    Parameters and buffers start as those of the first process. Parameters that a process did not use count as a gradient of
    zero there; those that no process used keep the gradient they had. Hence `find_unused_parameters` has nothing left to do.
    """

    def __init__(
        self,
        module: Module,
        device_ids: Any = None,
        output_device: Any = None,
        dim: int = 0,
        broadcast_buffers: bool = True,
        init_sync: bool = True,
        process_group: Any = None,
        bucket_cap_mb: float | None = None,
        find_unused_parameters: bool = False,
        check_reduction: bool = False,
        gradient_as_bucket_view: bool = False,
        static_graph: bool = False,
        delay_all_reduce_named_params: Any = None,
        param_to_hook_all_reduce: Any = None,
        mixed_precision: _MixedPrecision | None = None,
        device_mesh: Any = None,
        skip_all_reduce_unused_params: bool = False,
        bucket_cap_mb_list: Any = None,
    ) -> None:
        super().__init__()
        from flambeau.distributed import _groups

        if process_group is not None and device_mesh is not None:
            raise RuntimeError("[DistributedDataParallel] Cannot specify both process_group and device_mesh arguments.")
        if device_mesh is not None:
            if device_mesh.ndim != 1:
                raise RuntimeError(
                    f"[DistributedDataParallel] Only 1D device mesh is supported, but got {device_mesh}."
                )
            process_group = device_mesh.get_group(0)
        if process_group is not None and not isinstance(process_group, _groups.ProcessGroup):
            raise TypeError(
                f"[DistributedDataParallel] expected process_group to be a ProcessGroup, got {type(process_group)}"
            )
        self.process_group = process_group if process_group is not None else _groups._get_default_group()
        self._check_module(module, device_ids)
        self.module, self.dim = module, dim
        self.device_mesh = device_mesh
        self.parameters_to_ignore = set(getattr(module, "_ddp_params_and_buffers_to_ignore", ()))
        self.device = next(p for p in module.parameters() if p.requires_grad).device
        self.device_type = self.device.type
        self.is_multi_device_module = len({p.device for p in module.parameters()}) > 1
        self.device_ids = [_device(d).index for d in device_ids] if device_ids else None
        chosen = output_device if output_device is not None else (device_ids or [None])[0]
        self.output_device = None if chosen is None else chosen
        self.broadcast_buffers, self.find_unused_parameters = broadcast_buffers, find_unused_parameters
        self.gradient_as_bucket_view, self.static_graph = gradient_as_bucket_view, static_graph
        self.mixed_precision = mixed_precision
        self.bucket_bytes_cap = int((25 if bucket_cap_mb is None else bucket_cap_mb) * 1024 * 1024)
        self._default_cap = bucket_cap_mb is None
        self.require_backward_grad_sync = self.require_forward_param_sync = True
        self._comm_hooks: list[Any] = []
        self._after_reduction: list[Callable[[], None]] = []
        self._join_config: Any = None
        self._divide_by_initial_world_size = True
        self._prepare(init_sync)

    @staticmethod
    def _check_module(module: Module, device_ids: Any) -> None:
        if not any(parameter.requires_grad for parameter in module.parameters()):
            raise RuntimeError(
                "[DistributedDataParallel] DistributedDataParallel is not needed when a module doesn't have any parameters "
                "that require a gradient."
            )
        if device_ids is not None and len(device_ids) > 1:
            raise ValueError(
                f"[DistributedDataParallel] device_ids can only be None or contain a single element, got {device_ids}"
            )
        devices = {parameter.device.type for parameter in module.parameters()}
        if device_ids and devices == {"cpu"}:
            raise ValueError(
                "[DistributedDataParallel] DistributedDataParallel device_ids and output_device arguments only work with "
                f"single-device/multiple-device GPU modules or CPU modules, got device_ids {device_ids} for a CPU module"
            )

    def _prepare(self, init_sync: bool) -> None:
        from flambeau.distributed import _reducer

        parameters, seen = [], set()
        for name, parameter in self.module.named_parameters():
            if parameter.requires_grad and name not in self.parameters_to_ignore and id(parameter) not in seen:
                seen.add(id(parameter))
                parameters.append(parameter)
        self._module_parameters = parameters
        if init_sync and self.process_group.size() > 1:
            _reducer._verify_params_across_processes(self.process_group, parameters)
            self._sync_module_states()
        first = _reducer._DEFAULT_FIRST_BUCKET_BYTES if self._default_cap else self.bucket_bytes_cap
        self.reducer = _reducer.Reducer(
            parameters,
            self.process_group,
            self.bucket_bytes_cap,
            first,
            self.gradient_as_bucket_view,
            self.static_graph,
        )
        self.reducer.after.append(self._run_after_reduction)
        facts = {
            "module_name": type(self.module).__name__,
            "bucket_cap_bytes": self.bucket_bytes_cap,
            "broadcast_buffers": int(self.broadcast_buffers),
            "find_unused_parameters": int(self.find_unused_parameters),
            "static_graph": int(self.static_graph),
            "device_ids": ", ".join(map(str, self.device_ids or ())),
            "output_device": -1 if self.output_device is None else _device(self.output_device).index,
            "has_sync_bn": int(any(type(m).__name__ == "SyncBatchNorm" for m in self.module.modules())),
        }
        self.logger = _reducer.Logger(self.reducer, facts)

    def _sync_module_states(self) -> None:
        from flambeau.distributed import _reducer

        state = [
            tensor.detach()
            for name, tensor in itertools.chain(self.module.named_parameters(), self.module.named_buffers())
            if name not in self.parameters_to_ignore
        ]
        _reducer._broadcast_coalesced(self.process_group, state, 0, 0)

    def _run_after_reduction(self) -> None:
        pending, self._after_reduction = self._after_reduction, []
        for action in pending:
            action()

    # ------------------------------------------------------------------------------------ forward

    def _module_buffers(self) -> list[Tensor]:
        return [buffer for name, buffer in self.module.named_buffers() if name not in self.parameters_to_ignore]

    def _sync_buffers(self) -> None:
        from flambeau.distributed import _reducer

        buffers = self._module_buffers()
        if not buffers or self.process_group.size() == 1:
            return
        root = self._common_rank() if self._joining() else 0
        _reducer._broadcast_coalesced(self.process_group, buffers, 0, root)

    def _common_rank(self, active: bool = True) -> int:
        """The highest rank that still has inputs."""
        from flambeau.distributed import _collectives
        from flambeau.distributed._types import ReduceOp

        rank = fl.tensor([self.process_group.rank() if active else -1], device=self.device)
        _collectives.all_reduce(rank, ReduceOp.MAX, self.process_group)
        return int(rank.item())

    def _joining(self) -> bool:
        return self._join_config is not None and self._join_config.enable

    def _will_sync_buffers(self) -> bool:
        return self.require_forward_param_sync and self.broadcast_buffers and bool(self._module_buffers())

    def _before_forward(self) -> None:
        if self._joining():
            from flambeau.distributed.algorithms.join import Join

            work = Join.notify_join_context(self)
            if work is not None:
                work.wait()
                active = int(work.result()[0].item())
                self.reducer.divisor = None if self._divide_by_initial_world_size else active
            if fl.is_grad_enabled():
                self._check_global_sync(False)
        if self._will_sync_buffers():
            self._sync_buffers()

    def _check_global_sync(self, joined: bool) -> bool:
        """Whether the processes with inputs average gradients after this iteration."""
        from flambeau.distributed import _collectives

        flag = fl.tensor([float(self.require_backward_grad_sync and not joined)], device=self.device)
        _collectives.all_reduce(flag, group=self.process_group)
        return flag.item() != 0

    def forward(self, *inputs: Any, **kwargs: Any) -> Any:
        begun = 0 if fl.compiler.is_compiling() else time.time_ns()
        self._before_forward()
        if self.device_ids:
            device = fl.device("cuda", self.device_ids[0])
            inputs, kwargs = _moved(inputs, device), _moved(kwargs, device)
        output = self._run(*inputs, **kwargs)
        sync = fl.is_grad_enabled() and self.require_backward_grad_sync
        self.require_forward_param_sync = sync
        self.reducer.enabled = self.require_backward_grad_sync
        if sync and not fl.compiler.is_compiling():
            # A process whose loss reaches no parameter still takes part in the reduction. In a captured graph the first
            # gradient begins it.
            self.reducer.timing.forward_start, self.reducer.timing.forward_end = begun, time.time_ns()
            for tensor in _tensors_in(output):
                if tensor.requires_grad and tensor.grad_fn is not None:
                    tensor.register_hook(self.reducer.begin)
        return output

    def _run(self, *inputs: Any, **kwargs: Any) -> Any:
        precision = self.mixed_precision
        if precision is None or precision.param_dtype is None:
            return self.module(*inputs, **kwargs)
        lowered = {
            name: parameter.to(precision.param_dtype)
            for name, parameter in self.module.named_parameters()
            if parameter.is_floating_point()
        }

        def cast(value: Any) -> Any:
            return value.to(precision.param_dtype) if isinstance(value, Tensor) and value.is_floating_point() else value

        inputs = tuple(cast(value) for value in inputs)
        kwargs = {key: cast(value) for key, value in kwargs.items()}
        return fl.func.functional_call(self.module, lowered, inputs, kwargs)

    @contextlib.contextmanager
    def no_sync(self) -> Iterator[None]:
        """A `with` block in which gradients are only accumulated in each process."""
        before, self.require_backward_grad_sync = self.require_backward_grad_sync, False
        try:
            yield
        finally:
            self.require_backward_grad_sync = before

    # ------------------------------------------------------------------------------------ uneven inputs

    @contextlib.contextmanager
    def join(
        self,
        divide_by_initial_world_size: bool = True,
        enable: bool = True,
        throw_on_early_termination: bool = False,
    ) -> Iterator[None]:
        """A `with` block around a training loop whose number of batches differs between processes."""
        from flambeau.distributed.algorithms.join import Join

        options = {"divide_by_initial_world_size": divide_by_initial_world_size}
        with Join([self], enable, throw_on_early_termination, **options):
            yield

    def join_hook(self, **kwargs: Any) -> Any:
        from flambeau.distributed._join_ddp import DDPJoinHook

        self._divide_by_initial_world_size = kwargs.get("divide_by_initial_world_size", True)
        return DDPJoinHook(self)

    @property
    def join_device(self) -> Any:
        return self.device

    @property
    def join_process_group(self) -> Any:
        return self.process_group

    # ------------------------------------------------------------------------------------ hooks and the rest

    def register_comm_hook(self, state: object, hook: Callable[..., Any]) -> None:
        """Calls `hook(state, bucket)` for each bucket instead of averaging it; it returns a future of the result."""
        from flambeau.distributed import _reducer

        if not callable(hook):
            raise TypeError("[register_comm_hook] Communication hook must be callable.")
        self._check_hook(hook)
        _reducer._register_comm_hook(self.reducer, state, hook)
        self._comm_hooks.append((hook, state))

    @staticmethod
    def _check_hook(hook: Any) -> None:
        import inspect

        signature = inspect.signature(hook)
        bucket, returned = signature.parameters.get("bucket"), signature.return_annotation
        if returned not in (inspect.Signature.empty, Any, "Any") and "Future" not in str(returned):
            raise ValueError(
                "[register_comm_hook] Communication hook: return annotation should be torch.futures.Future or "
                f"torch._C.Future, got {returned}"
            )
        if bucket is not None and bucket.annotation not in (inspect.Parameter.empty, Any, "Any"):
            name = getattr(bucket.annotation, "__name__", str(bucket.annotation))
            if not str(name).endswith("GradBucket"):
                raise ValueError(
                    "[register_comm_hook] Communication hook: bucket annotation should be dist.GradBucket."
                )

    def _register_builtin_comm_hook(self, comm_hook_type: Any) -> None:
        from flambeau.distributed import _reducer

        _reducer._register_builtin_comm_hook(self.reducer, comm_hook_type)

    def _set_static_graph(self) -> None:
        self.static_graph = self.reducer.static_graph = True

    def _get_ddp_logging_data(self) -> dict[str, Any]:
        return self.logger._get_ddp_logging_data()

    @classmethod
    def _set_params_and_buffers_to_ignore_for_model(cls, module: Module, params_and_buffers_to_ignore: Any) -> None:
        module._ddp_params_and_buffers_to_ignore = list(params_and_buffers_to_ignore)

    def train(self, mode: bool = True) -> DistributedDataParallel:
        super().train(mode)
        return self

    def __getstate__(self) -> dict[str, Any]:
        state = copy.copy(self.__dict__)
        for name in ("process_group", "reducer", "logger", "_after_reduction", "_join_config", "device_mesh"):
            state.pop(name, None)
        return state

    def __setstate__(self, state: dict[str, Any]) -> None:
        from flambeau.distributed import _groups

        self.__dict__.update(state)
        self.process_group = _groups._get_default_group()
        self._after_reduction, self._join_config, self.device_mesh = [], None, None
        self._prepare(init_sync=False)
