# ruff: noqa
"""Branches, loops, comprehensions and assignments."""

import flambeau as fl

from . import program, t


@program(t(3), 2)
def if_on_int(x, n):
    if n > 1:
        return x + n
    return x - n


@program(t(3), None)
def if_is_none(x, bias):
    return x if bias is None else x + bias


@program(t(3), True)
def if_else_chain(x, flag):
    if not flag:
        y = x * 2
    elif x.dim() == 1:
        y = x * 3
    else:
        y = x * 4
    return y


@program(t(3, 4))
def branch_on_shape(x):
    if x.shape[0] == 3 and x.size(1) > 2:
        return x.sum(0)
    return x.sum(1)


@program(t(3))
def for_range(x):
    for i in range(4):
        x = x + i
    return x


@program(t(3))
def for_range_step(x):
    for i in range(10, 0, -3):
        x = x * i
    return x


@program(t(3))
def for_else(x):
    for i in range(3):
        if i == 5:
            break
    else:
        x = x + 100
    return x


@program(t(3))
def for_break_continue(x):
    total = x
    for i in range(10):
        if i % 2:
            continue
        if i > 6:
            break
        total = total + i * x
    return total


@program(t(3))
def while_count(x):
    i = 0
    while i < 5:
        x = x.sin()
        i += 1
    return x, i


@program(t(3))
def while_else(x):
    n = 3
    while n:
        n -= 1
        x = x + n
    else:
        x = x * 2
    return x


@program(t(3))
def while_true_break(x):
    i = 0
    while True:
        x = x + 1
        i += 1
        if i >= 3:
            break
    return x


@program(t(3))
def nested_loops(x):
    for i in range(3):
        for j in range(i):
            x = x + i * j
    return x


@program(t(3, 4))
def iterate_tensor(x):
    out = []
    for row in x:
        out.append(row.sum())
    return out


@program(t(3))
def list_comprehension(x):
    return [x * i for i in range(4) if i != 2]


@program(t(3))
def nested_comprehension(x):
    return [[x * i + j for j in range(2)] for i in range(3)]


@program(t(3))
def dict_comprehension(x):
    return {f"k{i}": x + i for i in range(3)}


@program(t(3))
def set_comprehension(x):
    return x, {i % 3 for i in range(10)}


@program(t(3))
def generator_expression_sum(x):
    return sum(x * i for i in range(4))


@program(t(3))
def generator_expression_tuple(x):
    return tuple(x + i for i in (1, 2, 3))


@program(t(3))
def comprehension_scope(x):
    y = 5
    values = [y + i for i in range(3)]
    return x * sum(values), y


@program(t(3))
def walrus(x):
    if (n := x.shape[0]) > 2:
        return x * n
    return x


@program(t(3))
def conditional_expression(x):
    return x + (1 if x.ndim == 1 else 2)


@program(t(3), 0, "")
def and_or(x, a, b):
    c = a or 5
    d = b and 7
    return x * c, d


@program(t(3))
def chained_comparison(x):
    return x if 1 < x.size(0) < 5 else -x


@program(t(3))
def unpack(x):
    a, b = x + 1, x + 2
    (c, d), e = (a, b), 3
    return c * d + e


@program(t(3))
def unpack_starred(x):
    first, *middle, last = [x, x + 1, x + 2, x + 3]
    return first + last, middle


@program(t(3, 4))
def unpack_tensor(x):
    a, b, c = x
    return a + b * c


@program(t(3))
def swap(x):
    a, b = x, x + 1
    a, b = b, a
    return a - b


@program(t(3))
def multiple_targets(x):
    a = b = x + 1
    b = b * 2
    return a, b


@program(t(3))
def augmented(x):
    y = x.clone()
    y += 1
    y *= 2
    y -= x
    y /= 3
    return y


@program(t(3))
def inplace_on_argument(x):
    x.add_(1)
    return x * 2


@program(t(3))
def augmented_argument(x):
    x += 1
    return x


@program(t(3, 4))
def slice_assignment(x):
    y = x.clone()
    y[0] = 5
    y[:, 1] = x[:, 2]
    y[1:, ::2] *= 3
    return y


@program(t(4, 4))
def indexing(x):
    return x[0], x[-1], x[1:3], x[:, 0], x[..., 1], x[None].shape, x[::2, 1:]


@program(t(4, 4))
def index_by_tensor(x):
    i = fl.tensor([0, 2])
    return x[i], x[i, i]


@program(t(3))
def delete_variable(x):
    y = x + 1
    z = y * 2
    del y
    return z


@program(t(3))
def global_constant(x):
    return x * SCALE + len(NAMES)


SCALE = 3
NAMES = ["a", "b"]


@program(t(3), "sin")
def match_literal(x, name):
    match name:
        case "cos":
            return x.cos()
        case "sin":
            return x.sin()
        case _:
            return x


@program(t(3))
def match_sequence(x):
    match (x, 2):
        case [a, int(n)]:
            return a * n
    return None


@program(t(3))
def match_mapping(x):
    match {"kind": "add", "value": 2}:
        case {"kind": "mul", "value": v}:
            return x * v
        case {"kind": "add", "value": v, **rest}:
            return x + v, rest
    return None


@program(t(3))
def match_class(x):
    match Point(1, 2):
        case Point(x=1, y=b):
            return x * b
    return None


class Point:
    __match_args__ = ("x", "y")

    def __init__(self, x, y):
        self.x = x
        self.y = y


@program(t(3), breaks=True)
def branch_on_tensor(x):
    if x.sum() > 0:
        return x + 1
    return x - 1


@program(t(3), breaks=True)
def branch_on_tensor_then_more(x):
    y = x * 2
    if y.mean() > 100:
        y = y + 1
    else:
        y = y - 1
    return y.relu()


@program(t(3), breaks=True)
def while_on_tensor(x):
    while x.sum() < 50:
        x = x * 2 + 1
    return x


@program(t(3), breaks=True)
def item_in_loop(x):
    total = 0.0
    for i in range(4):
        total = total + (x * i).sum().item()
    return x * total


@program(t(3), breaks=True)
def tensor_and_or(x):
    return (x.sum() > 0) and x + 1


@program(t(3), breaks=True)
def not_tensor(x):
    return x if not x.sum() > 0 else -x


@program(t(3), breaks=True)
def ternary_on_tensor(x):
    y = x.exp() if x[0] > 0 else x.log()
    return y + 1


@program(t(4), breaks=True)
def break_in_for_over_list(x):
    out = []
    for scale in [1, 2, 3]:
        y = x * scale
        if y.sum() > 4:
            out.append(y)
        else:
            out.append(-y)
    return out


@program(t(4), breaks=True)
def break_in_enumerate(x):
    out = {}
    for i, name in enumerate(["a", "b", "c"]):
        out[name] = (x * i).sum().item()
    return out


@program(t(4), breaks=True)
def break_in_nested_loop(x):
    for i in range(2):
        for j in range(2):
            if (x * i + j).sum() > 3:
                x = x + 1
            else:
                x = x + 2
    return x


@program(t(4), breaks=True)
def break_in_comprehension(x):
    return [v.item() for v in x], x + 1


@program(t(4), breaks=True)
def long_while_on_tensor(x):
    n = fl.zeros(())
    while n < 2000:
        n = n + 1
    return n, x
