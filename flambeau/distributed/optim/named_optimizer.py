"""An optimizer whose state goes by the names of parameters, so that it can be saved and divided like a model's."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from typing import Any

import flambeau
from flambeau.optim import Optimizer

__all__ = ["_NamedOptimizer"]


class _NamedOptimizer(Optimizer):
    """Wraps an optimizer of the given class; `state_dict` has names in place of numbers."""

    def __init__(
        self,
        named_parameters: Any,
        optimizer_class: type[Optimizer],
        param_groups: Collection[Mapping[str, Any]] | None = None,
        module: Any = None,
        *args: Any,
        **kwargs: Any,
    ) -> None:
        self.module, self.named_parameters = module, dict(named_parameters)
        self._optimizer: Any = optimizer_class(param_groups or self.named_parameters.values(), *args, **kwargs)  # type: ignore[arg-type]
        self._names = {parameter: name for name, parameter in self.named_parameters.items()}
        for group in self._optimizer.param_groups:
            for parameter in group["params"]:
                if parameter not in self._names:
                    raise ValueError(
                        f"[_NamedOptimizer] Expect param name to be found in param group but got {tuple(parameter.shape)}"
                    )
        self.param_groups = self._optimizer.param_groups

    @property
    def state(self) -> Any:  # type: ignore[override]
        return {self._names[parameter]: values for parameter, values in self._optimizer.state.items()}

    def state_dict(self) -> dict[str, Any]:
        groups = [
            {key: value for key, value in group.items() if key != "params"}
            | {"params": sorted(self._names[parameter] for parameter in group["params"])}
            for group in self.param_groups
        ]
        groups = [{"params": group.pop("params"), **group} for group in groups]
        return {"state": dict(self.state), "param_groups": groups}

    def step(self, closure: Callable[[], float] | None = None) -> Any:
        return self._optimizer.step(closure) if closure is not None else self._optimizer.step()

    def zero_grad(self, set_to_none: bool = True) -> None:
        self._optimizer.zero_grad(set_to_none)

    def add_param_group(self, param_group: Mapping[str, Any]) -> None:
        named = self.named_parameters if self.module is None else dict(self.module.named_parameters())
        names = {parameter: name for name, parameter in named.items()}
        parameters = param_group["params"]
        listed = [parameters] if isinstance(parameters, flambeau.Tensor) else list(parameters)
        if any(parameter not in names for parameter in listed):
            raise ValueError(
                "[_NamedOptimizer] expected parameters of the module, got others: some parameters are not in the module"
            )
        for parameter in listed:
            self._names[parameter] = names[parameter]
        self._optimizer.add_param_group({**param_group, "params": listed})
        self.param_groups = self._optimizer.param_groups

    def init_state(self) -> None:
        """State and gradients before the first step, so that there is something to load into."""
        parameters = [
            parameter for group in self.param_groups for parameter in group["params"] if parameter.requires_grad
        ]
        rates = [group.get("lr") for group in self.param_groups]
        for parameter in parameters:
            parameter.grad = flambeau.zeros_like(parameter)
        for group in self.param_groups:
            if "lr" in group:
                group["lr"] = flambeau.tensor(0.0) if isinstance(group["lr"], flambeau.Tensor) else 0.0
        self.step()
        for group, rate in zip(self.param_groups, rates):
            if rate is not None:
                group["lr"] = rate

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        saved, own = state_dict["state"], self.state
        if saved and not own:
            raise ValueError(
                "[_NamedOptimizer] Expects the optim to be initialized before load but found not initialized: call `init_state`"
            )
        numbers, count = {}, 0
        for group in self.param_groups:
            for parameter in group["params"]:
                numbers[self._names[parameter]] = count
                count += 1
        by_names = {tuple(sorted(group["params"])): group for group in state_dict["param_groups"]}
        groups = []
        for group in self.param_groups:
            names = [self._names[parameter] for parameter in group["params"]]
            # Parameters that were not trained where the state was saved keep what they have.
            saved_group = by_names.get(tuple(sorted(names)), group)
            groups.append({**saved_group, "params": [numbers[name] for name in names]})
        state = {numbers[name]: saved.get(name, values) for name, values in own.items()}
        self._optimizer.load_state_dict({"state": state, "param_groups": groups})
        self.param_groups = self._optimizer.param_groups
