"""Pruning: masks that zero entries of a parameter before each forward.

A pruned parameter `name` becomes `name_orig`, with its mask in the buffer `name_mask`; a hook sets `name` to their
product. Prunings of one parameter add up in a PruningContainer. `remove` makes the zeros permanent.
"""

from __future__ import annotations

import numbers
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator
from typing import Any

import flambeau as fl
from flambeau import Tensor
from flambeau.nn.modules.module import Module


class BasePruningMethod(ABC):
    """A way of choosing what to zero; an instance is the hook on the module."""

    _tensor_name: str
    PRUNING_TYPE = "unstructured"

    def __call__(self, module: Module, inputs: Any) -> None:
        setattr(module, self._tensor_name, self.apply_mask(module))

    @abstractmethod
    def compute_mask(self, t: Tensor, default_mask: Tensor) -> Tensor:
        """The mask for t, which keeps no more than the default mask does."""

    def apply_mask(self, module: Module) -> Tensor:
        """The original with the mask applied."""
        name = getattr(self, "_tensor_name", None)
        if name is None:
            raise AssertionError(f"[prune] expected module {module} to have been pruned, which it has not")
        mask, original = getattr(module, f"{name}_mask"), getattr(module, f"{name}_orig")
        return mask.to(dtype=original.dtype) * original

    @classmethod
    def apply(
        cls, module: Module, name: str, *args: Any, importance_scores: Tensor | None = None, **kwargs: Any
    ) -> Any:
        """Prunes a parameter, in addition to earlier prunings, and registers the hook."""
        earlier = None
        for key, hook in module._forward_pre_hooks.items():
            if isinstance(hook, BasePruningMethod) and hook._tensor_name == name:
                earlier = hook
                del module._forward_pre_hooks[key]
                break
        method: Any = cls(*args, **kwargs)
        method._tensor_name = name
        if earlier is not None:
            container = earlier if isinstance(earlier, PruningContainer) else PruningContainer(earlier)
            container._tensor_name = name
            container.add_pruning_method(method)
            method = container

        tensor = getattr(module, name)
        scores = tensor if importance_scores is None else importance_scores
        if scores.shape != tensor.shape:
            raise AssertionError(
                f"[prune] expected importance_scores of shape {tuple(tensor.shape)}, got {tuple(scores.shape)}"
            )
        if earlier is None:
            default_mask = fl.ones_like(tensor)
            module.register_parameter(f"{name}_orig", module._parameters[name])
            del module._parameters[name]
        else:
            default_mask = getattr(module, f"{name}_mask").detach().clone(memory_format=fl.contiguous_format)
        try:
            module.register_buffer(f"{name}_mask", method.compute_mask(scores, default_mask=default_mask))
            setattr(module, name, method.apply_mask(module))
            module.register_forward_pre_hook(method)
        except Exception:
            if earlier is None:
                original = module._parameters.pop(f"{name}_orig")
                module.register_parameter(name, original)
            raise
        return method

    def prune(self, t: Tensor, default_mask: Tensor | None = None, importance_scores: Tensor | None = None) -> Tensor:
        """A pruned tensor, without touching any module."""
        scores = t if importance_scores is None else importance_scores
        if scores.shape != t.shape:
            raise AssertionError(
                f"[prune] expected importance_scores of shape {tuple(t.shape)}, got {tuple(scores.shape)}"
            )
        default_mask = fl.ones_like(t) if default_mask is None else default_mask
        return t * self.compute_mask(scores, default_mask=default_mask)

    def remove(self, module: Module) -> None:
        """Makes the pruning permanent: the parameter is again one of its own, with its zeros."""
        name = getattr(self, "_tensor_name", None)
        if name is None:
            raise AssertionError(f"[prune] expected module {module} to have been pruned, which it has not")
        weight = self.apply_mask(module)
        if name in module.__dict__:
            delattr(module, name)
        original = module._parameters.pop(f"{name}_orig")
        original.data = weight.data
        del module._buffers[f"{name}_mask"]
        setattr(module, name, original)


