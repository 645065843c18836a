"""`ops.quantized`, tables of configurations, and what programs ask about them."""

import subprocess
import sys

import pytest

import flambeau as fl
from flambeau import nn
from flambeau.ao.quantization import QuantType, get_default_qconfig_mapping, utils
from flambeau.ao.quantization.fx.custom_config import ConvertCustomConfig, PrepareCustomConfig
from flambeau.ao.quantization.quantize_fx import convert_fx, prepare_fx

Q = fl.ops.quantized


def quantized(*shape, scale=0.05, zero_point=128, dtype=fl.quint8):
    fl.manual_seed(sum(shape))
    return fl.quantize_per_tensor(fl.randn(*shape), scale, zero_point, dtype)


def on_grid(values, scale, zero_point):
    return fl.quantize_per_tensor(values, scale, zero_point, fl.quint8)


def within_a_step(found, wanted):
    steps = found.int_repr().int() - wanted.int_repr().int()
    return found.dtype is wanted.dtype and found.q_scale() == wanted.q_scale() and int(steps.abs().max()) <= 1


A, B = quantized(3, 4), quantized(4, 3).t().contiguous()
UNARY = {
    "sigmoid": fl.sigmoid,
    "hardswish": nn.functional.hardswish,
    "elu": nn.functional.elu,
    "celu": nn.functional.celu,
}


@pytest.mark.parametrize("name", UNARY)
def test_activations_land_on_the_grid_of_the_result(name):
    assert within_a_step(getattr(Q, name)(A, 0.03, 20), on_grid(UNARY[name](A.dequantize()), 0.03, 20))


def test_sums_products_and_joins():
    a, b = A.dequantize(), B.dequantize()
    assert within_a_step(Q.add(A, B, 0.1, 100), on_grid(a + b, 0.1, 100))
    assert within_a_step(Q.add_relu(A, B, 0.1, 0), on_grid((a + b).relu(), 0.1, 0))
    assert within_a_step(Q.mul(A, B, 0.1, 100), on_grid(a * b, 0.1, 100))
    assert within_a_step(Q.cat([A, B], 1, 0.1, 100), on_grid(fl.cat([a, b], 1), 0.1, 100))
    out = quantized(3, 4, scale=0.2)
    assert Q.add_out(A, B, out) is out and within_a_step(out, on_grid(a + b, 0.2, 128))
    assert (Q.add(A, 1.0).dequantize() - a - 1).abs().max() < 0.05
    assert (Q.mul_scalar(A, -2.0).dequantize() + 2 * a).abs().max() < 0.2


@pytest.mark.parametrize("per_channel", [False, True])
def test_packed_layers(per_channel):
    fl.manual_seed(0)
    values = fl.randn(5, 4)
    if per_channel:
        weight = fl.quantize_per_channel(values, fl.rand(5) * 0.01 + 0.02, fl.zeros(5), 0, fl.qint8)
    else:
        weight = fl.quantize_per_tensor(values, 0.03, 0, fl.qint8)
    bias = fl.randn(5)
    packed = Q.linear_prepack(weight, bias)
    held, held_bias = Q.linear_unpack(packed)
    assert (
        held.equal(weight) if hasattr(held, "equal") and not per_channel else held.int_repr().equal(weight.int_repr())
    )
    assert held_bias.equal(bias)
    wanted = nn.functional.linear(A.dequantize(), weight.dequantize(), bias)
    assert within_a_step(Q.linear(A, packed, 0.1, 100), on_grid(wanted, 0.1, 100))
    assert within_a_step(Q.linear_relu(A, packed, 0.1, 0), on_grid(wanted.relu(), 0.1, 0))
    dynamic = Q.linear_dynamic(A.dequantize(), packed)
    assert (dynamic - wanted).abs().max() < 0.2


def test_packed_convolutions():
    x, weight = quantized(2, 4, 6, 6), quantized(8, 2, 3, 3, scale=0.02, zero_point=0, dtype=fl.qint8)
    packed = Q.conv2d_prepack(weight, None, [2, 2], [1, 1], [1, 1], 2)
    assert Q.conv2d_stride(packed) == [2, 2] and Q.conv2d_groups(packed) == 2
    wanted = nn.functional.conv2d(x.dequantize(), weight.dequantize(), None, 2, 1, 1, 2)
    assert within_a_step(Q.conv2d(x, packed, 0.1, 100), on_grid(wanted, 0.1, 100))
    assert within_a_step(Q.conv2d(x, packed, [2, 2], [1, 1], [1, 1], 2, 0.1, 100), on_grid(wanted, 0.1, 100))
    assert (Q.conv2d_dynamic(x.dequantize(), packed) - wanted).abs().max() < 0.2


