"""Spectral normalisation by a hook (deprecated): it divides a weight by its largest singular value, found by power iteration."""

from __future__ import annotations

from typing import Any

import flambeau as fl
from flambeau import Tensor
from flambeau.nn import functional as F
from flambeau.nn.modules.module import Module

__all__ = [
    "SpectralNorm", "SpectralNormLoadStateDictPreHook", "SpectralNormStateDictHook", "spectral_norm",
    "remove_spectral_norm",
]  # fmt: skip


class SpectralNorm:
    """The hook: sets `name` to `name_orig` over its largest singular value, whose vectors are kept in buffers.

    Of the singular vectors, `name_u` is the one iterations start from; `name_v` is kept so that evaluation uses the
    very pair that training last did. Version 1 of the state dict holds both.
    """

    _version: int = 1

    def __init__(self, name: str = "weight", n_power_iterations: int = 1, dim: int = 0, eps: float = 1e-12) -> None:
        if n_power_iterations <= 0:
            raise ValueError(f"[spectral_norm] expected n_power_iterations > 0, got {n_power_iterations}")
        self.name = name
        self.dim = dim
        self.n_power_iterations = n_power_iterations
        self.eps = eps

    def reshape_weight_to_matrix(self, weight: Tensor) -> Tensor:
        """The weight as a matrix whose rows run along `dim`."""
        if self.dim != 0:
            weight = weight.permute(self.dim, *(d for d in range(weight.dim()) if d != self.dim))
        return weight.reshape(weight.size(0), -1)

    def compute_weight(self, module: Module, do_power_iteration: bool) -> Tensor:
        """The normalised weight, after an iteration of the singular vectors in place when asked for."""
        weight = getattr(module, f"{self.name}_orig")
        u = getattr(module, f"{self.name}_u")
        v = getattr(module, f"{self.name}_v")
        matrix = self.reshape_weight_to_matrix(weight)
        if do_power_iteration:
            with fl.no_grad():
                for _ in range(self.n_power_iterations):
                    v = F.normalize(fl.mv(matrix.t(), u), dim=0, eps=self.eps, out=v)
                    u = F.normalize(fl.mv(matrix, v), dim=0, eps=self.eps, out=u)
                if self.n_power_iterations > 0:
                    # The backward pass of this step must see the vectors as they are now.
                    u = u.clone(memory_format=fl.contiguous_format)
                    v = v.clone(memory_format=fl.contiguous_format)
        return weight / fl.dot(u, fl.mv(matrix, v))

    def remove(self, module: Module) -> None:
        """Puts the parameter back with its present value."""
        with fl.no_grad():
            weight = self.compute_weight(module, do_power_iteration=False)
        delattr(module, self.name)
        delattr(module, f"{self.name}_u")
        delattr(module, f"{self.name}_v")
        delattr(module, f"{self.name}_orig")
        module.register_parameter(self.name, fl.nn.Parameter(weight.detach()))

    def __call__(self, module: Module, inputs: Any) -> None:
        setattr(module, self.name, self.compute_weight(module, do_power_iteration=module.training))

    def _solve_v_and_rescale(self, weight_mat: Tensor, u: Tensor, target_sigma: Tensor) -> Tensor:
        """The v for which u^T W v is the wanted value, for state dicts that hold only u and the weight."""
        v = fl.linalg.multi_dot([weight_mat.t().mm(weight_mat).pinverse(), weight_mat.t(), u.unsqueeze(1)]).squeeze(1)
        return v.mul_(target_sigma / fl.dot(u, fl.mv(weight_mat, v)))

    @staticmethod
    def apply(module: Module, name: str, n_power_iterations: int, dim: int, eps: float) -> SpectralNorm:
        """Replaces a parameter by its original and singular vectors, and registers the hooks."""
        for hook in module._forward_pre_hooks.values():
            if isinstance(hook, SpectralNorm) and hook.name == name:
                raise RuntimeError(
                    f"[spectral_norm] expected one hook on {name}, got a second: Cannot register two spectral_norm hooks"
                )
        hook = SpectralNorm(name, n_power_iterations, dim, eps)
        weight = module._parameters[name]
        if weight is None:
            raise ValueError(f"[spectral_norm] expected a parameter {name!r}, got None")
        if fl.nn.parameter.is_lazy(weight):
            raise ValueError(
                f"[spectral_norm] expected an initialised parameter, got the lazy {name}; run one forward pass first"
            )
        with fl.no_grad():
            rows, columns = hook.reshape_weight_to_matrix(weight).size()
            u = F.normalize(weight.new_empty(rows).normal_(0, 1), dim=0, eps=hook.eps)
            v = F.normalize(weight.new_empty(columns).normal_(0, 1), dim=0, eps=hook.eps)
        delattr(module, name)
        module.register_parameter(f"{name}_orig", weight)
        # The attribute stays in place for those who read it between forwards; it is no parameter and gets no gradient.
        setattr(module, name, weight.data)
        module.register_buffer(f"{name}_u", u)
        module.register_buffer(f"{name}_v", v)
        module.register_forward_pre_hook(hook)
        module._register_state_dict_hook(SpectralNormStateDictHook(hook))
        module._register_load_state_dict_pre_hook(SpectralNormLoadStateDictPreHook(hook))
        return hook


