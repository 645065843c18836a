"""Gradient scaling: a loss is multiplied so that small gradients survive in float16, and the gradients divided again.

The scale adapts: a step with gradients that are not finite is left out and the scale reduced; after enough good steps
in a row it grows.
"""

from __future__ import annotations

import warnings
from collections import defaultdict
from enum import Enum
from typing import Any

import flambeau as fl
from flambeau import Tensor
from flambeau.backends import widest_float

__all__ = ["GradScaler", "OptState"]


class OptState(Enum):
    """How far an optimizer has come since the last update of the scale."""

    READY = 0
    UNSCALED = 1
    STEPPED = 2


def _refresh_per_optimizer_state() -> dict[str, Any]:
    return {"stage": OptState.READY, "found_inf_per_device": {}}


class GradScaler:
    """Scales losses and unscales gradients; use `scale`, then `step`, then `update`."""

    def __init__(
        self,
        device: str = "cuda",
        init_scale: float = 2.0**16,
        growth_factor: float = 2.0,
        backoff_factor: float = 0.5,
        growth_interval: int = 2000,
        enabled: bool = True,
    ) -> None:
        self._device = device
        self._enabled = enabled
        if enabled and device == "cuda" and not fl.cuda.is_available():
            warnings.warn(
                "[GradScaler] expected a CUDA device for device='cuda', but CUDA is not available; it is disabled",
                stacklevel=2,
            )
            self._enabled = False
        if self._enabled:
            if growth_factor <= 1.0:
                raise AssertionError(f"[GradScaler] expected growth_factor > 1, got {growth_factor}")
            if backoff_factor >= 1.0:
                raise AssertionError(f"[GradScaler] expected backoff_factor < 1, got {backoff_factor}")
            self._init_scale = init_scale
            self._scale: Tensor | None = None
            self._growth_factor = growth_factor
            self._backoff_factor = backoff_factor
            self._growth_interval = growth_interval
            self._init_growth_tracker = 0
            self._growth_tracker: Tensor | None = None
            self._per_optimizer_states: dict[int, dict[str, Any]] = defaultdict(_refresh_per_optimizer_state)

    def _check_scale_growth_tracker(self, funcname: str) -> tuple[Tensor, Tensor]:
        if self._scale is None or self._growth_tracker is None:
            raise AssertionError(
                f"[GradScaler] expected scale(loss) before {funcname}(), got no call of it: _scale is None"
            )
        return self._scale, self._growth_tracker

    def _lazy_init_scale_growth_tracker(self, dev: Any) -> None:
        if self._growth_tracker is not None:
            raise AssertionError(
                "[GradScaler] expected _scale to be made before _growth_tracker, got the tracker alone"
            )
        self._scale = fl.full((), self._init_scale, dtype=fl.float32, device=dev)
        self._growth_tracker = fl.full((), self._init_growth_tracker, dtype=fl.int32, device=dev)

    def scale(self, outputs: Any) -> Any:
        """The tensor, or the tensors of an iterable, times the scale."""
        if not self._enabled:
            return outputs
        if isinstance(outputs, Tensor):
            if self._scale is None:
                self._lazy_init_scale_growth_tracker(outputs.device)
            return outputs * self._scale.to(device=outputs.device, non_blocking=True)  # type: ignore[union-attr]
        if hasattr(outputs, "__iter__") and not isinstance(outputs, (str, bytes)):
            scaled = map(self.scale, outputs)
            return type(outputs)(scaled) if isinstance(outputs, (list, tuple)) else scaled
        raise ValueError(f"[GradScaler] expected a Tensor or an iterable of Tensors, got {type(outputs).__name__}")

    def _unscale_grads_(
        self, optimizer: Any, inv_scale: Tensor, found_inf: Tensor, allow_fp16: bool
    ) -> dict[Any, Tensor]:
        """Divide the scale out of an optimizer's gradients; by device, whether one was not finite."""
        by_device: dict[Any, list[Tensor]] = {}
        for group in optimizer.param_groups:
            for p in group["params"]:
                if p.grad is None:
                    continue
                if not allow_fp16 and p.grad.dtype == fl.float16:
                    raise ValueError(
                        "[GradScaler] expected gradients of float32 to unscale, got float16; keep the parameters in float32 and use autocast"
                    )
                by_device.setdefault(p.grad.device, []).append(p.grad)
        found_infs = {}
        with fl.no_grad():
            for device, grads in by_device.items():
                found_infs[device] = found_inf.to(device, copy=True)
                fl._amp_foreach_non_finite_check_and_unscale_(grads, found_infs[device], inv_scale.to(device))
        return found_infs

    def unscale_(self, optimizer: Any) -> None:
        """Divide the gradients by the scale now, for instance to clip them before the step."""
        if not self._enabled:
            return
        self._check_scale_growth_tracker("unscale_")
        state = self._per_optimizer_states[id(optimizer)]
        if state["stage"] is OptState.UNSCALED:
            raise RuntimeError(
                "[GradScaler] expected unscale_() once between updates, got a second call for this optimizer"
            )
        if state["stage"] is OptState.STEPPED:
            raise RuntimeError("[GradScaler] expected unscale_() before step(), got it after")
        inv_scale = self._scale.to(widest_float(self._scale.device)).reciprocal().float()  # type: ignore[union-attr]
        found_inf = fl.full((), 0.0, dtype=fl.float32, device=self._scale.device)  # type: ignore[union-attr]
        state["found_inf_per_device"] = self._unscale_grads_(optimizer, inv_scale, found_inf, False)
        state["stage"] = OptState.UNSCALED

    def _maybe_opt_step(self, optimizer: Any, optimizer_state: dict[str, Any], *args: Any, **kwargs: Any) -> Any:
        if not sum(v.item() for v in optimizer_state["found_inf_per_device"].values()):
            return optimizer.step(*args, **kwargs)
        return None

    def step(self, optimizer: Any, *args: Any, **kwargs: Any) -> Any:
        """The optimizer's step on unscaled gradients, unless one of them is not finite."""
        if not self._enabled:
            return optimizer.step(*args, **kwargs)
        if "closure" in kwargs:
            raise RuntimeError("[GradScaler] expected step() without a closure, got one")
        self._check_scale_growth_tracker("step")
        state = self._per_optimizer_states[id(optimizer)]
        if state["stage"] is OptState.STEPPED:
            raise RuntimeError(
                "[GradScaler] expected step() once between updates, got a second call for this optimizer"
            )
        if getattr(optimizer, "_step_supports_amp_scaling", False):
            result = self._step_with_scale(optimizer, state, args, kwargs)
        else:
            if state["stage"] is OptState.READY:
                self.unscale_(optimizer)
            if not state["found_inf_per_device"]:
                raise AssertionError("[GradScaler] expected gradients in the optimizer, got none")
            result = self._maybe_opt_step(optimizer, state, *args, **kwargs)
        state["stage"] = OptState.STEPPED
        return result

    def _step_with_scale(self, optimizer: Any, state: dict[str, Any], args: Any, kwargs: dict[str, Any]) -> Any:
        """The step of an optimizer that unscales by itself, and leaves the step out by itself."""
        import inspect

        takes_scaler = "grad_scaler" in inspect.signature(optimizer.step).parameters
        if takes_scaler:
            kwargs = {**kwargs, "grad_scaler": self}
            warnings.warn(
                "GradScaler is going to stop passing itself as a keyword argument to the passed optimizer. In the near "
                "future GradScaler registers `grad_scale: Tensor` and `found_inf: Tensor` to the passed optimizer and "
                "let the optimizer use them directly.",
                FutureWarning,
                stacklevel=3,
            )
            return optimizer.step(*args, **kwargs)
        scale, _ = self._check_scale_growth_tracker("step")
        if state["stage"] is OptState.READY:
            self._check_inf_per_device(optimizer)
        found_infs = [v.to(scale.device) for v in state["found_inf_per_device"].values()]
        optimizer.grad_scale = None if state["stage"] is OptState.UNSCALED else scale.clone()
        optimizer.found_inf = sum(found_infs[1:], found_infs[0]) if found_infs else fl.zeros((), device=scale.device)
        try:
            return optimizer.step(*args, **kwargs)
        finally:
            del optimizer.grad_scale
            del optimizer.found_inf

    def update(self, new_scale: float | Tensor | None = None) -> None:
        """Adapt the scale to what the steps found, or set it."""
        if not self._enabled:
            return
        scale, tracker = self._check_scale_growth_tracker("update")
        if new_scale is not None:
            if isinstance(new_scale, Tensor):
                if new_scale.numel() != 1 or new_scale.requires_grad:
                    raise AssertionError(
                        "[GradScaler] expected a number or a Tensor of one element without gradient as new_scale, got another Tensor"
                    )
                scale.copy_(new_scale.reshape(()))
            else:
                scale.fill_(new_scale)
        else:
            found_infs = [
                v.to(scale.device, non_blocking=True)
                for state in self._per_optimizer_states.values()
                for v in state["found_inf_per_device"].values()
            ]
            if not found_infs:
                raise AssertionError("[GradScaler] expected step() or unscale_() before update(), got neither")
            fl._amp_update_scale_(
                scale, tracker, sum(found_infs[1:], found_infs[0]), self._growth_factor, self._backoff_factor,
                self._growth_interval,
            )  # fmt: skip
        self._per_optimizer_states = defaultdict(_refresh_per_optimizer_state)

    def _get_scale_async(self) -> Tensor | None:
        return self._scale

    def get_scale(self) -> float:
        if not self._enabled:
            return 1.0
        return self._init_scale if self._scale is None else self._scale.item()

    def get_growth_factor(self) -> float:
        return self._growth_factor

    def set_growth_factor(self, new_factor: float) -> None:
        self._growth_factor = new_factor

    def get_backoff_factor(self) -> float:
        return self._backoff_factor

    def set_backoff_factor(self, new_factor: float) -> None:
        self._backoff_factor = new_factor

    def get_growth_interval(self) -> int:
        return self._growth_interval

    def set_growth_interval(self, new_interval: int) -> None:
        self._growth_interval = new_interval

    def _get_growth_tracker(self) -> int:
        if not self._enabled:
            return 0
        return self._init_growth_tracker if self._growth_tracker is None else int(self._growth_tracker.item())

    def is_enabled(self) -> bool:
        return self._enabled

    def state_dict(self) -> dict[str, Any]:
        if not self._enabled:
            return {}
        return {
            "scale": self.get_scale(),
            "growth_factor": self._growth_factor,
            "backoff_factor": self._backoff_factor,
            "growth_interval": self._growth_interval,
            "_growth_tracker": self._get_growth_tracker(),
        }

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        if not self._enabled:
            return
        if not state_dict:
            raise RuntimeError("[GradScaler] expected a state dict of an enabled scaler, got an empty one")
        self._init_scale = state_dict["scale"]
        if self._scale is not None:
            self._scale.fill_(state_dict["scale"])
        self._growth_factor = state_dict["growth_factor"]
        self._backoff_factor = state_dict["backoff_factor"]
        self._growth_interval = state_dict["growth_interval"]
        self._init_growth_tracker = state_dict["_growth_tracker"]
        if self._growth_tracker is not None:
            self._growth_tracker.fill_(state_dict["_growth_tracker"])

    def __getstate__(self) -> dict[str, Any]:
        state = self.__dict__.copy()
        if self._enabled:
            if self._per_optimizer_states:
                raise AssertionError(
                    "[GradScaler] expected to be pickled between iterations, got a scaler before update()"
                )
            state["_init_scale"] = self.get_scale()
            state["_init_growth_tracker"] = self._get_growth_tracker()
            state["_scale"] = state["_growth_tracker"] = None
        return state

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)

    def _check_inf_per_device(self, optimizer: Any) -> dict[Any, Tensor]:
        """Look for gradients that are not finite without changing any."""
        scale, _ = self._check_scale_growth_tracker("_check_inf_per_device")
        one, found_inf = fl.ones((), device=scale.device), fl.zeros((), device=scale.device)
        state = self._per_optimizer_states[id(optimizer)]
        state["found_inf_per_device"] = self._unscale_grads_(optimizer, one, found_inf, True)
        return state["found_inf_per_device"]

    def _found_inf_per_device(self, optimizer: Any) -> dict[Any, Tensor]:
        return self._per_optimizer_states[id(optimizer)]["found_inf_per_device"]