@pytest.mark.parametrize(("name", "error"), [("byte", 0.02), ("4bit", 0.2), ("2bit", 0.9)])
def test_tables_of_bytes(name, error):
    fl.manual_seed(0)
    table = fl.randn(6, 12)
    packed = getattr(Q, f"embedding_bag_{name}_prepack")(table)
    assert packed.dtype == fl.uint8
    values = getattr(Q, f"embedding_bag_{name}_unpack")(packed)
    assert (values - table).abs().max() < error
    found = getattr(Q, f"embedding_bag_{name}_rowwise_offsets")(packed, fl.tensor([0, 1, 5]), fl.tensor([0, 2]))
    assert fl.allclose(found, fl.stack([values[0] + values[1], values[5]]), atol=1e-5)


def test_quantized_norms_use_running_statistics():
    norm = fl.ao.nn.quantized.BatchNorm2d(3)
    x = quantized(2, 3, 4, 4)
    norm.scale, norm.zero_point = 0.05, 128
    assert within_a_step(norm(x), x)


def test_recurrent_layers_by_their_sizes():
    layer = fl.ao.nn.quantized.dynamic.LSTM(3, 4, num_layers=2, bidirectional=True)
    other = fl.ao.nn.quantized.dynamic.LSTM(3, 4, num_layers=2, bidirectional=True)
    x = fl.randn(5, 2, 3)
    other.set_weight_bias({**layer.get_weight(), **layer.get_bias()})
    assert other(x)[0].equal(layer(x)[0]) and len(layer.get_weight()) == 8


def test_custom_configurations_go_through_dicts():
    class Observed(nn.Linear):
        pass

    config = PrepareCustomConfig().set_float_to_observed_mapping(nn.Linear, Observed, QuantType.STATIC)
    config.set_standalone_module_name("sub", get_default_qconfig_mapping(), (fl.ones(1),))
    table = config.set_input_quantized_indexes([0]).to_dict()
    assert table["float_to_observed_custom_module_class"] == {"static": {nn.Linear: Observed}}
    again = PrepareCustomConfig.from_dict(table)
    assert again.input_quantized_indexes == [0] and again.float_to_observed_mapping == config.float_to_observed_mapping
    assert again.standalone_module_names["sub"].example_inputs == (fl.ones(1),)
    with pytest.raises(ValueError, match=r"ConvertCustomConfig"):
        ConvertCustomConfig.from_dict({"unknown": 1})


def test_a_standalone_module_is_quantized_by_itself():
    class Inner(nn.Module):
        def __init__(self):
            super().__init__()
            self.linear = nn.Linear(4, 4)

        def forward(self, x):
            return self.linear(x).relu()

    model = nn.Sequential(nn.Linear(4, 4), Inner()).eval()
    x = fl.randn(3, 4)
    mapping = get_default_qconfig_mapping()
    config = PrepareCustomConfig().set_standalone_module_class(Inner, mapping, (x,))
    prepared = prepare_fx(model, mapping, (x,), prepare_custom_config=config)
    prepared(x)
    small = convert_fx(prepared)
    assert "QuantizedLinear" in repr(getattr(small, "1")) and (small(x) - model(x)).abs().max() < 0.1


def test_what_programs_ask_of_configurations():
    config = get_default_qconfig_mapping().global_qconfig
    assert utils.get_quant_type(config) is QuantType.STATIC and utils.activation_is_int8_quantized(config)
    assert utils.weight_dtype(config) is fl.qint8 and utils.to_underlying_dtype(fl.quint8) == fl.uint8
    model = nn.Sequential(nn.Linear(2, 3), nn.ReLU())
    found = utils.get_fqn_to_example_inputs(model, (fl.ones(1, 2),))
    assert list(found) == ["", "0", "1"] and found["1"][0].shape == (1, 3)
    assert fl.iinfo(fl.quint8).max == 255 and fl.iinfo(fl.qint32).bits == 32