class SpectralNormLoadStateDictPreHook:
    """Fills in `name_v` for state dicts from before it was kept."""

    def __init__(self, fn: SpectralNorm) -> None:
        self.fn = fn

    def __call__(
        self,
        state_dict: dict[str, Any],
        prefix: str,
        local_metadata: dict[str, Any],
        strict: bool,
        missing_keys: list[str],
        unexpected_keys: list[str],
        error_msgs: list[str],
    ) -> None:
        name = self.fn.name
        version = local_metadata.get("spectral_norm", {}).get(f"{name}.version", None)
        if version is not None and version >= 1:
            return
        key = prefix + name
        parts = (f"{key}_orig", f"{key}_u", f"{key}_v")
        if version is None and key not in state_dict and all(part in state_dict for part in parts):
            return
        missing = [key + suffix for suffix in ("_orig", "", "_u") if key + suffix not in state_dict]
        if missing:
            if strict:
                missing_keys.extend(missing)
            return
        with fl.no_grad():
            original, weight = state_dict[f"{key}_orig"], state_dict.pop(key)
            sigma = (original / weight).mean()
            matrix = self.fn.reshape_weight_to_matrix(original)
            state_dict[f"{key}_v"] = self.fn._solve_v_and_rescale(matrix, state_dict[f"{key}_u"], sigma)


class SpectralNormStateDictHook:
    """Notes the version beside the state."""

    def __init__(self, fn: SpectralNorm) -> None:
        self.fn = fn

    def __call__(self, module: Module, state_dict: Any, prefix: str, local_metadata: dict[str, Any]) -> None:
        versions = local_metadata.setdefault("spectral_norm", {})
        key = f"{self.fn.name}.version"
        if key in versions:
            raise RuntimeError(f"[spectral_norm] expected no {key!r} in the metadata yet, got {versions[key]}")
        versions[key] = self.fn._version


def spectral_norm(
    module: Any, name: str = "weight", n_power_iterations: int = 1, eps: float = 1e-12, dim: int | None = None
) -> Any:
    """A weight divided by its largest singular value, found by power iteration.

    - module; name; n_power_iterations; eps; dim.

    >>> nn.utils.spectral_norm(nn.Linear(2, 3)).weight_orig.shape
    torch.Size([3, 2])
    """
    if dim is None:
        transposed = fl.nn.ConvTranspose1d, fl.nn.ConvTranspose2d, fl.nn.ConvTranspose3d
        dim = 1 if isinstance(module, transposed) else 0
    SpectralNorm.apply(module, name, n_power_iterations, dim, eps)
    return module


def remove_spectral_norm(module: Any, name: str = "weight") -> Any:
    """The weight of spectral_norm as a plain parameter again.

    - module; name.

    >>> nn.utils.remove_spectral_norm(nn.utils.spectral_norm(nn.Linear(2, 3)))
    Linear(in_features=2, out_features=3, bias=True)
    """
    for key, hook in module._forward_pre_hooks.items():
        if isinstance(hook, SpectralNorm) and hook.name == name:
            hook.remove(module)
            del module._forward_pre_hooks[key]
            break
    else:
        raise ValueError(f"[remove_spectral_norm] expected a spectral_norm of {name!r}, got none in {module}")
    for table, kind in (
        (module._state_dict_hooks, SpectralNormStateDictHook),
        (module._load_state_dict_pre_hooks, SpectralNormLoadStateDictPreHook),
    ):
        for key, hook in table.items():
            inner = getattr(hook, "hook", hook)
            if isinstance(inner, kind) and inner.fn.name == name:
                del table[key]
                break
    return module
