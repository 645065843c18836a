"""Run under `flambeau run` by test_third_party_fx.py: graphs of a third-party model return what the model returns.

usage: third_party_fx.py CASE...

Each model is traced by make_fx in all modes, forward and with the gradients of its parameters, and by symbolic_trace where
PyTorch's succeeds too. Printed code is executed on its own.
"""

import sys

import third_party
import torch
from torch import fx
from torch.fx.experimental.proxy_tensor import make_fx
from torch.utils import _pytree as pytree


def case_of(name):
    """A model, a function of tensors that runs it, and inputs."""
    torch.manual_seed(0)
    model, outputs = getattr(third_party, name)()
    model.eval()
    known = dict(zip(outputs.__code__.co_freevars, (cell.cell_contents for cell in outputs.__closure__)))
    if "ids" not in known:
        return model, lambda x: model(x), (third_party.image(2, 3, known["size"], known["size"]),)
    inputs = (known["ids"], known["mask"])
    if known["labels"]:
        return model, lambda i, m: model(input_ids=i, attention_mask=m, labels=i, use_cache=False).logits, inputs
    return model, lambda i, m: model(input_ids=i, attention_mask=m).last_hidden_state, inputs


def with_gradients(model, function):
    parameters = [p for p in model.parameters() if p.requires_grad]

    def step(*inputs):
        result = function(*inputs)
        found = torch.autograd.grad((result**2).mean(), parameters, allow_unused=True)
        return result, [g for g in found if g is not None]

    return step


def executed(module, *inputs):
    """What the printed code returns, run by itself."""
    printed = module.graph.python_code("self")
    scope = dict(printed.globals)
    exec(printed.src, scope)
    return scope["forward"](module, *inputs)


def check(label, module, function, inputs):
    module.graph.lint()
    got, want = pytree.tree_leaves(executed(module, *inputs)), pytree.tree_leaves(function(*inputs))
    assert len(got) == len(want), label
    for a, b in zip(got, want):
        assert torch.allclose(a, b, atol=1e-5, rtol=1e-4), (label, (a - b).abs().max())


def main(names):
    for name in names:
        model, function, inputs = case_of(name)
        step = with_gradients(model, function)
        for mode in ("real", "fake", "symbolic"):
            check(f"{name}, {mode}", make_fx(function, tracing_mode=mode)(*inputs), function, inputs)
            check(f"{name}, {mode}, gradients", make_fx(step, tracing_mode=mode)(*inputs), step, inputs)
        check(f"{name}, whole", make_fx(function, pre_dispatch=True)(*inputs), function, inputs)
        if len(inputs) == 1:
            check(f"{name}, symbolic_trace", fx.symbolic_trace(model), function, inputs)
        else:  # one layer's worth: whole models of transformers branch on their inputs, in PyTorch too
            layer = next(m for m in model.modules() if isinstance(m, torch.nn.ModuleList))[0]
            part = next(m for n, m in layer.named_modules() if n.endswith(("mlp", "intermediate", "DenseReluDense")))
            x = torch.randn(2, 5, 32)
            check(f"{name}, part", fx.symbolic_trace(part), part, (x,))


if __name__ == "__main__":
    main(sys.argv[1:])