def test_quantized_tensors_are_filled_and_written():
    x = quantized(2, 3)
    x.fill_(1.0)
    assert x.dequantize().equal(fl.ones(2, 3)) and x.q_zero_point() == 128
    x[0, 1] = 2.0
    assert x[0, 1].item() == 2.0
    padded = nn.functional.pad(x, (1, 1))
    assert padded.shape == (2, 5) and padded.q_scale() == x.q_scale() and padded[0, 0].item() == 0.0
    with pytest.raises(RuntimeError, match="please use dequantize"):
        fl.empty(2, 3).copy_(x)


def test_modules_of_the_operators_are_imported_without_the_functions():
    program = "from flambeau.ops.quantized import arithmetic; import sys; print('flambeau.ao.quantized_operators' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert done.stdout.split() == ["False"], done.stderr


def test_parts_of_tensors_with_a_grid_for_each_channel_are_read_and_written():
    scales, zero_points = fl.tensor([0.1, 0.2, 0.3]), fl.tensor([1, 2, 3])
    q = fl.quantize_per_channel(fl.arange(24.0).reshape(2, 3, 4) / 10, scales, zero_points, 1, fl.quint8)
    assert q[0].q_per_channel_axis() == 0 and q[:, None].q_per_channel_axis() == 2
    assert q[:, 1:].q_per_channel_zero_points().tolist() == [2, 3]
    assert q[..., 0].q_per_channel_axis() == 1 and q[1, 2].q_zero_point() == 3
    q[1][2] = 0.6
    q[0, 1] = fl.full((4,), 1.2)
    q[0][0][1:3] = 2.0
    assert q.int_repr()[1, 2].tolist() == [5] * 4 and q.int_repr()[0, 1].tolist() == [8] * 4
    assert q.int_repr()[0, 0].tolist() == [1, 21, 21, 4]
    q.fill_(1.2)
    assert q.int_repr()[0].tolist() == [[13] * 4, [8] * 4, [7] * 4]
    with pytest.raises(NotImplementedError, match="expected integers and slices"):
        q[fl.tensor([0])]


def test_values_under_a_mask_are_filled():
    q = fl.quantize_per_tensor(fl.arange(4.0), 0.5, 3, fl.qint8)
    mask = fl.tensor([True, False, True, False])
    assert q.masked_fill(mask, 9.0).int_repr().tolist() == [21, 5, 21, 9] and q.int_repr()[0] == 3
    q.masked_fill_(mask, 9.0)
    assert q.int_repr().tolist() == [21, 5, 21, 9]


def test_grids_are_chosen_for_a_range():
    scale, zero_point = fl._choose_qparams_per_tensor(fl.tensor([-1.0, 1.55]))
    assert abs(scale - 0.01) < 1e-6 and zero_point == 100
    x = fl.cat([fl.linspace(-1, 1, 63), fl.tensor([1.2])])
    for bits in (2, 4):  # no more than a share of the range is given up
        high, low = fl.choose_qparams_optimized(x, 64, 200, 0.16, bits)
        assert -1 <= low.item() < high.item() <= 1.21 and high.item() - low.item() > 0.83 * 2.2


def test_axis_of_channels_moves_with_dimensions():
    x = fl.quantize_per_channel(fl.randn(3, 2, 1), fl.tensor([0.1, 0.2]), fl.tensor([0, 1]), 1, fl.quint8)
    for y, axis in ((x.unsqueeze(0), 2), (x.unsqueeze(1), 2), (fl.unsqueeze(x, -1), 1), (x.squeeze(), 1)):
        assert y.q_per_channel_axis() == axis
        assert fl.equal(y.dequantize().reshape(3, 2), x.dequantize().reshape(3, 2))
    one = fl.quantize_per_channel(fl.randn(1, 2), fl.tensor([0.1]), fl.tensor([0]), 0, fl.quint8)
    with pytest.raises(RuntimeError, match=r"\[squeeze\]"):
        one.squeeze(0)


def test_indexed_writes_are_quantized():
    x = fl.quantize_per_tensor(fl.zeros(4), 0.5, 10, fl.quint8)
    y = x.index_put((fl.tensor([1, 2]),), fl.tensor([1.2, 1000.0]))
    assert y.dequantize().tolist() == [0, 1, 122.5, 0] and x.dequantize().tolist() == [0] * 4
    x.index_put_((fl.tensor([True, False, False, True]),), fl.tensor(2.4))
    assert x.dequantize().tolist() == [2.5, 0, 0, 2.5]
    with pytest.raises(NotImplementedError, match="accumulate"):
        x.index_put_((fl.tensor([0]),), fl.tensor(1.0), accumulate=True)
