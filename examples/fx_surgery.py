"""Surgery on a model's graph: fold batch norms away, replace an activation, count what is left.

python examples/fx_surgery.py
"""

import operator

import flambeau as torch
from flambeau import fx, nn
from flambeau.nn.utils.fusion import fuse_conv_bn_eval


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv = nn.Conv2d(3, 8, 3, padding=1)
        self.norm = nn.BatchNorm2d(8)
        self.head = nn.Linear(8, 10)

    def forward(self, x):
        x = torch.relu(self.norm(self.conv(x)))
        return self.head(x.mean((2, 3))) * 1


torch.manual_seed(0)
model = Net().eval()
model.norm.running_mean.normal_()
traced = fx.symbolic_trace(model)
print("before:", traced.code, sep="\n")
modules = dict(traced.named_modules())

for node in list(traced.graph.nodes):
    # A batch norm in evaluation is a scale and a shift, which the convolution before it can do.
    if node.op == "call_module" and isinstance(modules[str(node.target)], nn.BatchNorm2d):
        before = node.args[0]
        traced.add_submodule(before.target, fuse_conv_bn_eval(modules[before.target], modules[str(node.target)]))
        node.replace_all_uses_with(before)
        traced.graph.erase_node(node)
    elif node.target is operator.mul and node.args[1] == 1:
        node.replace_all_uses_with(node.args[0])
        traced.graph.erase_node(node)
traced.delete_all_unused_submodules()
traced.graph.lint()
traced.recompile()
print("after:", traced.code, sep="\n")

x = torch.randn(2, 3, 8, 8)
print("largest difference:", (traced(x) - model(x)).abs().max().item())
assert torch.allclose(traced(x), model(x), atol=1e-5)
assert "norm" not in traced.code and "mul" not in traced.code

fx.replace_pattern(traced, lambda x: torch.relu(x), lambda x: nn.functional.silu(x))
print("with another activation:", traced.code, sep="\n")
assert "silu" in traced.code
