"""What layers keep: names and order of their state, which checkpoints rely on, and their printed form."""

import copy
import pickle
import warnings

import pytest

import flambeau as fl
from flambeau import nn
from flambeau.nn.utils import prune

warnings.filterwarnings("ignore", category=FutureWarning)

# A layer, and the keys of its state dict in order.
KEYS = {
    "nn.Linear(2, 3)": "weight bias",
    "nn.Linear(2, 3, bias=False)": "weight",
    "nn.Bilinear(2, 3, 4)": "weight bias",
    "nn.Conv1d(2, 4, 3)": "weight bias",
    "nn.Conv2d(2, 4, 3, bias=False)": "weight",
    "nn.ConvTranspose3d(2, 4, 3)": "weight bias",
    "nn.BatchNorm1d(4)": "weight bias running_mean running_var num_batches_tracked",
    "nn.BatchNorm2d(4, affine=False)": "running_mean running_var num_batches_tracked",
    "nn.BatchNorm3d(4, track_running_stats=False)": "weight bias",
    "nn.InstanceNorm1d(4)": "",
    "nn.InstanceNorm2d(4, affine=True, track_running_stats=True)": "weight bias running_mean running_var num_batches_tracked",
    "nn.LayerNorm(4)": "weight bias",
    "nn.LayerNorm(4, bias=False)": "weight",
    "nn.RMSNorm(4)": "weight",
    "nn.GroupNorm(2, 4)": "weight bias",
    "nn.PReLU()": "weight",
    "nn.Embedding(3, 2)": "weight",
    "nn.EmbeddingBag(3, 2)": "weight",
    "nn.CrossEntropyLoss(fl.ones(3))": "weight",
    "nn.BCEWithLogitsLoss(pos_weight=fl.ones(3))": "pos_weight",
    "nn.LinearCrossEntropyLoss(3, 4, bias=True)": "linear.weight linear.bias",
    "nn.RNN(2, 3, 2)": "weight_ih_l0 weight_hh_l0 bias_ih_l0 bias_hh_l0 weight_ih_l1 weight_hh_l1 bias_ih_l1 bias_hh_l1",
    "nn.GRU(2, 3, bidirectional=True)": "weight_ih_l0 weight_hh_l0 bias_ih_l0 bias_hh_l0 weight_ih_l0_reverse weight_hh_l0_reverse bias_ih_l0_reverse bias_hh_l0_reverse",
    "nn.LSTM(2, 3, bias=False)": "weight_ih_l0 weight_hh_l0",
    "nn.LSTM(2, 4, proj_size=3)": "weight_ih_l0 weight_hh_l0 bias_ih_l0 bias_hh_l0 weight_hr_l0",
    "nn.LSTMCell(2, 3)": "weight_ih weight_hh bias_ih bias_hh",
    "nn.GRUCell(2, 3, bias=False)": "weight_ih weight_hh",
    "nn.MultiheadAttention(4, 2)": "in_proj_weight in_proj_bias out_proj.weight out_proj.bias",
    "nn.MultiheadAttention(4, 2, kdim=3, vdim=5, add_bias_kv=True)": "q_proj_weight k_proj_weight v_proj_weight in_proj_bias bias_k bias_v out_proj.weight out_proj.bias",
    "nn.TransformerEncoderLayer(4, 2, 8)": "self_attn.in_proj_weight self_attn.in_proj_bias self_attn.out_proj.weight self_attn.out_proj.bias linear1.weight linear1.bias linear2.weight linear2.bias norm1.weight norm1.bias norm2.weight norm2.bias",
    "nn.TransformerDecoderLayer(4, 2, 8, bias=False)": "self_attn.in_proj_weight self_attn.out_proj.weight multihead_attn.in_proj_weight multihead_attn.out_proj.weight linear1.weight linear2.weight norm1.weight norm2.weight norm3.weight",
    "nn.AdaptiveLogSoftmaxWithLoss(8, 10, [4, 6], div_value=2.0)": "head.weight tail.0.0.weight tail.0.1.weight tail.1.0.weight tail.1.1.weight",
    "nn.utils.weight_norm(nn.Linear(2, 3))": "bias weight_g weight_v",
    "nn.utils.spectral_norm(nn.Linear(2, 3))": "bias weight_orig weight_u weight_v",
    "nn.utils.parametrizations.weight_norm(nn.Linear(2, 3))": "bias parametrizations.weight.original0 parametrizations.weight.original1",
    "nn.utils.parametrizations.spectral_norm(nn.Linear(2, 3))": "bias parametrizations.weight.original parametrizations.weight.0._u parametrizations.weight.0._v",
    "nn.utils.parametrizations.orthogonal(nn.Linear(3, 3))": "bias parametrizations.weight.original parametrizations.weight.0.base",
    "prune.l1_unstructured(nn.Linear(2, 3), 'weight', 1)": "bias weight_orig weight_mask",
}  # fmt: skip


