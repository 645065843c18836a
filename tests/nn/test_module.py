"""nn.Module's protocol: members, calls with hooks, state dicts, conversion, copies, printing."""

import abc
import collections
import copy
import pickle

import pytest

import flambeau as fl
from flambeau import nn
from flambeau.nn.modules.module import mutations


class Affine(nn.Module):
    def __init__(self, inputs=3, outputs=2):
        super().__init__()
        self.weight = nn.Parameter(fl.arange(inputs * outputs, dtype=fl.float32).view(outputs, inputs) / 10)
        self.bias = nn.Parameter(fl.zeros(outputs))
        self.register_buffer("calls", fl.tensor(0))
        self.register_buffer("scratch", fl.zeros(1), persistent=False)

    def forward(self, x, *, scale=1.0):
        return (x @ self.weight.t() + self.bias) * scale

    def extra_repr(self):
        return "affine"


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.first = Affine()
        self.rest = nn.ModuleList([Affine(2, 2), Affine(2, 2)])

    def forward(self, x):
        x = self.first(x)
        for module in self.rest:
            x = module(x)
        return x


def test_members_are_registered_by_assignment_and_found_by_name():
    net = Net()
    assert [n for n, _ in net.named_parameters()] == [
        f"{p}.{n}" for p in ("first", "rest.0", "rest.1") for n in ("weight", "bias")
    ]
    assert [n for n, _ in net.named_modules()] == ["", "first", "rest", "rest.0", "rest.1"]
    assert net.get_submodule("rest.1") is net.rest[1]
    assert net.get_parameter("first.weight") is net.first.weight
    assert net.get_buffer("first.calls") is net.first.calls
    with pytest.raises(AttributeError, match="no attribute 'missing'"):
        _ = net.missing
    net.set_submodule("rest.0", Affine(2, 2))
    assert isinstance(net.rest[0], Affine)


def test_shared_parameters_are_listed_once():
    net = Net()
    net.rest[1].weight = net.rest[0].weight
    assert len(list(net.parameters())) == 5
    assert len(list(net.named_parameters(remove_duplicate=False))) == 6


@pytest.mark.parametrize(
    ("name", "value", "error"),
    [("weight", fl.zeros(1), TypeError), ("calls", 3, TypeError)],
)
def test_members_refuse_values_of_another_kind(name, value, error):
    with pytest.raises(error, match=name):
        setattr(Affine(), name, value)


def test_members_need_the_constructor_of_module():
    class Forgetful(nn.Module):
        def __init__(self):
            self.weight = nn.Parameter(fl.zeros(1))

    with pytest.raises(AttributeError, match=r"expected super\(\)\.__init__\(\) before"):
        Forgetful()


@pytest.mark.parametrize("name", ["a.b", "", "forward"])
def test_bad_names_are_refused(name):
    with pytest.raises(KeyError):
        nn.Module().register_parameter(name, None)


def test_assigning_a_plain_value_replaces_nothing_silently():
    module = Affine()
    module.weight = None
    assert "weight" in module._parameters and module.weight is None
    del module.weight
    assert not hasattr(module, "weight")


def test_state_dict_keys_order_and_sharing():
    net = Net()
    state = net.state_dict()
    assert list(state)[:3] == ["first.weight", "first.bias", "first.calls"]
    assert state["first.weight"].data_ptr() == net.first.weight.data_ptr()
    assert not state["first.weight"].requires_grad
    assert state._metadata["rest.0"] == {"version": 1}


def test_load_state_dict_copies_reports_and_assigns():
    source, target = Net(), Net()
    with fl.no_grad():
        source.first.weight.fill_(7)
    assert repr(target.load_state_dict(source.state_dict())) == "<All keys matched successfully>"
    assert fl.equal(target.first.weight, source.first.weight)
    state = source.state_dict()
    del state["first.bias"]
    state["extra"] = fl.zeros(1)
    state["first.weight"] = fl.zeros(1, 1)
    with pytest.raises(RuntimeError) as error:
        target.load_state_dict(state)
    for part in (
        'Missing key(s) in state_dict: "first.bias"',
        'Unexpected key(s) in state_dict: "extra"',
        "size mismatch",
    ):
        assert part in str(error.value)
    state = source.state_dict()
    del state["first.bias"]
    assert target.load_state_dict(state, strict=False).missing_keys == ["first.bias"]
    taken = {name: value.clone() for name, value in source.state_dict().items()}
    target.load_state_dict(taken, assign=True)
    assert target.first.weight.data_ptr() == taken["first.weight"].data_ptr()
    assert isinstance(target.first.weight, nn.Parameter)


def test_extra_state_travels_with_the_state_dict():
    class Counting(Affine):
        count = 0

        def get_extra_state(self):
            return {"count": self.count}

        def set_extra_state(self, state):
            self.count = state["count"]

    source, target = Counting(), Counting()
    source.count = 5
    target.load_state_dict(source.state_dict())
    assert target.count == 5


