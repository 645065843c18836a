"""Steps of the optimizers: the new values of a parameter and of its state, element by element.

Each record becomes one kernel over whole parameter groups. The same expressions, evaluated op by op
(`ops/lists/update_evaluation.py`), serve devices without that kernel and steps that are differentiated themselves.

Where `increment` is a parameter, it is what a step counts for: 1, or 0 when the caller has counted already.
"""

from __future__ import annotations

from collections.abc import Callable

from flambeau.ops import expr
from flambeau.ops.expr import Expr, where
from flambeau.ops.record import update


def _descent(param: Expr, grad: Expr, weight_decay: Expr, maximize: Expr) -> Expr:
    """The gradient to follow downwards, with the decay of the weights in it."""
    return where(maximize, -grad, grad) + weight_decay * param


def _lerp(a: Expr, b: Expr, weight: Expr) -> Expr:
    return a + weight * (b - a)


# ---------------------------------------------------------------- SGD

_SGD = "*, float lr, float weight_decay, bool maximize"


def _sgd(param, grad, lr, weight_decay, maximize):
    return {"param": param - lr * _descent(param, grad, weight_decay, maximize)}


def _sgd_momentum(param, grad, momentum_buffer, lr, weight_decay, maximize, momentum, dampening, nesterov, first):
    grad = _descent(param, grad, weight_decay, maximize)
    buffer = where(first, grad, momentum * momentum_buffer + (1 - dampening) * grad)
    return {"param": param - lr * where(nesterov, grad + momentum * buffer, buffer), "momentum_buffer": buffer}


update(f"_update_sgd_(Tensor(!)[] param, Tensor[] grad, {_SGD}) -> ()", _sgd)
update(
    "_update_sgd_momentum_(Tensor(!)[] param, Tensor[] grad, Tensor(!)[] momentum_buffer, "
    f"{_SGD}, float momentum, float dampening, bool nesterov, bool first) -> ()",
    _sgd_momentum,
)

# ---------------------------------------------------------------- Adam and AdamW

_ADAM_STATE = "Tensor(!)[] param, Tensor[] grad, Tensor(!)[] exp_avg, Tensor(!)[] exp_avg_sq"
_ADAM = "*, float lr, float beta1, float beta2, float eps, float weight_decay, bool decoupled, bool maximize, float increment"  # fmt: skip


def _adam_moments(param, grad, exp_avg, exp_avg_sq, lr, beta1, beta2, weight_decay, decoupled, maximize):
    """Parameter after decoupled decay, and the moving averages of the gradient and of its square."""
    grad = _descent(param, grad, where(decoupled, 0.0, weight_decay), maximize)
    param = param * (1 - lr * where(decoupled, weight_decay, 0.0))
    return param, grad, _lerp(exp_avg, grad, 1 - beta1), beta2 * exp_avg_sq + (1 - beta2) * (grad * grad)


def _adam_parameter(param, exp_avg, exp_avg_sq, step, lr, beta1, beta2, eps):
    size = lr / (1 - expr.pow(beta1, step))
    denominator = expr.sqrt(exp_avg_sq) * (1 / expr.sqrt(1 - expr.pow(beta2, step))) + eps
    return param - size * (exp_avg / denominator)


def _adam(param, grad, exp_avg, exp_avg_sq, step, lr, beta1, beta2, eps, weight_decay, decoupled, maximize, increment):
    step = step + increment
    param, _, exp_avg, exp_avg_sq = _adam_moments(
        param, grad, exp_avg, exp_avg_sq, lr, beta1, beta2, weight_decay, decoupled, maximize
    )
    param = _adam_parameter(param, exp_avg, exp_avg_sq, step, lr, beta1, beta2, eps)
    return {"param": param, "exp_avg": exp_avg, "exp_avg_sq": exp_avg_sq, "step": step}


def _adam_amsgrad(
    param, grad, exp_avg, exp_avg_sq, max_exp_avg_sq, step,
    lr, beta1, beta2, eps, weight_decay, decoupled, maximize, increment,
):  # fmt: skip
    step = step + increment
    param, _, exp_avg, exp_avg_sq = _adam_moments(
        param, grad, exp_avg, exp_avg_sq, lr, beta1, beta2, weight_decay, decoupled, maximize
    )
    largest = expr.maximum(max_exp_avg_sq, exp_avg_sq)
    param = _adam_parameter(param, exp_avg, largest, step, lr, beta1, beta2, eps)
    return {"param": param, "exp_avg": exp_avg, "exp_avg_sq": exp_avg_sq, "max_exp_avg_sq": largest, "step": step}