def make(expression):
    return eval(expression, {"nn": nn, "fl": fl, "prune": prune})


@pytest.mark.parametrize("expression", KEYS)
def test_keys_of_the_state_dict(expression):
    assert list(make(expression).state_dict()) == KEYS[expression].split()


@pytest.mark.parametrize("expression", KEYS)
def test_state_survives_loading_and_deepcopy(expression):
    module, other = make(expression), make(expression)
    assert other.load_state_dict(module.state_dict()) == ([], [])
    computed = "nn.utils.weight_norm" in expression or "prune" in expression  # a result, which cannot be copied
    for twin in (other,) if computed else (other, copy.deepcopy(module)):
        for key, value in module.state_dict().items():
            assert fl.equal(value, twin.state_dict()[key]), key


@pytest.mark.parametrize("expression", [e for e in KEYS if "utils" not in e and "prune" not in e])
def test_state_survives_pickling_and_repr_names_the_class(expression):
    module = make(expression)
    twin = pickle.loads(pickle.dumps(module))
    assert repr(twin) == repr(module)
    assert repr(module).startswith(type(module).__name__ + "(")
    for key, value in module.state_dict().items():
        assert fl.equal(value, twin.state_dict()[key]), key


@pytest.mark.parametrize("expression", ["Linear(2, 3", "Conv2d(2, 4, 3", "LSTM(2, 3", "LayerNorm(4", "Embedding(3, 2"])
def test_device_and_dtype_of_new_parameters(expression):
    module = make(f"nn.{expression}, device='meta', dtype=fl.float64)")
    assert {p.device.type for p in module.parameters()} == {"meta"}
    assert {p.dtype for p in module.parameters()} == {fl.float64}


def test_lazy_layer_becomes_plain_and_loads_shapes():
    lazy = nn.LazyConv2d(4, 3)
    assert lazy.has_uninitialized_params()
    assert lazy(fl.randn(1, 2, 5, 5)).shape == (1, 4, 3, 3)
    assert type(lazy) is nn.Conv2d and lazy.in_channels == 2
    other = nn.LazyConv2d(4, 3)
    other.load_state_dict(lazy.state_dict())
    assert fl.equal(other.weight, lazy.weight)


@pytest.mark.parametrize(
    "call, error, text",
    [
        ("nn.Conv2d(3, 4, 3, groups=2)", ValueError, "in_channels divisible"),
        ("nn.Conv2d(2, 4, 3, padding='same', stride=2)", ValueError, "stride 1"),
        ("nn.Dropout(1.5)", ValueError, "between 0 and 1"),
        ("nn.BatchNorm2d(3)(fl.zeros(2, 3))", ValueError, "4 dimensions"),
        ("nn.GroupNorm(3, 4)", ValueError, "divisible"),
        ("nn.Embedding(3, 2, padding_idx=3)", AssertionError, "padding_idx"),
        ("nn.LSTM(3, 4)(fl.zeros(5, 2, 2))", RuntimeError, "3 features"),
        ("nn.LSTM(3, 4)(fl.zeros(5))", ValueError, "2 or 3 dimensions"),
        ("nn.GRU(3, 4, proj_size=2)", ValueError, "proj_size"),
        ("nn.MultiMarginLoss(p=3)", ValueError, "p of 1 or 2"),
    ],
)
def test_bad_arguments_say_what_was_expected(call, error, text):
    with pytest.raises(error, match=rf"^\[\w+\] expected .*{text}"):
        make(call)


def test_batch_norm_follows_the_batches():
    norm = nn.BatchNorm1d(2, momentum=0.5)
    x = fl.tensor([[1.0, 2.0], [3.0, 6.0]])
    assert fl.allclose(norm(x), fl.tensor([[-1.0, -1.0], [1.0, 1.0]]), atol=1e-4)
    assert norm.running_mean.tolist() == [1.0, 2.0]
    assert norm.running_var.tolist() == [1.5, 4.5]
    assert norm.num_batches_tracked.item() == 1
    norm.eval()
    assert fl.allclose(norm(x)[0], fl.tensor([0.0, 0.0]), atol=1e-4)


def test_parameters_are_swapped_where_asked():
    module = nn.Linear(3, 2)
    module(fl.ones(1, 3)).sum().backward()
    parameters, gradients = list(module.parameters()), [p.grad for p in module.parameters()]
    before = [p._cdata for p in parameters]
    fl.__future__.set_swap_module_params_on_conversion(True)
    try:
        module.to(fl.float64)
        assert not set(before) & {p._cdata for p in module.parameters()}
        assert all(p.grad is g and g.dtype == fl.float64 for p, g in zip(module.parameters(), gradients))
        module.load_state_dict(nn.Linear(3, 2).state_dict())  # brings tensors of its own, without gradients
    finally:
        fl.__future__.set_swap_module_params_on_conversion(False)
    after = list(module.parameters())
    assert all(a is b and a.dtype == fl.float64 for a, b in zip(parameters, after))
    assert all(p.grad is None for p in after)