def test_state_dict_hooks_run_in_place():
    net = Affine()
    net.register_state_dict_post_hook(lambda module, state, prefix, meta: state.update(mark=1))
    net.register_load_state_dict_pre_hook(lambda module, state, *rest: state.pop("mark"))
    seen = []
    net.register_load_state_dict_post_hook(lambda module, keys: seen.append(keys))
    net.load_state_dict(net.state_dict())
    assert seen and not seen[0].unexpected_keys


def test_forward_hooks_see_and_replace():
    module = Affine()
    x = fl.ones(1, 3)
    expected = module(x)
    pre = module.register_forward_pre_hook(lambda m, args: (args[0] * 2,))
    assert fl.allclose(module(x), expected * 2)
    post = module.register_forward_hook(lambda m, args, out: out + 1)
    assert fl.allclose(module(x), expected * 2 + 1)
    pre.remove()
    post.remove()
    module.register_forward_pre_hook(lambda m, args, kwargs: (args, {"scale": 3.0}), with_kwargs=True)
    assert fl.allclose(module(x), expected * 3)


def test_always_called_hooks_run_after_an_error():
    class Failing(nn.Module):
        def forward(self, x):
            raise ValueError("no")

    seen = []
    module = Failing()
    module.register_forward_hook(lambda *args: seen.append("always"), always_call=True)
    module.register_forward_hook(lambda *args: seen.append("normal"))
    with pytest.raises(ValueError, match="no"):
        module(1)
    assert seen == ["always"]


def test_global_hooks_see_every_call_until_removed():
    seen = []
    handle = nn.modules.module.register_module_forward_hook(lambda m, args, out: seen.append(type(m).__name__))
    Net()(fl.ones(1, 3))
    handle.remove()
    Net()(fl.ones(1, 3))
    assert seen == ["Affine", "Affine", "Affine", "Net"]


def test_backward_hooks_see_and_replace_gradients():
    module = Affine()
    x = fl.ones(1, 3, requires_grad=True)
    module(x).sum().backward()
    expected = x.grad.clone()
    seen = []
    module.register_full_backward_pre_hook(lambda m, grad_output: (grad_output[0] * 2,))
    module.register_full_backward_hook(lambda m, gi, go: seen.append((gi[0].shape, go[0].clone())))
    handle = module.register_full_backward_hook(lambda m, gi, go: (gi[0] * 5,))
    x.grad = None
    module(x).sum().backward()
    assert fl.allclose(x.grad, expected * 10)
    assert seen[0][0] == (1, 3) and fl.equal(seen[0][1], fl.full((1, 2), 2.0))
    handle.remove()


def test_backward_hooks_without_differentiable_inputs_still_run():
    module = Affine()
    seen = []
    module.register_full_backward_hook(lambda m, gi, go: seen.append(gi))
    module(fl.ones(1, 3)).sum().backward()
    assert seen == [(None,)] and module.weight.grad is not None


def test_conversion_keeps_parameters_and_converts_gradients():
    module = Affine()
    weight = module.weight
    module(fl.ones(1, 3)).sum().backward()
    module.double()
    assert module.weight is weight and weight.dtype == fl.float64 and weight.grad.dtype == fl.float64
    assert module.calls.dtype == fl.int64
    module.to(fl.bfloat16).to("meta")
    assert module.weight.is_meta and module.weight.dtype == fl.bfloat16
    with pytest.raises(TypeError, match="floating point or complex"):
        module.to(fl.int32)


def test_train_eval_requires_grad_zero_grad_apply():
    net = Net()
    assert not net.eval().rest[1].training and net.train().rest[1].training
    net.requires_grad_(False)
    assert not any(p.requires_grad for p in net.parameters())
    net.requires_grad_()
    net(fl.ones(1, 3)).sum().backward()
    net.zero_grad()
    assert all(p.grad is None for p in net.parameters())
    names = []
    net.apply(lambda m: names.append(type(m).__name__))
    assert names[-1] == "Net" and len(names) == 5


@pytest.mark.parametrize("copied", [copy.deepcopy, lambda m: pickle.loads(pickle.dumps(m))], ids=["deepcopy", "pickle"])
def test_copies_are_equal_and_separate(copied):
    net = Net()
    other = copied(net)
    x = fl.ones(2, 3)
    assert fl.equal(other(x), net(x))
    with fl.no_grad():
        other.first.weight.zero_()
    assert not fl.equal(other(x), net(x))
    assert list(other.state_dict()) == list(net.state_dict())


def test_deepcopy_keeps_ties():
    net = Net()
    net.rest[1].weight = net.rest[0].weight
    other = copy.deepcopy(net)
    assert other.rest[1].weight is other.rest[0].weight is not net.rest[0].weight


def test_repr_nests_and_merges_equal_items():
    assert (
        repr(Net()) == "Net(\n  (first): Affine(affine)\n  (rest): ModuleList(\n    (0-1): 2 x Affine(affine)\n  )\n)"
    )


