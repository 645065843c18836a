"""Graph breaks explained: what `compile` cannot capture, how to see it, how to write it so that it can.

python examples/graph_breaks.py

docs/graph-breaks.md lists every kind of break.
"""

import flambeau as torch


def hesitant(x):
    x = x * 2
    if x.sum() > 0:  # a branch on a value that is known only when the graph has run
        x = x + 1
    return x.sin()


def decided(x):
    x = x * 2
    return torch.where(x.sum() > 0, x + 1, x).sin()  # both ways in one expression


x = torch.randn(4)
for function in (hesitant, decided):
    print(f"{function.__name__}:")
    print(torch._dynamo.explain(function)(x), "\n")

# A compiled function with a break computes the same, in pieces.
assert torch.allclose(torch.compile(hesitant, backend="eager")(x), hesitant(x))
assert torch.allclose(decided(x), hesitant(x))

# fullgraph=True turns the first break into an error, for code that must stay in one graph.
try:
    torch.compile(hesitant, backend="eager", fullgraph=True)(x)
except Exception as error:
    print(f"fullgraph=True: {type(error).__name__}: {error}")
else:
    raise AssertionError("a break was expected")
torch.compile(decided, backend="eager", fullgraph=True)(x)