update(f"_update_adam_({_ADAM_STATE}, Tensor(!)[] step, {_ADAM}) -> ()", _adam, scalars=("step",))
update(
    f"_update_adam_amsgrad_({_ADAM_STATE}, Tensor(!)[] max_exp_avg_sq, Tensor(!)[] step, {_ADAM}) -> ()",
    _adam_amsgrad,
    scalars=("step",),
)

# ---------------------------------------------------------------- relatives of Adam

_RADAM = "*, float lr, float beta1, float beta2, float eps, float weight_decay, bool decoupled, bool maximize"


def _adamax(param, grad, exp_avg, exp_inf, step, lr, beta1, beta2, eps, weight_decay, maximize):
    step = step + 1
    grad = _descent(param, grad, weight_decay, maximize)
    exp_avg = _lerp(exp_avg, grad, 1 - beta1)
    exp_inf = expr.maximum(exp_inf * beta2, expr.abs(grad) + eps)
    param = param - lr / (1 - expr.pow(beta1, step)) * (exp_avg / exp_inf)
    return {"param": param, "exp_avg": exp_avg, "exp_inf": exp_inf, "step": step}


def _nadam(
    param, grad, exp_avg, exp_avg_sq, step, mu_product,
    lr, beta1, beta2, eps, weight_decay, decoupled, maximize, momentum_decay,
):  # fmt: skip
    step = step + 1
    mu = beta1 * (1 - 0.5 * expr.pow(0.96, step * momentum_decay))
    mu_next = beta1 * (1 - 0.5 * expr.pow(0.96, (step + 1) * momentum_decay))
    mu_product = mu_product * mu
    param, grad, exp_avg, exp_avg_sq = _adam_moments(
        param, grad, exp_avg, exp_avg_sq, lr, beta1, beta2, weight_decay, decoupled, maximize
    )
    denominator = expr.sqrt(exp_avg_sq * (1 / (1 - expr.pow(beta2, step)))) + eps
    ahead = lr * (1 - mu) / (1 - mu_product) * grad + lr * mu_next / (1 - mu_product * mu_next) * exp_avg
    param = param - ahead / denominator
    return {"param": param, "exp_avg": exp_avg, "exp_avg_sq": exp_avg_sq, "step": step, "mu_product": mu_product}


def _radam(param, grad, exp_avg, exp_avg_sq, step, lr, beta1, beta2, eps, weight_decay, decoupled, maximize):
    step = step + 1
    param, _, exp_avg, exp_avg_sq = _adam_moments(
        param, grad, exp_avg, exp_avg_sq, lr, beta1, beta2, weight_decay, decoupled, maximize
    )
    correction2 = 1 - expr.pow(beta2, step)
    longest = 2 / (1 - beta2) - 1  # length of the moving average in the limit, and now
    length = longest - 2 * step * expr.pow(beta2, step) / correction2
    rectified = (length - 4) * (length - 2) * longest / ((longest - 4) * (longest - 2) * length)
    scale = expr.sqrt(where(length > 5.0, rectified, 1.0) * correction2)
    adaptive = where(length > 5.0, scale / (expr.sqrt(exp_avg_sq) + eps), 1.0)
    param = param - lr / (1 - expr.pow(beta1, step)) * exp_avg * adaptive
    return {"param": param, "exp_avg": exp_avg, "exp_avg_sq": exp_avg_sq, "step": step}


update(
    "_update_adamax_(Tensor(!)[] param, Tensor[] grad, Tensor(!)[] exp_avg, Tensor(!)[] exp_inf, Tensor(!)[] step, "
    "*, float lr, float beta1, float beta2, float eps, float weight_decay, bool maximize) -> ()",
    _adamax,
    scalars=("step",),
)
update(
    f"_update_nadam_({_ADAM_STATE}, Tensor(!)[] step, Tensor(!)[] mu_product, {_RADAM}, float momentum_decay) -> ()",
    _nadam,
    scalars=("step", "mu_product"),
)
update(f"_update_radam_({_ADAM_STATE}, Tensor(!)[] step, {_RADAM}) -> ()", _radam, scalars=("step",))

# ---------------------------------------------------------------- Adagrad, Adadelta, RMSprop


def _adagrad(param, grad, sum, step, lr, lr_decay, weight_decay, eps, maximize, increment):
    step = step + increment
    grad = _descent(param, grad, weight_decay, maximize)
    sum = sum + grad * grad
    param = param - lr / (1 + (step - 1) * lr_decay) * (grad / (expr.sqrt(sum) + eps))
    return {"param": param, "sum": sum, "step": step}


