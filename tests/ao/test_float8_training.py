"""Linear layers that multiply 8-bit floats while they are trained."""

from __future__ import annotations

import pytest

import flambeau as fl
from flambeau import nn
from flambeau.ao.torchao.float8 import (
    CastConfig,
    Float8Linear,
    Float8LinearConfig,
    ScalingGranularity,
    ScalingType,
    convert_to_float8_training,
    sync_float8_amax_and_scale_history,
)

RECIPES = ("tensorwise", "rowwise", "rowwise_with_gw_hp", "delayed")


def network() -> nn.Module:
    fl.manual_seed(0)
    return nn.Sequential(nn.Linear(32, 64), nn.GELU(), nn.Linear(64, 48), nn.GELU(), nn.Linear(48, 16))


def losses(recipe: str, compiled: bool, steps: int = 8) -> list[float]:
    model = network()
    if recipe:
        convert_to_float8_training(model, config=Float8LinearConfig.from_recipe_name(recipe))
    optimizer = fl.optim.AdamW(model.parameters(), 1e-2)
    x, y = fl.randn(64, 32), fl.randn(64, 16)

    def loss_of(x: fl.Tensor) -> fl.Tensor:
        return nn.functional.mse_loss(model(x), y)

    function = fl.compile(loss_of, fullgraph=True) if compiled else loss_of
    values = []
    for _ in range(steps):
        with fl.autocast("cpu", dtype=fl.bfloat16):
            loss = function(x)
        loss.backward()
        sync_float8_amax_and_scale_history(model)
        optimizer.step()
        optimizer.zero_grad()
        values.append(loss.item())
    return values


@pytest.mark.parametrize("recipe", RECIPES)
def test_models_learn_as_without_it(recipe: str) -> None:
    plain, small, compiled = losses("", False), losses(recipe, False), losses(recipe, True)
    assert all(abs(a - b) < 0.02 for a, b in zip(plain, small, strict=True))
    assert all(abs(a - b) < 1e-3 for a, b in zip(small, compiled, strict=True))


@pytest.mark.parametrize("recipe", RECIPES[:3])
def test_gradients_are_those_of_rounded_operands(recipe: str) -> None:
    fl.manual_seed(1)
    layer = nn.Linear(64, 32)
    small = Float8Linear.from_float(layer, Float8LinearConfig.from_recipe_name(recipe))
    assert small.weight is layer.weight and small.bias is layer.bias
    x = fl.randn(5, 16, 64, requires_grad=True)
    found = fl.autograd.grad(small(x).square().sum(), (x, layer.weight, layer.bias))
    wanted = fl.autograd.grad(layer(x).square().sum(), (x, layer.weight, layer.bias))
    for one, other in zip(found, wanted, strict=True):
        assert one.shape == other.shape and one.dtype == other.dtype
        assert (one - other).norm() < 0.1 * other.norm()


def test_delayed_scales_come_from_the_steps_before() -> None:
    layer = nn.Sequential(nn.Linear(16, 16, bias=False))
    config = Float8LinearConfig.from_recipe_name("delayed")
    small = convert_to_float8_training(layer, config=config)[0]
    history = small.fp8_amax_history_input
    for step, largest in enumerate((2.0, 8.0, 4.0)):
        small(fl.full((4, 16), largest)).sum().backward()
        sync_float8_amax_and_scale_history(layer)
        assert history[0].item() == largest and small.fp8_scale_input.item() == 448 / (2.0, 8.0, 8.0)[step]
    assert small.fp8_scale_grad_output.item() == 57344.0  # gradients of a sum are ones
    assert small.fp8_amax_grad_output.grad is None
    assert not any(p is small.fp8_amax_grad_output for p in layer.parameters())
    layer.eval()
    layer(fl.full((4, 16), 100.0))
    assert small.fp8_amax_input.item() == 4.0


def test_which_layers_are_converted() -> None:
    model = network()
    convert_to_float8_training(model, module_filter_fn=lambda layer, name: name != "4")
    assert [type(model[i]) for i in (0, 2, 4)] == [Float8Linear, Float8Linear, nn.Linear]
    assert "cast_configs=i:dyn_ten_e4m3,w:dyn_ten_e4m3,go:dyn_ten_e5m2" in repr(model)
    assert isinstance(convert_to_float8_training(nn.Linear(16, 16)), Float8Linear)
    assert set(model.state_dict()) == set(network().state_dict())


def test_inner_sizes_are_padded() -> None:
    layer = nn.Linear(20, 24, bias=False)
    for recipe in ("tensorwise", "rowwise"):
        plain = Float8Linear.from_float(layer, Float8LinearConfig.from_recipe_name(recipe))
        padded = Float8Linear.from_float(layer, Float8LinearConfig(**{**vars(plain.config), "pad_inner_dim": True}))
        x = fl.randn(10, 20, requires_grad=True)
        for one, other in zip(
            *(fl.autograd.grad(m(x).square().sum(), (x, m.weight)) for m in (plain, padded)), strict=True
        ):
            fl.testing.assert_close(one, other)


def test_mistakes_are_refused() -> None:
    with pytest.raises(AssertionError, match=r"expected one of .*tensorwise"):
        Float8LinearConfig.from_recipe_name("columns")
    with pytest.raises(AssertionError, match="expected float8_e4m3fn or float8_e5m2"):
        CastConfig(target_dtype=fl.float16)
    with pytest.raises(AssertionError, match="dynamic scales"):
        CastConfig(ScalingType.DELAYED, ScalingGranularity.AXISWISE)
    with pytest.raises(AssertionError, match="both operands of output"):
        Float8LinearConfig(cast_config_input=CastConfig(ScalingType.DISABLED))
    with pytest.raises(NotImplementedError, match="enable_fsdp_float8_all_gather"):
        Float8LinearConfig(enable_fsdp_float8_all_gather=True)
