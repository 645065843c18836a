# ruff: noqa
"""nn.Module: calls, hooks, parameters, buffers, containers, attributes, training mode."""

import flambeau as fl
import flambeau.nn as nn
import flambeau.nn.functional as F

from . import T, program, t


def seeded(make):
    def build():
        fl.manual_seed(0)
        return make()

    return build


class Block(nn.Module):
    def __init__(self, d=4, residual=True):
        super().__init__()
        self.a = nn.Linear(d, d)
        self.b = nn.Linear(d, d)
        self.residual = residual
        self.calls = 0
        self.register_buffer("scale", fl.full((d,), 2.0))
        self.register_buffer("running", fl.zeros(d))
        self.weight = nn.Parameter(fl.ones(d))
        self.cache = {}
        self.history = []

    def forward(self, x):
        y = self.b(F.relu(self.a(x)))
        return x + y if self.residual else y


class Counting(Block):
    def forward(self, x):
        self.calls += 1
        return super().forward(x) * self.calls


class Running(Block):
    def forward(self, x):
        self.running = self.running * 0.9 + x.mean(0).detach() * 0.1
        return x * self.running


class InPlace(Block):
    def forward(self, x):
        self.running.add_(1)
        self.scale.mul_(2)
        return x * self.scale + self.running


class Caching(Block):
    def forward(self, x):
        self.cache["last"] = x * 2
        self.history.append(x.shape[0])
        self.out = self.cache["last"] + 1
        return self.out


class Switch(nn.Module):
    def __init__(self):
        super().__init__()
        self.drop = nn.Dropout(0.5)

    def forward(self, x):
        return x * 3 if self.training else self.drop(x)


