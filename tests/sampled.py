"""What tests of all records share: their samples, and a call as a function of its differentiable tensors."""

import flambeau as fl
from flambeau.ops import samples

RECORDS = samples.load()
NAMES = [
    name
    for name, record in RECORDS.items()
    if any("Tensor" in a.type for a in record.schema.args) and name not in samples.WITHOUT
]


def calls(name, dtype):
    """The calls of one record, each with tensors of its own."""
    return list(samples.of(RECORDS[name])(samples.Make(dtype)))


def operator(name):
    return fl._C._operator_object(name)


def differentiable(x):
    return isinstance(x, fl.Tensor) and (x.is_floating_point() or x.is_complex())


def walk(value, f):
    """f of every tensor in arguments or results, which may be nested in lists, tuples and dictionaries."""
    if isinstance(value, fl.Tensor):
        return f(value)
    if isinstance(value, dict):
        return {k: walk(v, f) for k, v in value.items()}
    if isinstance(value, (list, tuple)):
        return [walk(v, f) for v in value]
    return value


def tensors(value):
    found = []
    walk(value, found.append)
    return found


def run(op, call, f=lambda x: x):
    """The op on plain arguments, with f applied to each tensor. The seed is set before."""
    args, kwargs = walk(samples.plain((list(call.args), call.kwargs)), f)
    fl.manual_seed(0)
    return op(*args, **kwargs)


def as_function(op, call):
    """A function of the tensors in which a call is differentiated, and those. Tensors are copied, as the op may write
    to them."""
    inputs = []

    def collect(value):
        if isinstance(value, samples.Through):
            value = value.tensor
        if isinstance(value, (list, tuple)):
            for v in value:
                collect(v)
        elif isinstance(value, dict):
            collect(list(value.values()))
        elif isinstance(value, fl.Tensor) and differentiable(value):
            inputs.append(value.detach().requires_grad_())

    collect([call.args, call.kwargs])

    def function(*values):
        given = iter(values)

        def fresh(value):
            if isinstance(value, samples.Constant):
                return walk(value.tensor, lambda t: t.clone())
            if isinstance(value, samples.Through):
                return value.function(next(given))
            if isinstance(value, dict):
                return {k: fresh(v) for k, v in value.items()}
            if isinstance(value, (list, tuple)):
                return [fresh(v) for v in value]
            return next(given).clone() if isinstance(value, fl.Tensor) and differentiable(value) else value

        args, kwargs = fresh([call.args, call.kwargs])
        fl.manual_seed(0)
        return [t for t in tensors(call.result(op(*args, **kwargs))) if differentiable(t)]

    return function, inputs
