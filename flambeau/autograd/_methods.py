"""The methods of Tensor that belong to autograd, beyond those that the native binding attaches."""

from __future__ import annotations

from flambeau import _C
from flambeau._C import Tensor

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any


class RemovableHandle:
    """What registering a hook returns: `remove()` takes the hook off again. Also a context manager."""

    next_id = 0

    def __init__(self, remove: Callable[[], None]) -> None:
        self._remove: Callable[[], None] | None = remove
        self.id = RemovableHandle.next_id
        RemovableHandle.next_id += 1

    def remove(self) -> None:
        if self._remove is not None:
            self._remove()
            self._remove = None

    def __enter__(self) -> RemovableHandle:
        return self

    def __exit__(self, *error: Any) -> None:
        self.remove()


def _override(name: str, args: tuple[Any, ...], *rest: Any, **kwargs: Any) -> Any:
    from flambeau.overrides import handle_torch_function

    return handle_torch_function(getattr(Tensor, name), args, *rest, **kwargs)


def backward(
    self: Tensor, gradient: Any = None, retain_graph: bool | None = None, create_graph: bool = False, inputs: Any = None
) -> None:
    """Adds the gradient of this tensor to the .grad of the leaves it depends on.

    >>> x = flambeau.tensor([1.0, 2.0], requires_grad=True)
    >>> (x * x).sum().backward()
    >>> x.grad
    tensor([2., 4.])
    """
    if _C._has_torch_function_unary(self):
        return _override(
            "backward",
            (self,),
            self,
            gradient=gradient,
            retain_graph=retain_graph,
            create_graph=create_graph,
            inputs=inputs,
        )
    if gradient is None and inputs is None:
        retain_graph = create_graph if retain_graph is None else retain_graph
        if _C._backward_of_loss(self, bool(retain_graph), bool(create_graph)):
            return
    from flambeau import autograd

    autograd.backward(self, gradient, retain_graph, create_graph, inputs=inputs)


def register_hook(self: Tensor, hook: Callable[[Tensor], Any]) -> RemovableHandle:
    """Calls `hook` with each gradient of this tensor; what it returns, if anything, replaces the gradient.

    >>> x = flambeau.ones(1, requires_grad=True)
    >>> handle = x.register_hook(lambda grad: grad * 10)
    >>> x.sum().backward()
    >>> x.grad
    tensor([10.])
    """
    if _C._has_torch_function_unary(self):
        return _override("register_hook", (self,), self, hook)
    return RemovableHandle(self._register_hook(hook))


def register_post_accumulate_grad_hook(self: Tensor, hook: Callable[[Tensor], None]) -> RemovableHandle:
    """Calls `hook` with this leaf after a gradient was added to its .grad.

    >>> x = flambeau.ones(1, requires_grad=True)
    >>> handle = x.register_post_accumulate_grad_hook(lambda leaf: print(leaf.grad))
    >>> x.sum().backward()
    tensor([1.])
    """
    if not self.requires_grad:
        raise RuntimeError(
            "[register_post_accumulate_grad_hook] expected a tensor that requires grad, got one that does not: cannot "
            "register a "
            "hook on a tensor that doesn't require gradient"
        )
    if not self.is_leaf:
        raise RuntimeError(
            "[register_post_accumulate_grad_hook] expected a leaf, got a result of an operation: post accumulate grad "
            "hooks cannot "
            "be registered on non-leaf tensors"
        )
    return RemovableHandle(self._register_post_accumulate_grad_hook(hook))


def reinforce(self: Tensor, reward: Any) -> None:
    """Removed; take the gradient of `log_prob` of a distribution, times the reward.

    >>> policy = flambeau.distributions.Categorical(logits=flambeau.zeros(2, requires_grad=True))
    >>> (-policy.log_prob(policy.sample()) * 2.0).backward()
    """
    raise RuntimeError("[reinforce] expected distributions' log_prob to be used instead, got a call of reinforce()")


def detach_(self: Tensor) -> Tensor:
    """Takes the tensor off its graph.

    >>> y = flambeau.ones(1, requires_grad=True) * 2
    >>> y.detach_().requires_grad
    False
    """
    _C._detach_(self)
    return self


def _is_view(self: Tensor) -> bool:
    return self._base is not None


for _fn in (backward, register_hook, register_post_accumulate_grad_hook, reinforce, detach_, _is_view):
    if not (_fn.__name__ == "detach_" and hasattr(Tensor, "detach_")):
        setattr(Tensor, _fn.__name__, _fn)
Tensor._backward_hooks = None
Tensor._post_accumulate_grad_hooks = None


def _node_register_hook(self: Any, fn: Callable[..., Any]) -> RemovableHandle:
    """Calls fn(gradients of the inputs, gradients of the outputs) after the node ran."""
    return RemovableHandle(self._register_hook(fn))


def _node_register_prehook(self: Any, fn: Callable[..., Any]) -> RemovableHandle:
    """Calls fn(gradients of the outputs) before the node runs."""
    return RemovableHandle(self._register_prehook(fn))


_C.Node.register_hook = _node_register_hook  # type: ignore[method-assign]
_C.Node.register_prehook = _node_register_prehook  # type: ignore[method-assign]
