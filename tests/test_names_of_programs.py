"""Names that programs for PyTorch use although they are no part of the documented functions."""

import pytest

import flambeau as fl


def test_operators_with_an_underscore_are_found():
    x, weight, scales = fl.ones(2, 32), fl.ones(4, 32, dtype=fl.int8), fl.full((4,), 0.5)
    assert fl.equal(fl._weight_int8pack_mm(x, weight, scales), fl.full((2, 4), 16.0))
    with pytest.raises(AttributeError):
        fl._no_such_operator  # noqa: B018


def test_identities_of_masked_reductions():
    x = fl.ones(2)
    identity = fl.masked._reduction_identity
    assert identity("sum", x) == 0 and identity("prod", x) == 1 and identity("masked.amax", x) == -float("inf")
    assert identity("mean", x) is None
    with pytest.raises(NotImplementedError):
        identity("sort", x)


def test_reductions_take_none_for_all_dimensions():
    x = fl.arange(6.0).reshape(2, 3)
    assert fl.amax(x, dim=None) == 5 and fl.amin(x, dim=None, keepdim=True).shape == (1, 1)


def test_the_reference_of_prod_takes_several_dimensions():
    import flambeau._refs as refs

    x = fl.arange(1.0, 7.0).reshape(2, 3)
    assert refs.prod(x, dim=[0, 1]) == 720 and refs.prod(x, [-1], keepdim=True).tolist() == [[6.0], [120.0]]
    with pytest.raises(RuntimeError):
        refs.prod(x, [0, 0])


@pytest.mark.parametrize(
    "setting", ["cpu_allow_fp16_reduced_precision_reduction", "deterministic_fill_uninitialized_memory"]
)
def test_switches_remember_what_they_are_told(setting):
    ask, tell = getattr(fl._C, f"_get_{setting}"), getattr(fl._C, f"_set_{setting}")
    before = ask()
    try:
        tell(not before)
        assert ask() is not before
    finally:
        tell(before)


def test_fold_constants_into_an_attribute():
    from flambeau.fx.experimental.const_fold import split_const_subgraphs

    class Scaled(fl.nn.Module):
        def __init__(self):
            super().__init__()
            self.a, self.b = fl.nn.Parameter(fl.ones(2)), fl.nn.Parameter(fl.ones(2))

        def forward(self, x):
            return x * (self.a + self.b) + (self.a - self.b)

    module, x = Scaled(), fl.randn(2)
    folded = split_const_subgraphs(module)
    assert folded.const_subgraph_module is not None
    assert fl.equal(folded(x), module(x))
    assert split_const_subgraphs(fl.nn.ReLU()).const_subgraph_module is None