class PruningContainer(BasePruningMethod):
    """Several prunings of one parameter: each acts on what those before left."""

    def __init__(self, *args: Any) -> None:
        self._pruning_methods: tuple[BasePruningMethod, ...] = ()
        if not isinstance(args, Iterable):
            self._tensor_name = args._tensor_name
            self.add_pruning_method(args)
        elif len(args) == 1:
            self._tensor_name = args[0]._tensor_name
            self.add_pruning_method(args[0])
        else:
            for method in args:
                self.add_pruning_method(method)

    def add_pruning_method(self, method: Any) -> None:
        """Adds a pruning of the same parameter."""
        if not isinstance(method, BasePruningMethod) and method is not None:
            raise TypeError(f"[prune] expected a BasePruningMethod, got {type(method).__name__}")
        own = getattr(self, "_tensor_name", None)
        if method is not None and own is not None and own != method._tensor_name:
            raise ValueError(f"[prune] expected a pruning of {own!r}, got one of {method._tensor_name!r}")
        self._pruning_methods += (method,)  # type: ignore[operator]

    def __len__(self) -> int:
        return len(self._pruning_methods)

    def __iter__(self) -> Iterator[BasePruningMethod]:
        return iter(self._pruning_methods)

    def __getitem__(self, idx: Any) -> Any:
        return self._pruning_methods[idx]

    def compute_mask(self, t: Tensor, default_mask: Tensor) -> Tensor:
        """The mask after the latest pruning of what the default mask still keeps."""
        method: Any = self._pruning_methods[-1]
        mask = default_mask.to(dtype=t.dtype)
        if method.PRUNING_TYPE == "unstructured":
            chosen: Any = mask == 1
        elif method.PRUNING_TYPE == "structured":
            dim = method.dim % t.dim()
            remaining = mask.sum([d for d in range(t.dim()) if d != dim]) != 0
            chosen = (*(slice(None) for _ in range(dim)), remaining)
        elif method.PRUNING_TYPE == "global":
            chosen = (slice(None),) * t.dim()
        else:
            raise ValueError(
                f"[prune] expected a PRUNING_TYPE of global, structured or unstructured, got {method.PRUNING_TYPE}"
            )
        mask[chosen] = method.compute_mask(t[chosen], default_mask=mask[chosen]).to(mask.dtype)
        return mask


class Identity(BasePruningMethod):
    """Prunes nothing, but sets up the names."""

    def compute_mask(self, t: Tensor, default_mask: Tensor) -> Tensor:
        return default_mask

    @classmethod
    def apply(cls, module: Module, name: str) -> Any:  # type: ignore[override]
        return super().apply(module, name)


class _Amount(BasePruningMethod):
    """Zeroes a number or a share of the entries; subclasses say which."""

    def __init__(self, amount: float) -> None:
        _validate_pruning_amount_init(amount)
        self.amount = amount

    def compute_mask(self, t: Tensor, default_mask: Tensor) -> Tensor:
        count = _compute_nparams_toprune(self.amount, t.nelement())
        _validate_pruning_amount(count, t.nelement())
        mask = default_mask.clone(memory_format=fl.contiguous_format)
        if count:
            mask.view(-1)[self._chosen(t, count)] = 0
        return mask

    def _chosen(self, t: Tensor, count: int) -> Tensor:
        """Positions in the flattened tensor."""
        raise NotImplementedError


class RandomUnstructured(_Amount):
    """Zeroes entries at random."""

    def _chosen(self, t: Tensor, count: int) -> Tensor:
        return fl.rand_like(t).view(-1).topk(count).indices

    @classmethod
    def apply(cls, module: Module, name: str, amount: float) -> Any:  # type: ignore[override]
        return super().apply(module, name, amount=amount)


class L1Unstructured(_Amount):
    """Zeroes the entries nearest to zero."""

    def _chosen(self, t: Tensor, count: int) -> Tensor:
        return t.abs().reshape(-1).topk(count, largest=False).indices

    @classmethod
    def apply(cls, module: Module, name: str, amount: float, importance_scores: Tensor | None = None) -> Any:  # type: ignore[override]
        return super().apply(module, name, amount=amount, importance_scores=importance_scores)


