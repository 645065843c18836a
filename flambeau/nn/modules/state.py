"""State dicts: a module's parameters and persistent buffers by dotted name, written and read, with hooks on both."""

from __future__ import annotations

import functools
import itertools
import warnings
from collections import OrderedDict, namedtuple
from collections.abc import Mapping
from os import PathLike
from typing import Any

import flambeau as fl
from flambeau import _C
from flambeau.__future__ import get_swap_module_params_on_conversion
from flambeau._C import Tensor
from flambeau._tensor import beside_torch
from flambeau.nn.parameter import Parameter, is_lazy
from flambeau.utils.hooks import RemovableHandle

_EXTRA_STATE_KEY_SUFFIX = "_extra_state"


class _IncompatibleKeys(namedtuple("IncompatibleKeys", ["missing_keys", "unexpected_keys"])):
    """The names of a state dict that did not match the module's."""

    __slots__ = ()

    def __repr__(self) -> str:
        return super().__repr__() if self.missing_keys or self.unexpected_keys else "<All keys matched successfully>"

    __str__ = __repr__


def _mapping_hint(value: Any) -> str:
    """What to pass instead of something that is no dict."""
    if hasattr(value, "state_dict"):
        return "; pass its state_dict()"
    return "; read the file first: load_state_dict(torch.load(path))" if isinstance(value, (str, PathLike)) else ""


def _prefix_hint(missing: list[str], unexpected: list[str]) -> str | None:
    """What to do where the names agree but for a prefix, as wrappers such as DataParallel put in front."""
    for longer, shorter, cure in (
        (unexpected, missing, "strip it: {{k.removeprefix({!r}): v for k, v in state_dict.items()}}"),
        (missing, unexpected, "put it in front: {{{!r} + k: v for k, v in state_dict.items()}}"),
    ):
        if longer and shorter and longer[0] != shorter[0] and longer[0].endswith(shorter[0]):
            prefix = longer[0].removesuffix(shorter[0])
            if all(prefix + key in longer for key in shorter):
                return f"The names differ by the prefix {prefix!r}; {cure.format(prefix)}"
    return None


class _WithModule:
    """A state-dict hook that is called with the module first; the module stays out of pickles of the hook."""

    def __init__(self, hook: Any, module: Any = None) -> None:
        functools.update_wrapper(self, hook)
        self.hook = hook
        self.with_module = module is not None
        self.module = module

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return self.hook(self.module, *args, **kwargs) if self.with_module else self.hook(*args, **kwargs)

    def __deepcopy__(self, memo: Any) -> _WithModule:
        import copy

        return _WithModule(self.hook, copy.deepcopy(self.module, memo) if self.with_module else None)


