"""Modules that learn the shapes of their parameters from their first input.

Such a module is made with uninitialised parameters. Two hooks wait on it: one before the first forward, which calls
`initialize_parameters` and turns the module into an instance of `cls_to_become`, and one on loading a state dict,
which takes the shapes from there. Both are gone once the shapes are known.
"""

from __future__ import annotations

from typing import Any

import flambeau as fl
from flambeau.nn.modules.module import Module
from flambeau.nn.parameter import is_lazy

__all__ = ["LazyModuleMixin"]


class LazyModuleMixin(Module):
    """To be put before the class of the module: `class LazyLinear(LazyModuleMixin, Linear)`."""

    cls_to_become: type | None = None

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._load_hook = self._register_load_state_dict_pre_hook(self._lazy_load_hook)
        self._initialize_hook = self.register_forward_pre_hook(self._infer_parameters, with_kwargs=True)

    def _save_to_state_dict(self, destination: dict[str, Any], prefix: str, keep_vars: bool) -> None:
        # An uninitialised parameter has no values to detach and is saved as it is.
        for name, parameter in self._parameters.items():
            if parameter is not None:
                destination[prefix + name] = parameter if is_lazy(parameter) or keep_vars else parameter.detach()
        for name, buffer in self._buffers.items():
            if buffer is not None and name not in self._non_persistent_buffers_set:
                destination[prefix + name] = buffer if is_lazy(buffer) or keep_vars else buffer.detach()

    def _lazy_load_hook(
        self,
        state_dict: dict[str, Any],
        prefix: str,
        local_metadata: Any,
        strict: bool,
        missing_keys: list[str],
        unexpected_keys: list[str],
        error_msgs: list[str],
    ) -> None:
        for name, own in (*self._parameters.items(), *self._buffers.items()):
            loaded = state_dict.get(prefix + name)
            if loaded is not None and own is not None and is_lazy(own) and not is_lazy(loaded):
                with fl.no_grad():
                    own.materialize(loaded.shape)

    def initialize_parameters(self, *args: Any, **kwargs: Any) -> None:
        """Give the parameters their shapes, from the arguments of forward."""
        raise NotImplementedError(
            f"[{type(self).__name__}] expected a lazy module to define initialize_parameters, got none"
        )

    def has_uninitialized_params(self) -> bool:
        """Whether any parameter or buffer has no shape yet."""
        members = (*self._parameters.values(), *self._buffers.values())
        return any(is_lazy(member) for member in members)

    def _infer_parameters(self, module: Any, args: tuple[Any, ...], kwargs: dict[str, Any] | None = None) -> None:
        module.initialize_parameters(*args, **(kwargs or {}))
        if module.has_uninitialized_params():
            raise RuntimeError(
                f"[{self._get_name()}] expected every parameter to be initialised after initialize_parameters, got some left"
            )
        module._initialize_hook.remove()
        module._load_hook.remove()
        del module._initialize_hook
        del module._load_hook
        if module.cls_to_become is not None:
            module.__class__ = module.cls_to_become

    def _replicate_for_data_parallel(self) -> Any:
        raise RuntimeError(
            f"[{type(self).__name__}] expected initialised parameters for data parallelism, got lazy ones; "
            "run one forward pass first"
        )