def _channel_mask(t: Tensor, dim: int, channels: Tensor) -> Tensor:
    """Ones in the channels that are kept, zeros in the others."""
    mask = fl.zeros_like(t)
    mask[(*(slice(None) for _ in range(dim % t.dim())), channels)] = 1
    return mask


def _without_least(t: Tensor, mask: Tensor, amount: float, dim: int, scores: Callable[[], Tensor]) -> Tensor:
    """The mask without the channels of the lowest scores."""
    _validate_structured_pruning(t)
    _validate_pruning_dim(t, dim)
    channels = t.shape[dim]
    count = _compute_nparams_toprune(amount, channels)
    _validate_pruning_amount(count, channels)
    if count == 0:
        return mask
    return mask.to(t.dtype) * _channel_mask(t, dim, scores().topk(channels - count).indices)


class RandomStructured(BasePruningMethod):
    """Zeroes whole channels at random."""

    PRUNING_TYPE = "structured"

    def __init__(self, amount: float, dim: int = -1) -> None:
        _validate_pruning_amount_init(amount)
        self.amount = amount
        self.dim = dim

    def compute_mask(self, t: Tensor, default_mask: Tensor) -> Tensor:
        return _without_least(t, default_mask, self.amount, self.dim, lambda: fl.rand(t.shape[self.dim]))

    @classmethod
    def apply(cls, module: Module, name: str, amount: float, dim: int = -1) -> Any:  # type: ignore[override]
        return super().apply(module, name, amount=amount, dim=dim)


class LnStructured(BasePruningMethod):
    """Zeroes the channels of the smallest norm."""

    PRUNING_TYPE = "structured"

    def __init__(self, amount: float, n: Any, dim: int = -1) -> None:
        _validate_pruning_amount_init(amount)
        self.amount = amount
        self.n = n
        self.dim = dim

    def compute_mask(self, t: Tensor, default_mask: Tensor) -> Tensor:
        return _without_least(t, default_mask, self.amount, self.dim, lambda: _compute_norm(t, self.n, self.dim))

    @classmethod
    def apply(  # type: ignore[override]
        cls, module: Module, name: str, amount: float, n: Any, dim: int, importance_scores: Tensor | None = None
    ) -> Any:
        return super().apply(module, name, amount=amount, n=n, dim=dim, importance_scores=importance_scores)


class CustomFromMask(BasePruningMethod):
    """Zeroes what a given mask says."""

    PRUNING_TYPE = "global"

    def __init__(self, mask: Tensor) -> None:
        self.mask = mask

    def compute_mask(self, t: Tensor, default_mask: Tensor) -> Tensor:
        if default_mask.shape != self.mask.shape:
            raise AssertionError(
                f"[prune] expected a mask of shape {tuple(default_mask.shape)}, got {tuple(self.mask.shape)}"
            )
        return default_mask * self.mask.to(dtype=default_mask.dtype)

    @classmethod
    def apply(cls, module: Module, name: str, mask: Tensor) -> Any:  # type: ignore[override]
        return super().apply(module, name, mask=mask)


def identity(module: Module, name: str) -> Module:
    """Sets up the names of pruning without pruning."""
    Identity.apply(module, name)
    return module


def random_unstructured(module: Module, name: str, amount: float) -> Module:
    """Zeroes entries of a parameter at random; amount is a share, or a number."""
    RandomUnstructured.apply(module, name, amount)
    return module


def l1_unstructured(module: Module, name: str, amount: float, importance_scores: Tensor | None = None) -> Module:
    """Zeroes the entries nearest to zero; amount is a share, or a number."""
    L1Unstructured.apply(module, name, amount=amount, importance_scores=importance_scores)
    return module


def random_structured(module: Module, name: str, amount: float, dim: int) -> Module:
    """Zeroes channels along a dimension at random."""
    RandomStructured.apply(module, name, amount, dim)
    return module


def ln_structured(
    module: Module, name: str, amount: float, n: Any, dim: int, importance_scores: Tensor | None = None
) -> Module:
    """Zeroes the channels along a dimension with the smallest n-norm."""
    LnStructured.apply(module, name, amount, n, dim, importance_scores=importance_scores)
    return module