def test_every_kind_of_change_is_counted():
    net = Net()
    changes = [
        lambda: setattr(net, "plain", 1),
        lambda: setattr(net.first, "weight", nn.Parameter(fl.zeros(2, 3))),
        lambda: net.first._parameters.__setitem__("weight", nn.Parameter(fl.ones(2, 3))),
        lambda: net.first.register_forward_hook(print),
        lambda: net.first._forward_hooks.clear(),
        lambda: net.eval(),
        lambda: net.rest.append(Affine(2, 2)),
        lambda: net.register_buffer("late", fl.zeros(1)),
        lambda: delattr(net, "late"),
    ]
    for change in changes:
        before = mutations[0]
        change()
        assert mutations[0] > before
    before = mutations[0]
    net(fl.ones(1, 3))
    assert mutations[0] == before


def test_sequential_is_a_sequence():
    seq = nn.Sequential(Affine(), Affine(2, 2))
    assert len(seq) == 2 and len(seq[:1]) == 1 and seq[-1] is seq[1]
    seq.append(Affine(2, 2)).insert(1, Affine(2, 2))
    assert [n for n, _ in seq.named_children()] == ["0", "1", "2", "3"]
    del seq[1]
    assert seq(fl.ones(1, 3)).shape == (1, 2) and [n for n, _ in seq.named_children()] == ["0", "1", "2"]
    assert len(seq + seq) == 6
    with pytest.raises(IndexError):
        seq[3]


def test_module_dict_and_parameter_containers():
    modules = nn.ModuleDict({"a": Affine()})
    modules.update([("b", Affine(2, 2))])
    assert list(modules) == ["a", "b"] and "a" in modules and len(list(modules.parameters())) == 4
    params = nn.ParameterList([fl.zeros(2), fl.ones(3)])
    params.append(fl.zeros(1))
    assert [n for n, _ in params.named_parameters()] == ["0", "1", "2"] and isinstance(params[1], nn.Parameter)
    table = nn.ParameterDict({"x": fl.zeros(2)})
    table["y"] = fl.ones(1)
    assert list(table.keys()) == ["x", "y"] and table.pop("x").shape == (2,) and len(list(table.parameters())) == 1


def test_uninitialised_parameters_materialise():
    param = nn.UninitializedParameter(dtype=fl.float64)
    with pytest.raises(RuntimeError, match="not known yet"):
        _ = param.shape
    with pytest.raises(ValueError, match="not known yet"):
        _ = param + 1
    assert type(copy.deepcopy(param)) is nn.UninitializedParameter
    param.materialize((2, 3))
    assert type(param) is nn.Parameter and param.shape == (2, 3) and param.dtype == fl.float64


def test_parameter_pickles_and_keeps_identity_in_repr():
    param = nn.Parameter(fl.ones(2), requires_grad=False)
    other = pickle.loads(pickle.dumps(param))
    assert isinstance(other, nn.Parameter) and not other.requires_grad and fl.equal(other, param)
    assert repr(param).startswith("Parameter containing:\n")


def test_parameters_of_plain_mappings_are_listed_by_name():
    given = {"b": fl.ones(1), "a": fl.ones(2)}
    assert list(nn.ParameterDict(given)) == ["a", "b"]
    assert list(nn.ParameterDict(collections.OrderedDict(given))) == ["b", "a"]
    assert list(nn.ParameterDict(list(given.items()))) == ["b", "a"]
    assert list(nn.ModuleDict({"b": nn.ReLU(), "a": nn.ReLU()})) == ["b", "a"]


def test_names_of_types_are_those_that_programs_know():
    assert fl.typename(nn.Linear(1, 1)) == "torch.nn.modules.linear.Linear"
    assert fl.typename(nn.Parameter(fl.ones(1))) == fl.ones(1).type() and fl.typename(3) == "int"


def test_modules_with_abstract_methods_cannot_be_made():
    class Base(nn.Module, abc.ABC):
        @abc.abstractmethod
        def core(self, x): ...

        def forward(self, x):
            return self.core(x)

    class Double(Base):
        def __new__(cls, *args):
            return super().__new__(cls)

        def core(self, x):
            return x * 2

    with pytest.raises(TypeError, match="abstract"):
        Base()
    assert Double()(fl.ones(2)).tolist() == [2.0, 2.0]


def test_new_goes_on_to_the_classes_beside_modules():
    class Remembers:
        def __new__(cls, *args, **kwargs):
            instance = super().__new__(cls)
            instance.arguments = args, kwargs
            return instance

    class Model(nn.Module, Remembers):
        def __new__(cls, *args, **kwargs):
            return super().__new__(cls, *args, **kwargs)

        def __init__(self, *args, **kwargs):
            super().__init__()

    assert Model(1, width=2).arguments == ((1,), {"width": 2})