def _adadelta(param, grad, square_avg, acc_delta, step, lr, rho, eps, weight_decay, maximize):
    grad = _descent(param, grad, weight_decay, maximize)
    square_avg = rho * square_avg + (1 - rho) * (grad * grad)
    delta = expr.sqrt(acc_delta + eps) / expr.sqrt(square_avg + eps) * grad
    acc_delta = rho * acc_delta + (1 - rho) * (delta * delta)
    return {"param": param - lr * delta, "square_avg": square_avg, "acc_delta": acc_delta, "step": step + 1}


def _rmsprop(centered: bool, momentum: bool) -> Callable[..., dict[str, Expr]]:
    """Its arithmetic with or without the mean of the gradient and with or without momentum."""

    def step_of(param, grad, square_avg, *rest):
        states, (step, lr, alpha, eps, weight_decay, momentum_factor, maximize) = rest[:-7], rest[-7:]
        grad = _descent(param, grad, weight_decay, maximize)
        square_avg = alpha * square_avg + (1 - alpha) * (grad * grad)
        new = {"square_avg": square_avg, "step": step + 1}
        if centered:
            new["grad_avg"] = _lerp(states[0], grad, 1 - alpha)
            direction = grad / (expr.sqrt(square_avg - new["grad_avg"] * new["grad_avg"]) + eps)
        else:
            direction = grad / (expr.sqrt(square_avg) + eps)
        if momentum:
            direction = new["momentum_buffer"] = momentum_factor * states[-1] + direction
        return {"param": param - lr * direction, **new}

    return step_of


update(
    "_update_adagrad_(Tensor(!)[] param, Tensor[] grad, Tensor(!)[] sum, Tensor(!)[] step, "
    "*, float lr, float lr_decay, float weight_decay, float eps, bool maximize, float increment) -> ()",
    _adagrad,
    scalars=("step",),
)
update(
    "_update_adadelta_(Tensor(!)[] param, Tensor[] grad, Tensor(!)[] square_avg, Tensor(!)[] acc_delta, "
    "Tensor(!)[] step, *, float lr, float rho, float eps, float weight_decay, bool maximize) -> ()",
    _adadelta,
    scalars=("step",),
)
for _centered in (False, True):
    for _momentum in (False, True):
        update(
            f"_update_rmsprop{'_centered' * _centered}{'_momentum' * _momentum}_(Tensor(!)[] param, Tensor[] grad, "
            f"Tensor(!)[] square_avg, {'Tensor(!)[] grad_avg, ' * _centered}"
            f"{'Tensor(!)[] momentum_buffer, ' * _momentum}Tensor(!)[] step, "
            "*, float lr, float alpha, float eps, float weight_decay, float momentum, bool maximize) -> ()",
            _rmsprop(_centered, _momentum),
            scalars=("step",),
        )

# ---------------------------------------------------------------- averaged SGD, resilient propagation


def _asgd(param, grad, ax, step, eta, mu, lr, lambd, alpha, t0, weight_decay, maximize):
    step = step + 1
    grad = _descent(param, grad, weight_decay, maximize)
    param = param * (1 - lambd * eta) - eta * grad
    ax = where(mu == 1.0, param, _lerp(ax, param, mu))
    eta = lr / expr.pow(1 + lambd * lr * step, alpha)
    return {"param": param, "ax": ax, "step": step, "eta": eta, "mu": 1 / expr.maximum(1.0, step - t0)}


def _rprop(param, grad, prev, step_size, step, etaminus, etaplus, smallest, largest, maximize):
    grad = where(maximize, -grad, grad)
    agreement = grad * prev
    factor = where(agreement > 0.0, etaplus, where(agreement < 0.0, etaminus, 1.0))
    step_size = expr.minimum(expr.maximum(step_size * factor, smallest), largest)
    grad = where(agreement < 0.0, 0.0, grad)  # after a jump over a minimum, wait for the next gradient
    param = param - where(grad > 0.0, 1.0, where(grad < 0.0, -1.0, grad)) * step_size
    return {"param": param, "prev": grad, "step_size": step_size, "step": step + 1}


update(
    "_update_asgd_(Tensor(!)[] param, Tensor[] grad, Tensor(!)[] ax, Tensor(!)[] step, Tensor(!)[] eta, "
    "Tensor(!)[] mu, *, float lr, float lambd, float alpha, float t0, float weight_decay, bool maximize) -> ()",
    _asgd,
    scalars=("step", "eta", "mu"),
)
update(
    "_update_rprop_(Tensor(!)[] param, Tensor[] grad, Tensor(!)[] prev, Tensor(!)[] step_size, Tensor(!)[] step, "
    "*, float etaminus, float etaplus, float smallest, float largest, bool maximize) -> ()",
    _rprop,
    scalars=("step",),
)