def global_unstructured(
    parameters: Any, pruning_method: type, importance_scores: dict[Any, Tensor] | None = None, **kwargs: Any
) -> None:
    """Prunes several parameters, given as pairs of module and name, as if they were one."""
    if not isinstance(parameters, Iterable):
        raise TypeError("[global_unstructured] expected an iterable of (module, name), got none")
    parameters = list(parameters)
    importance_scores = {} if importance_scores is None else importance_scores
    if not isinstance(importance_scores, dict):
        raise TypeError(
            f"[global_unstructured] expected importance_scores to be a dict, got {type(importance_scores).__name__}"
        )
    relevant = fl.nn.utils.parameters_to_vector(
        [importance_scores.get((module, name), getattr(module, name)) for module, name in parameters]
    )
    default_mask = fl.nn.utils.parameters_to_vector(
        [getattr(module, f"{name}_mask", fl.ones_like(getattr(module, name))) for module, name in parameters]
    )
    container = PruningContainer()
    container._tensor_name = "temp"
    method = pruning_method(**kwargs)
    method._tensor_name = "temp"
    container.add_pruning_method(method)
    if method.PRUNING_TYPE != "unstructured":
        raise TypeError(
            f"[global_unstructured] expected a method of type unstructured, got {pruning_method} of {method.PRUNING_TYPE}"
        )
    mask = container.compute_mask(relevant, default_mask)
    start = 0
    for module, name in parameters:
        parameter = getattr(module, name)
        count = parameter.numel()
        custom_from_mask(module, name, mask=mask[start : start + count].view_as(parameter))
        start += count


def custom_from_mask(module: Module, name: str, mask: Tensor) -> Module:
    """Zeroes what a mask says."""
    CustomFromMask.apply(module, name, mask)
    return module


def remove(module: Module, name: str) -> Module:
    """Makes the pruning of a parameter permanent and takes the hook away."""
    for key, hook in module._forward_pre_hooks.items():
        if isinstance(hook, BasePruningMethod) and hook._tensor_name == name:
            hook.remove(module)
            del module._forward_pre_hooks[key]
            return module
    raise ValueError(f"[prune] expected a pruning of {name!r}, got none in {module}")


def is_pruned(module: Module) -> bool:
    """Whether a module or any within it is pruned."""
    return any(
        isinstance(hook, BasePruningMethod) for child in module.modules() for hook in child._forward_pre_hooks.values()
    )


def _validate_pruning_amount_init(amount: Any) -> None:
    if not isinstance(amount, numbers.Real):
        raise TypeError(f"[prune] expected amount to be a number, got {type(amount).__name__}")
    whole = isinstance(amount, numbers.Integral)
    if (whole and amount < 0) or (not whole and not 0.0 <= float(amount) <= 1.0):
        raise ValueError(f"[prune] expected amount to be a share in [0, 1] or an integer >= 0, got {amount}")


def _validate_pruning_amount(amount: Any, tensor_size: int) -> None:
    if isinstance(amount, numbers.Integral) and amount > tensor_size:  # type: ignore[operator]
        raise ValueError(f"[prune] expected amount of at most {tensor_size}, got {amount}")


def _validate_structured_pruning(t: Tensor) -> None:
    if t.dim() <= 1:
        raise ValueError(f"[prune] expected at least 2 dimensions for structured pruning, got {t.dim()}")


def _compute_nparams_toprune(amount: Any, tensor_size: int) -> int:
    return int(amount) if isinstance(amount, numbers.Integral) else round(amount * tensor_size)


def _validate_pruning_dim(t: Tensor, dim: int) -> None:
    if dim >= t.dim():
        raise IndexError(f"[prune] expected dim below {t.dim()}, got {dim}")


def _compute_norm(t: Tensor, n: Any, dim: int) -> Tensor:
    """The n-norms of the channels along a dimension."""
    others = [d for d in range(t.dim()) if d != dim % t.dim()]
    return fl.norm(t, p=n, dim=others)
