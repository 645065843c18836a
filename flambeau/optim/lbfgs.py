"""L-BFGS: quasi-Newton steps from the last gradients, with an optional line search."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import flambeau as fl
from flambeau import Tensor
from flambeau.optim.optimizer import Optimizer, ParamsT

__all__ = ["LBFGS"]


class _Point(NamedTuple):
    """What is known of the objective at distance t along a direction."""

    t: Any
    loss: float
    grad: Tensor
    slope: Any  # derivative along the direction


def _minimum_of_cubic(a: _Point, b: _Point, bounds: tuple[Any, Any] | None = None) -> Any:
    """Where the cubic through two points with these values and derivatives is least, within bounds."""
    low, high = bounds if bounds is not None else (min(a.t, b.t), max(a.t, b.t))
    width = a.t - b.t
    rise = 3 * (a.loss - b.loss)
    # Rounded twice, as PyTorch divides a number by a tensor.
    d1 = a.slope + b.slope - (width.reciprocal() * rise if isinstance(width, Tensor) else rise / width)
    square = d1**2 - a.slope * b.slope
    if square < 0:
        return (low + high) / 2.0
    d2 = square.sqrt() if isinstance(square, Tensor) else square**0.5
    left, right = (a, b) if a.t <= b.t else (b, a)
    at = right.t - (right.t - left.t) * ((right.slope + d2 - d1) / (right.slope - left.slope + 2 * d2))
    return min(max(at, low), high)


def _strong_wolfe(
    evaluate: Callable[[Any], tuple[float, Tensor]],
    t: Any,
    direction: Tensor,
    start: _Point,
    c1: float = 1e-4,
    c2: float = 0.9,
    tolerance_change: float = 1e-9,
    max_iterations: int = 25,
) -> tuple[_Point, int]:
    """A point that satisfies the strong Wolfe conditions, and how often the objective was evaluated for it."""
    longest = direction.abs().max()
    evaluations = 0

    def look(t: Any) -> _Point:
        nonlocal evaluations
        evaluations += 1
        loss, grad = evaluate(t)
        return _Point(t, loss, grad.clone(), grad.dot(direction))

    def too_high(point: _Point) -> bool:
        return point.loss > start.loss + c1 * point.t * start.slope

    def flat_enough(point: _Point) -> bool:
        return abs(point.slope) <= -c2 * start.slope

    # First an interval that holds such a point.
    new, previous = look(t), start
    iteration = 0
    bracket = None
    while iteration < max_iterations:
        if too_high(new) or (iteration > 1 and new.loss >= previous.loss) or (new.slope >= 0 and not flat_enough(new)):
            bracket = [previous, new]
            break
        if flat_enough(new):
            return new, evaluations
        step = _minimum_of_cubic(previous, new, (new.t + 0.01 * (new.t - previous.t), new.t * 10))
        previous, new = new, look(step)
        iteration += 1
    if bracket is None:
        bracket = [start, new]

    # Then smaller ones.
    stuck = False
    low, high = (0, 1) if bracket[0].loss <= bracket[1].loss else (1, 0)
    while iteration < max_iterations:
        ends = sorted(point.t for point in bracket)
        if (ends[1] - ends[0]) * longest < tolerance_change:
            break
        t = _minimum_of_cubic(*bracket)  # type: ignore[arg-type]
        margin = 0.1 * (ends[1] - ends[0])
        if min(ends[1] - t, t - ends[0]) < margin:
            if stuck or t >= ends[1] or t <= ends[0]:
                t = ends[1] - margin if abs(t - ends[1]) < abs(t - ends[0]) else ends[0] + margin
                stuck = False
            else:
                stuck = True
        else:
            stuck = False
        new = look(t)
        iteration += 1
        if too_high(new) or new.loss >= bracket[low].loss:
            bracket[high] = new
            low, high = (0, 1) if bracket[0].loss <= bracket[1].loss else (1, 0)
            continue
        done = flat_enough(new)
        if not done and new.slope * (bracket[high].t - bracket[low].t) >= 0:
            bracket[high] = bracket[low]
        bracket[low] = new
        if done:
            break
    return bracket[low], evaluations


class LBFGS(Optimizer):
    """Quasi-Newton steps from the last gradients; the closure is called several times a step.

    - params, lr, max_iter, max_eval, tolerance_grad, tolerance_change, history_size; line_search_fn: None or "strong_wolfe".

    >>> w = nn.Parameter(flambeau.tensor([1.0]))
    >>> optimizer = flambeau.optim.LBFGS([w], line_search_fn="strong_wolfe")
    >>> def closure():
    ...     optimizer.zero_grad()
    ...     loss = (w - 3).square().sum()
    ...     loss.backward()
    ...     return loss
    >>> _ = optimizer.step(closure)
    >>> w.detach().round(decimals=3)
    tensor([3.])
    """

    def __init__(
        self,
        params: ParamsT,
        lr: float | Tensor = 1,
        max_iter: int = 20,
        max_eval: int | None = None,
        tolerance_grad: float = 1e-7,
        tolerance_change: float = 1e-9,
        history_size: int = 100,
        line_search_fn: str | None = None,
    ) -> None:
        if isinstance(lr, Tensor) and lr.numel() != 1:
            raise ValueError(
                f"[optim] expected an lr of one element, got a Tensor of shape {tuple(lr.shape)}: Tensor lr must be 1-element"
            )
        if not lr >= 0.0:
            raise ValueError(f"[LBFGS] expected lr >= 0, got {lr}")
        defaults = {
            "lr": lr, "max_iter": max_iter, "max_eval": max_iter * 5 // 4 if max_eval is None else max_eval,
            "tolerance_grad": tolerance_grad, "tolerance_change": tolerance_change, "history_size": history_size,
            "line_search_fn": line_search_fn,
        }  # fmt: skip
        super().__init__(params, defaults)
        if len(self.param_groups) != 1:
            raise ValueError(f"[LBFGS] expected one parameter group, got {len(self.param_groups)}")
        self._params: list[Tensor] = self.param_groups[0]["params"]

    def __setstate__(self, state: dict[str, Any]) -> None:
        super().__setstate__(state)
        self._params = self.param_groups[0]["params"]

    def _real(self, t: Tensor) -> Tensor:
        return fl.view_as_real(t.resolve_conj()) if t.is_complex() else t

    def _gather_flat_grad(self) -> Tensor:
        """All gradients as one vector."""
        return fl.cat(
            [
                fl.zeros(self._real(p).numel(), dtype=self._real(p).dtype, device=p.device)
                if p.grad is None
                else self._real(p.grad).reshape(-1)
                for p in self._params
            ]
        )

    def _add_grad(self, step_size: Any, direction: Tensor) -> None:
        """Move all parameters along a direction."""
        at = 0
        for p in map(self._real, self._params):
            p.add_(direction[at : at + p.numel()].view_as(p), alpha=float(step_size))
            at += p.numel()

    def _clone_param(self) -> list[Tensor]:
        return [p.clone(memory_format=fl.contiguous_format) for p in self._params]

    def _set_param(self, values: list[Tensor]) -> None:
        for p, value in zip(self._params, values):
            p.copy_(value)

    def _directional_evaluate(self, closure: Any, x: list[Tensor], t: Any, d: Tensor) -> tuple[float, Tensor]:
        """Loss and gradient at distance t from x, leaving the parameters at x."""
        self._add_grad(t, d)
        loss = float(closure())
        grad = self._gather_flat_grad()
        self._set_param(x)
        return loss, grad

    def _direction(self, state: dict[str, Any], grad: Tensor, history_size: int) -> Tensor:
        """The quasi-Newton direction, after taking the last step into the history."""
        change = grad - state["prev_flat_grad"]
        step = state["d"].mul(state["t"])
        curvature = change.dot(step)
        if curvature > 1e-10:
            if len(state["old_dirs"]) == history_size:
                for key in ("old_dirs", "old_stps", "ro"):
                    state[key].pop(0)
            state["old_dirs"].append(change)
            state["old_stps"].append(step)
            state["ro"].append(1.0 / curvature)
            state["H_diag"] = curvature / change.dot(change)
        history = list(zip(state["old_dirs"], state["old_stps"], state["ro"]))
        q = grad.neg()
        weights = []
        if history:
            # Kept for programs that look at the state; entry i belongs to step i.
            state["al"] = [None] * history_size
        for change, step, ro in reversed(history):
            weights.append(step.dot(q) * ro)
            q.add_(change, alpha=-weights[-1].item())
        q = q * state["H_diag"]
        if history:
            state["al"][: len(weights)] = reversed(weights)
        for (change, step, ro), weight in zip(history, reversed(weights)):
            q.add_(step, alpha=(weight - change.dot(q) * ro).item())
        return q

    @fl.no_grad()
    def step(self, closure: Callable[[], Any]) -> Any:
        """Minimise the closure's loss; it must compute the gradients, too."""
        closure = fl.enable_grad()(closure)
        group = self.param_groups[0]
        if group["line_search_fn"] not in (None, "strong_wolfe"):
            raise RuntimeError(
                f"[LBFGS] expected line_search_fn None or 'strong_wolfe', got {group['line_search_fn']!r}"
            )
        tolerance_change = group["tolerance_change"]
        state = self.state[self._params[0]]
        state.setdefault("func_evals", 0)
        state.setdefault("n_iter", 0)

        first_loss = closure()
        loss = float(first_loss)
        evaluations = 1
        state["func_evals"] += 1
        grad = self._gather_flat_grad()
        if grad.abs().max() <= group["tolerance_grad"]:
            return first_loss

        iteration = 0
        while iteration < group["max_iter"]:
            iteration += 1
            state["n_iter"] += 1
            if state["n_iter"] == 1:
                direction = grad.neg()
                state.update(old_dirs=[], old_stps=[], ro=[], H_diag=1)
                t = min(1.0, 1.0 / grad.abs().sum()) * group["lr"]
            else:
                direction = self._direction(state, grad, group["history_size"])
                t = group["lr"]
            state.update(d=direction, prev_flat_grad=grad.clone(), prev_loss=loss, t=t)
            slope = grad.dot(direction)
            if slope > -tolerance_change:
                break
            used = 0
            if group["line_search_fn"] == "strong_wolfe":
                x = self._clone_param()
                accepted, used = _strong_wolfe(
                    lambda t: self._directional_evaluate(closure, x, t, direction),  # noqa: B023
                    t, direction, _Point(0, loss, grad, slope), tolerance_change=tolerance_change,
                    max_iterations=group["max_eval"] - evaluations,
                )  # fmt: skip
                t, loss, grad = accepted.t, accepted.loss, accepted.grad
                self._add_grad(t, direction)
            else:
                self._add_grad(t, direction)
                if iteration != group["max_iter"]:  # the last gradient would not be used
                    loss = float(closure())
                    grad = self._gather_flat_grad()
                    used = 1
            state["t"] = t
            evaluations += used
            state["func_evals"] += used
            if (
                evaluations >= group["max_eval"]
                or grad.abs().max() <= group["tolerance_grad"]
                or direction.mul(t).abs().max() <= tolerance_change
                or abs(loss - state["prev_loss"]) < tolerance_change
            ):
                break
        return first_loss
