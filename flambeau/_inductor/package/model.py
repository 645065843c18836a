"""A package as something to call: arguments become tensors by its signature, native code runs it."""

from __future__ import annotations

import json
import os
from typing import IO, Any

from flambeau import _C
from flambeau.utils import _pytree as pytree

__all__ = ["AOTICompiledModel", "load_package"]


class AOTICompiledModel:
    """A model that was compiled ahead of time. Calls on several threads run at the same time."""

    def __init__(self, package: Any) -> None:
        self._package = package
        signature, metadata, self.instruction_set = _C._package_facts(package)
        facts = json.loads(signature)
        self._metadata = {str(k): str(v) for k, v in json.loads(metadata).items()}
        self._in_spec = pytree.treespec_loads(facts["in_spec"])
        self._out_spec = pytree.treespec_loads(facts["out_spec"])
        self._inputs: list[dict[str, Any]] = facts["inputs"]
        self._outputs: list[dict[str, Any]] = facts["outputs"]
        # Tensors by position and one tensor as the result, which most models have, need no look at structures.
        flat = pytree.tree_structure(((0,) * len(self._inputs), {})) == self._in_spec
        kinds = {fact["kind"] for fact in (*self._inputs, *self._outputs)}
        is_plain = flat and kinds == {"tensor"} and self._out_spec == pytree.tree_structure(0)
        self._plain_inputs = len(self._inputs) if is_plain else -1

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        if len(args) == self._plain_inputs and not kwargs and all(isinstance(a, _C.Tensor) for a in args):
            return _C._run_package(self._package, args)[0]
        leaves, spec = pytree.tree_flatten((args, kwargs))
        if spec != self._in_spec:
            leaves = self._reordered(args, kwargs)
        tensors = []
        for fact, leaf in zip(self._inputs, leaves):
            if fact["kind"] == "tensor":
                tensors.append(leaf)
            elif leaf != fact["value"]:
                raise ValueError(
                    f"[package] expected the value {fact['value']!r} that the program was exported with, got {leaf!r}"
                )
        results = iter(self.run_tensors(tensors))
        outputs = []
        for fact in self._outputs:
            if fact["kind"] == "value":
                outputs.append(fact["value"])
            else:
                value = next(results)
                outputs.append(value.shape[0] if fact["kind"] == "int" else value)
        return pytree.tree_unflatten(outputs, self._out_spec)

    def _reordered(self, args: Any, kwargs: Any) -> list[Any]:
        """Leaves of a call that gives keyword arguments in another order; an error for another structure."""
        names = self._in_spec.children()[1].context
        if isinstance(names, list) and set(names) == set(kwargs):
            leaves, spec = pytree.tree_flatten((args, {name: kwargs[name] for name in names}))
            if spec == self._in_spec:
                return leaves
        structure = pytree.tree_structure((args, kwargs))
        raise ValueError(f"[package] expected arguments of the structure {self._in_spec}, got {structure}")

    def run_tensors(self, tensors: list[Any]) -> list[Any]:
        """Runs on the tensors among the arguments; the tensors among the results."""
        results: list[Any] = _C._run_package(self._package, tensors)
        return results

    def get_metadata(self) -> dict[str, str]:
        """What the package says about itself."""
        return dict(self._metadata)

    def get_constant_fqns(self) -> list[str]:
        """The names of parameters, buffers and other constants."""
        return [name for name, _ in _C._package_constants(self._package)]

    def load_constants(
        self,
        constants_map: dict[str, Any],
        *,
        check_full_update: bool,
        user_managed: bool = False,
        allow_h2d_copy: bool = False,
    ) -> None:
        """Replaces constants by name: by copies, or with `user_managed` by the tensors themselves."""
        if check_full_update:
            missing = [name for name in self.get_constant_fqns() if name not in constants_map]
            if missing:
                raise RuntimeError(f"[package] expected all constants, got none for {', '.join(missing)}")
        pairs = [(name, tensor.detach()) for name, tensor in constants_map.items()]
        _C._update_package(self._package, pairs, user_managed)


def load_package(
    path: str | os.PathLike[str] | IO[bytes],
    model_name: str = "model",
    run_single_threaded: bool = False,
    num_runners: int = 1,
    device_index: int = -1,
) -> AOTICompiledModel:
    """Loads a package from a file, or from a buffer. Kernels of a package are native code: load only those you trust."""
    if hasattr(path, "read"):
        return AOTICompiledModel(_C._load_package(bytes(path.read()), device_index))
    return AOTICompiledModel(_C._load_package(os.fspath(path), device_index))