class StateDicts(_C.ModuleBase):
    """What a module does with state dicts."""

    _version: int = 1
    _parameters: Any
    _buffers: Any
    _modules: Any
    _non_persistent_buffers_set: set[str]
    _state_dict_hooks: Any
    _state_dict_pre_hooks: Any
    _load_state_dict_pre_hooks: Any
    _load_state_dict_post_hooks: Any
    _add_hook: Any

    def get_extra_state(self) -> Any:
        raise RuntimeError(
            f"[{type(self).__name__}.get_extra_state] expected an implementation beside set_extra_state, got none"
        )

    def set_extra_state(self, state: Any) -> None:
        raise RuntimeError(
            f"[{type(self).__name__}.set_extra_state] expected an implementation beside get_extra_state, got none"
        )

    def register_state_dict_post_hook(self, hook: Any) -> RemovableHandle:
        """Calls hook(module, state_dict, prefix, local_metadata) after state_dict()."""
        hook._from_public_api = True
        return self._add_hook(self._state_dict_hooks, hook)

    def _register_state_dict_hook(self, hook: Any) -> RemovableHandle:
        if getattr(hook, "_from_public_api", False):
            raise RuntimeError(
                "[_register_state_dict_hook] expected a new hook, got one of register_state_dict_post_hook"
            )
        return self._add_hook(self._state_dict_hooks, hook)

    def register_state_dict_pre_hook(self, hook: Any) -> RemovableHandle:
        """Calls hook(module, prefix, keep_vars) before state_dict()."""
        return self._add_hook(self._state_dict_pre_hooks, hook)

    def _register_load_state_dict_pre_hook(self, hook: Any, with_module: bool = False) -> RemovableHandle:
        return self._add_hook(self._load_state_dict_pre_hooks, _WithModule(hook, self if with_module else None))

    def register_load_state_dict_pre_hook(self, hook: Any) -> RemovableHandle:
        """Calls hook(module, state_dict, prefix, local_metadata, strict, missing, unexpected, errors) before loading."""
        return self._register_load_state_dict_pre_hook(hook, with_module=True)

    def register_load_state_dict_post_hook(self, hook: Any) -> RemovableHandle:
        """Calls hook(module, incompatible_keys) after loading."""
        return self._add_hook(self._load_state_dict_post_hooks, hook)

    def _save_to_state_dict(self, destination: Any, prefix: str, keep_vars: bool) -> None:
        """Puts the module's own state, without its children's, into a dict."""
        for name, param in self._parameters.items():
            if param is not None:
                destination[prefix + name] = param if keep_vars else param.detach()
        for name, buffer in self._buffers.items():
            if buffer is not None and name not in self._non_persistent_buffers_set:
                destination[prefix + name] = buffer if keep_vars else buffer.detach()
        if type(self).get_extra_state is not StateDicts.get_extra_state:
            destination[prefix + _EXTRA_STATE_KEY_SUFFIX] = self.get_extra_state()

    def state_dict(self, *args: Any, destination: Any = None, prefix: str = "", keep_vars: bool = False) -> Any:
        """Parameters and persistent buffers by their dotted names, sharing memory with the module."""
        if args:
            arguments = dict(zip(("destination", "prefix", "keep_vars"), args))
            destination = arguments.get("destination", destination)
            prefix = arguments.get("prefix", prefix)
            keep_vars = arguments.get("keep_vars", keep_vars)
        if destination is None:
            destination = OrderedDict()
            destination._metadata = OrderedDict()
        local_metadata = {"version": self._version}
        if hasattr(destination, "_metadata"):
            destination._metadata[prefix[:-1]] = local_metadata
        for hook in self._state_dict_pre_hooks.values():
            hook(self, prefix, keep_vars)
        self._save_to_state_dict(destination, prefix, keep_vars)
        for name, module in self._modules.items():
            if module is not None:
                module.state_dict(destination=destination, prefix=f"{prefix}{name}.", keep_vars=keep_vars)
        for hook in self._state_dict_hooks.values():
            returned = hook(self, destination, prefix, local_metadata)
            if getattr(hook, "_from_public_api", False):
                if returned is not None:
                    raise RuntimeError("[state_dict post hook] expected None, got a value: change the dict in place")
            elif returned is not None:
                destination = returned
        return destination

    def _load_from_state_dict(
        self,
        state_dict: Any,
        prefix: str,
        local_metadata: Any,
        strict: bool,
        missing_keys: list[str],
        unexpected_keys: list[str],
        error_msgs: list[str],
    ) -> None:
        """Copies the module's own state, without its children's, out of a dict."""
        for hook in self._load_state_dict_pre_hooks.values():
            hook(state_dict, prefix, local_metadata, strict, missing_keys, unexpected_keys, error_msgs)
        buffers = {k: v for k, v in self._buffers.items() if k not in self._non_persistent_buffers_set}
        own = {k: v for k, v in itertools.chain(self._parameters.items(), buffers.items()) if v is not None}
        assign = local_metadata.get("assign_to_params_buffers", False)
        for name, tensor in own.items():
            key = prefix + name
            if key not in state_dict:
                if strict:
                    missing_keys.append(key)
                continue
            error = self._load_tensor(name, tensor, state_dict[key], key, assign)
            if error:
                error_msgs.append(error)

        extra_key = prefix + _EXTRA_STATE_KEY_SUFFIX
        if type(self).set_extra_state is not StateDicts.set_extra_state:
            if extra_key in state_dict:
                self.set_extra_state(state_dict[extra_key])
            elif strict:
                missing_keys.append(extra_key)
        elif strict and extra_key in state_dict:
            unexpected_keys.append(extra_key)
        if strict:
            for key in state_dict:
                if key.startswith(prefix) and key != extra_key:
                    first, _, rest = key[len(prefix) :].partition(".")
                    if (first not in self._modules) if rest else (first not in own):
                        unexpected_keys.append(key)

    def _load_tensor(self, name: str, tensor: Any, loaded: Any, key: str, assign: bool) -> str | None:
        """Puts a given value into a parameter or buffer; returns what is wrong with it."""
        if not isinstance(loaded, Tensor):
            return (
                f'While copying the parameter named "{key}", expected torch.Tensor or Tensor-like object from '
                f"checkpoint but received {type(loaded)}"
            )
        uninitialised = is_lazy(tensor)
        if not uninitialised and tensor.dim() == 0 and loaded.dim() == 1 and loaded.numel() == 1:
            loaded = loaded[0]  # scalars were once saved as vectors of one element
        if not uninitialised and loaded.shape != tensor.shape:
            return (
                f"size mismatch for {key}: copying a param with shape {loaded.shape} from checkpoint, "
                f"the shape in current model is {tensor.shape}."
            )
        try:
            with fl.no_grad():
                if get_swap_module_params_on_conversion() and not uninitialised:
                    new = tensor.module_load(loaded, assign=assign)
                    if isinstance(tensor, Parameter) and not isinstance(new, Parameter):
                        new = Parameter(new, tensor.requires_grad)
                    fl.utils.swap_tensors(tensor, new)
                elif assign:
                    if isinstance(tensor, Parameter):
                        loaded = loaded if isinstance(loaded, Parameter) else Parameter(loaded, tensor.requires_grad)
                    setattr(self, name, loaded)
                elif tensor.is_meta and not loaded.is_meta:
                    warnings.warn(
                        f"for {key}: copying from a non-meta parameter in the checkpoint to a meta parameter in the "
                        "current model does nothing; pass assign=True to replace it",
                        stacklevel=2,
                    )
                else:
                    tensor.copy_(loaded)
        except Exception as error:
            shapes = "" if uninitialised else f"of shape {tuple(tensor.shape)} "
            return f'While copying the parameter named "{key}" {shapes}an exception occurred: {error!r}'
        return None

    def load_state_dict(self, state_dict: Mapping[str, Any], strict: bool = True, assign: bool = False) -> Any:
        """Copies parameters and buffers from a dict, or takes its tensors themselves with assign."""
        if not isinstance(state_dict, Mapping):
            raise TypeError(
                f"[load_state_dict] expected a dict of tensors, got {type(state_dict).__name__}{_mapping_hint(state_dict)}"
            )
        missing: list[str] = []
        unexpected: list[str] = []
        errors: list[str] = []
        metadata = getattr(state_dict, "_metadata", None)
        state_dict = OrderedDict(beside_torch.converted(state_dict) if beside_torch.torch_module() else state_dict)
        if metadata is not None:
            state_dict._metadata = metadata

        def load(module: Any, local: Any, prefix: str = "") -> None:
            local_metadata = {} if metadata is None else metadata.get(prefix[:-1], {})
            if assign:
                local_metadata["assign_to_params_buffers"] = True
            module._load_from_state_dict(local, prefix, local_metadata, True, missing, unexpected, errors)
            for name, child in module._modules.items():
                if child is not None:
                    child_prefix = f"{prefix}{name}."
                    load(child, {k: v for k, v in local.items() if k.startswith(child_prefix)}, child_prefix)
            keys = _IncompatibleKeys(missing, unexpected)
            for hook in module._load_state_dict_post_hooks.values():
                if hook(module, keys) is not None:
                    raise RuntimeError(
                        "[load_state_dict post hook] expected None, got a value: change the keys in place"
                    )

        load(self, state_dict)
        if strict:
            for what, keys in (("Unexpected", unexpected), ("Missing", missing)):
                if keys:
                    names = ", ".join(f'"{key}"' for key in keys)
                    errors.insert(0, f"{what} key(s) in state_dict: {names}. ")
            if hint := _prefix_hint(missing, unexpected):
                errors.append(hint)
        if errors:
            listed = "\n\t".join(errors)
            raise RuntimeError(f"Error(s) in loading state_dict for {type(self).__name__}:\n\t{listed}")
        return _IncompatibleKeys(missing, unexpected)