class Listed(nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = nn.ModuleList([nn.Linear(4, 4) for _ in range(3)])
        self.named = nn.ModuleDict({"up": nn.Linear(4, 8), "down": nn.Linear(8, 4)})
        self.params = nn.ParameterList([nn.Parameter(fl.ones(4)) for _ in range(2)])

    def forward(self, x):
        for i, layer in enumerate(self.layers):
            x = layer(x) * (i + 1)
        x = self.named["down"](self.named["up"](x))
        for p in self.params:
            x = x * p
        return x + len(self.layers)


class Attention(nn.Module):
    def __init__(self, d=8, h=2):
        super().__init__()
        self.h = h
        self.qkv = nn.Linear(d, 3 * d)
        self.o = nn.Linear(d, d)

    def forward(self, x):
        B, T, C = x.shape
        q, k, v = self.qkv(x).split(C, dim=2)
        q, k, v = (s.view(B, T, self.h, C // self.h).transpose(1, 2) for s in (q, k, v))
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        return self.o(y.transpose(1, 2).contiguous().view(B, T, C))


class Conv(nn.Module):
    def __init__(self):
        super().__init__()
        self.net = nn.Sequential(nn.Conv2d(3, 4, 3, padding=1), nn.BatchNorm2d(4), nn.ReLU(), nn.MaxPool2d(2))
        self.fc = nn.Linear(4 * 4 * 4, 5)

    def forward(self, x):
        return self.fc(self.net(x).flatten(1))


class Kwargs(nn.Module):
    def forward(self, x, *, scale=1, extra=None, **rest):
        out = {"y": x * scale, "rest": sorted(rest)}
        if extra is not None:
            out["z"] = out["y"] + extra
        return out


@program(t(2, 4), seeded(Block))
def call_module(x, m):
    return m(x)


@program(t(2, 4), seeded(Block))
def call_forward_directly(x, m):
    return m.forward(x)


@program(t(2, 4), seeded(lambda: nn.Sequential(nn.Linear(4, 8), nn.Tanh(), nn.Linear(8, 2))))
def sequential(x, m):
    return m(x), m[0](x), len(m)


@program(t(2, 4), seeded(Counting))
def module_counter(x, m):
    return m(x) + m(x)


@program(t(2, 4), seeded(Running))
def assign_buffer(x, m):
    y = m(x)
    return y + m.running


@program(t(2, 4), seeded(InPlace))
def buffer_in_place(x, m):
    return m(x)


@program(t(2, 4), seeded(Caching))
def module_attributes_written(x, m):
    return m(x), m.out


@program(t(2, 4), seeded(Switch))
def training_flag(x, m):
    return m(x)


@program(t(2, 4), seeded(lambda: Switch().eval()))
def eval_mode(x, m):
    return m(x), m.training


@program(t(2, 4), seeded(Listed))
def module_list_and_dict(x, m):
    return m(x)


@program(t(2, 3, 8), seeded(Attention))
def attention(x, m):
    return m(x)


@program(t(2, 3, 8, 8), seeded(lambda: Conv().eval()))
def convolution(x, m):
    return m(x)


@program(t(2, 3, 8, 8), seeded(Conv))
def batch_norm_training(x, m):
    return m(x)


@program(t(2, 4), seeded(Kwargs))
def keyword_arguments(x, m):
    return m(x), m(x, scale=2, extra=x, q=1, b=2)


@program(t(2, 4), seeded(Block))
def parameters_used(x, m):
    total = x.sum()
    for p in m.parameters():
        total = total + p.sum()
    return total


@program(t(2, 4), seeded(Block))
def named_parameters(x, m):
    return x, [name for name, _ in m.named_parameters()], m.weight * 2, m.a.weight.shape


@program(t(2, 4), seeded(Block))
def named_children(x, m):
    for name, child in m.named_children():
        x = child(x) + len(name)
    return x


@program(t(2, 4), seeded(lambda: nn.Identity()))
def identity(x, m):
    return m(x) + 1


@program(t(2, 4), seeded(lambda: nn.LayerNorm(4)))
def layer_norm(x, m):
    return m(x)


@program(lambda: fl.tensor([[0, 2], [1, 1]]), seeded(lambda: nn.Embedding(3, 4)))
def embedding(i, m):
    return m(i)


@program(t(2, 4), seeded(lambda: nn.GroupNorm(2, 4)))
def group_norm(x, m):
    return m(x)


@program(t(2, 4), lambda: fl.tensor([0, 1]))
def losses(x, y):
    return F.cross_entropy(x, y), F.mse_loss(x, x * 2), nn.L1Loss()(x, x + 1) if False else F.l1_loss(x, x + 1)


@program(t(2, 4), seeded(lambda: nn.CrossEntropyLoss()), lambda: fl.tensor([0, 1]))
def loss_module(x, m, y):
    return m(x, y)


def doubling_hook(module, args, output):
    return output * 2


def pre_hook(module, args):
    return (args[0] + 1,)


def recording_hook(module, args, output):
    module.history.append(tuple(output.shape))


def hooked(*hooks):
    def make():
        m = Block()
        for kind, hook in hooks:
            getattr(m, kind)(hook)
        return m

    return seeded(make)


@program(t(2, 4), hooked(("register_forward_hook", doubling_hook)))
def forward_hook(x, m):
    return m(x)


@program(t(2, 4), hooked(("register_forward_pre_hook", pre_hook)))
def forward_pre_hook(x, m):
    return m(x)


@program(t(2, 4), hooked(("register_forward_hook", recording_hook), ("register_forward_pre_hook", pre_hook)))
def hooks_with_effects(x, m):
    return m(x)


@program(t(2, 4), seeded(Block))
def isinstance_of_module(x, m):
    return (
        x,
        isinstance(m, nn.Module),
        isinstance(m.a, nn.Linear),
        isinstance(m.weight, nn.Parameter),
        isinstance(x, nn.Parameter),
    )


@program(t(2, 4), seeded(Block))
def hasattr_of_module(x, m):
    return x, hasattr(m, "a"), hasattr(m, "nope"), getattr(m, "residual"), getattr(m, "zzz", None)


@program(t(2, 4), seeded(lambda: Block(residual=False)))
def module_flag(x, m):
    return m(x) if m.residual else m(x) * 2


@program(t(2, 4), seeded(lambda: nn.ModuleList([nn.Linear(4, 4), nn.ReLU()])))
def loop_over_modules(x, layers):
    for layer in layers:
        x = layer(x)
    return x


@program(t(2, 4), seeded(lambda: [nn.Linear(4, 4), nn.ReLU()]))
def list_of_modules(x, layers):
    for layer in layers:
        x = layer(x)
    return x


@program(t(2, 3, 4), seeded(lambda: nn.Linear(4, 2, bias=False)))
def no_bias(x, m):
    return m(x), m.bias is None


@program(t(2, 4), seeded(lambda: nn.Sequential(nn.Linear(4, 4), nn.Dropout(0.0), nn.Softmax(dim=-1))))
def softmax_module(x, m):
    return m(x)


@program(t(2, 4), seeded(Block))
def shared_twice(x, m):
    return m(m(x))


@program(t(2, 4), seeded(Block))
def device_and_dtype(x, m):
    p = next(m.parameters())
    return x.to(p.dtype).to(p.device) * 2, p.dtype, p.device


@program(lambda: T(2, 4).requires_grad_(), seeded(Block))
def gradients_flow(x, m):
    return m(x).pow(2).mean()


@program(t(2, 4), seeded(Block))
def backward_inside(x, m):
    loss = m(x).pow(2).mean()
    loss.backward()
    return loss.detach() * 2, m.a.weight.grad


class Breaking(nn.Module):
    def __init__(self):
        super().__init__()
        self.a = nn.Linear(4, 4)
        self.b = nn.Linear(4, 4)

    def forward(self, x):
        y = self.a(x)
        n = y.sum().item()
        return self.b(y) * (1 if n > 0 else 2)


@program(t(2, 4), seeded(Breaking), breaks=True)
def break_in_forward(x, m):
    return m(x) + 1


@program(t(2, 4), seeded(lambda: nn.Sequential(Breaking(), nn.ReLU(), Breaking())), breaks=True)
def break_in_sequential(x, m):
    return m(x)
