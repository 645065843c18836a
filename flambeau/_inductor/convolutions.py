"""Convolutions with what follows them: in evaluation, a 3 x 3 convolution, its batch normalisation, residual sum and relu
become one call.

The pass runs after layouts were chosen. It looks for

    ((conv2d(x, w, bias) - mean) * scale + shift + residual).relu()

of which everything but the convolution may be missing, where nobody else sees what is between. The call computes in
single precision, channels-last, by Winograd's algorithm (`csrc/cpu/convolution/winograd.h`). Parameters and running statistics are its
arguments like others, so that a change of them is seen by the next call.

Where parameters are frozen (`freezing.py`) it is given weights that are transformed already, and normalisations that follow
other convolutions become part of their weights. Convolutions of bfloat16 are given weights in the layout of oneDNN's primitive, to
which the steps behind them belong then, or transformed weights where Winograd's algorithm is quicker (`winograd_pairs.cpp`).
"""

from __future__ import annotations

from collections.abc import Set
from typing import Any

import flambeau as fl
from flambeau._functorch.aot.trace import RecordedCall, RecordedValue, Recorder, Trace
from flambeau._inductor import config
from flambeau._inductor.epilogue import Epilogues, made_by, operand_beside
from flambeau.backends import records

__all__ = ["finish_convolutions", "fold_normalizations", "pair"]

LEAST_CHANNELS = 48  # below, transforming tiles costs more than the products save
LEAST_PACKED_CHANNELS, LEAST_PACKED_TILES = 32, 8  # where the weights are transformed already
LEAST_PAIR_TILES = 32  # of bfloat16: below, reading 16 numbers instead of 9 for a kernel takes longer than it saves

# The steps in their order: operator, and which argument of the call its operand is.
_STEPS = (("sub.Tensor", "mean"), ("mul.Tensor", "scale"), ("add.Tensor", "shift"), ("add.Tensor", "residual"))


def finish_convolutions(trace: Trace, frozen: Set[int] = frozenset()) -> None:
    """Changes the calls of a trace without derivatives; `frozen` are storages that stay from run to run."""
    if any(call.op._full_name == "conv2d" for call in trace.calls):
        _Finishing(trace, frozen).run()


def fold_normalizations(trace: Trace, frozen: Set[int]) -> None:
    """Makes frozen normalisations part of the weights of the convolutions before them."""
    if any(call.op._full_name == "conv2d" for call in trace.calls):
        _Folding(trace, frozen).run()
        _Prepacking(trace, frozen).run()


class _AfterConvolutions(Epilogues):
    names = frozenset(("conv2d",))

    def __init__(self, trace: Trace, frozen: Set[int]) -> None:
        super().__init__(trace)
        self.frozen = frozen

    def alike(self, result: RecordedValue, value: RecordedValue) -> bool:
        return (result.size, result.dtype, result.stride) == (
            value.size,
            value.dtype,
            value.stride,
        ) and not result.offset

    def follow(
        self, at: int, call: RecordedCall, last: str
    ) -> tuple[dict[str, RecordedValue | None], RecordedValue, list[int]]:
        """The operands of the steps after a convolution up to the one named, the result, and the positions of all."""
        value = call.results[0]
        assert value is not None
        places, operands = [at], dict.fromkeys(("mean", "scale", "shift", "residual"))
        step = 0
        while (following := self.only_reader(value, places)) is not None:
            place, user, result = following
            taken = _operand(user, value, step)
            if taken is None or not self.accepts(_STEPS[taken[0]][1], taken[1], last):
                break
            name, step, operands[name] = _STEPS[taken[0]][1], taken[0] + 1, taken[1]
            places.append(place)
            value = result
        return operands, value, places

    def accepts(self, name: str, operand: RecordedValue, last: str) -> bool:
        return last == "residual" or (name != "residual" and operand.storage in self.frozen)


class _Finishing(_AfterConvolutions):
    def finished(self, at: int, call: RecordedCall) -> tuple[list[RecordedCall], list[int]] | None:
        arguments = records.bind(call.op, call.args, call.kwargs)
        value = call.results[0]
        packs = arguments["weight"].storage in self.frozen
        if value is None or not _fits(arguments, value) or not _pays(arguments, value, packs):
            return None
        operands, value, places = self.follow(at, call, "residual")
        following = self.only_reader(value, places)
        relu = following is not None and following[1].op._full_name == "relu"
        if following is not None and relu:
            places.append(following[0])
            value = following[2]
        packed, calls = None, []
        if packs:
            packed, packing = made_by(self.trace, fl.ops.aten._convolution_packed.default, arguments["weight"])
            calls.append(packing)
        args = (
            arguments["input"], arguments["weight"], arguments["bias"], *operands.values(), relu, pair(arguments["padding"]), packed,
        )  # fmt: skip
        calls.append(RecordedCall(fl.ops.aten._convolution_finished.default, args, {}, [value], []))
        return calls, places


class _Folding(_AfterConvolutions):
    def finished(self, at: int, call: RecordedCall) -> tuple[list[RecordedCall], list[int]] | None:
        arguments = records.bind(call.op, call.args, call.kwargs)
        held = [v for v in (arguments["weight"], arguments["bias"]) if v is not None]
        value = call.results[0]
        if value is None or len(value.size) != 4 or any(v.storage not in self.frozen for v in held):
            return None
        operands, value, places = self.follow(at, call, "shift")
        if len(places) == 1:
            return None
        before = len(self.trace.calls)
        weight, bias = arguments["weight"], arguments["bias"]
        with fl.no_grad(), Recorder(self.trace, {}):
            folded = _folded(weight.tensor.detach(), None if bias is None else bias.tensor.detach(), operands)
        calls = self.trace.calls[before:]
        del self.trace.calls[before:]
        kwargs = {k: arguments[k] for k in ("stride", "padding", "dilation", "groups")}
        weight, bias = (None if t is None else self.trace.value(t) for t in folded)
        args = (arguments["input"], weight, bias, *kwargs.values())
        calls.append(RecordedCall(call.op, args, {}, [value], []))
        return calls, places


class _Prepacking(_AfterConvolutions):
    """Convolutions of bfloat16 with frozen weights, whose layout is made once; normalisation, residual sum and relu go along."""

    def finished(self, at: int, call: RecordedCall) -> tuple[list[RecordedCall], list[int]] | None:
        arguments = records.bind(call.op, call.args, call.kwargs)
        value, weight, bias = call.results[0], arguments["weight"], arguments["bias"]
        held = [v for v in (weight, bias) if v is not None]
        if value is None or not _is_prepackable(arguments, value) or any(v.storage not in self.frozen for v in held):
            return None
        places, settings = [at], [pair(arguments[k]) for k in ("stride", "padding", "dilation")]
        norm = self.normalization(value, places)
        before = len(self.trace.calls)
        with fl.no_grad(), Recorder(self.trace, {}):
            scale, shift = _affine(None if bias is None else bias.tensor.detach(), norm)
            size = [int(n) for n in arguments["input"].size]
            packed, is_transformed = _packed(weight.tensor.detach(), arguments, value, size, settings)
        calls = self.trace.calls[before:]
        del self.trace.calls[before:]
        if packed.numel() == 0:
            return None
        if norm is not None:
            places.append(norm[0])
            value = norm[1].results[0]
        residual, relu, value = self.residual_and_relu(value, places)
        held = [None if t is None else self.trace.value(t) for t in (packed, scale, shift)]
        if is_transformed:
            op = fl.ops.aten._convolution_finished.default
            args = (arguments["input"], weight, None, None, *held[1:], residual, relu, settings[1], held[0])
        else:
            op = fl.ops.aten._convolution_prepacked.default
            args = (
                arguments["input"], held[0], [int(n) for n in weight.size], *held[1:], residual, relu, *settings,
                arguments["groups"],
            )  # fmt: skip
        calls.append(RecordedCall(op, args, {}, [value], []))
        return calls, places

    def normalization(self, value: RecordedValue, places: list[int]) -> tuple[int, RecordedCall] | None:
        """The call that alone reads a value, where it normalises by frozen statistics; and its position."""
        readers = set(self.readers.get(value.storage, ()))
        if value.storage in self.returned or len(readers) != 1:
            return None
        (at,) = readers
        call = self.trace.calls[at]
        if at in self.taken or call.op._full_name != "native_batch_norm" or call.kwargs or call.args[5]:
            return None
        held = [v for v in call.args[1:5] if v is not None]
        fits = call.args[0] is value and call.args[3] is not None and call.args[4] is not None
        result = call.results[0]
        unused = all(r is None or not self.readers_after(r, at) for r in call.results[1:])
        is_plain = fits and unused and result is not None and self.alike(result, value)
        written = any(c.writes for c in self.trace.calls[places[0] : at + 1])
        return (at, call) if is_plain and not written and all(v.storage in self.frozen for v in held) else None

    def readers_after(self, value: RecordedValue, at: int) -> bool:
        return value.storage in self.returned or any(place > at for place in self.readers.get(value.storage, ()))

    def residual_and_relu(self, value: Any, places: list[int]) -> tuple[RecordedValue | None, bool, RecordedValue]:
        residual, relu = None, False
        following = self.only_reader(value, places)
        if following is not None and following[1].op._full_name == "add.Tensor":
            other = operand_beside(following[1], value)
            if other is not None and (other.size, other.stride, other.dtype) == (value.size, value.stride, value.dtype):
                residual, value = other, following[2]
                places.append(following[0])
                following = self.only_reader(value, places)
        if following is not None and following[1].op._full_name == "relu":
            relu, value = True, following[2]
            places.append(following[0])
        return residual, relu, value


def _packed(weight: Any, arguments: dict[str, Any], value: RecordedValue, size: list[int], settings: Any) -> Any:
    """The weights laid out, and whether they are transformed."""
    if _pays_in_pairs(arguments, value) and (packed := fl._ops._convolution_packed(weight)).numel() > 0:
        return packed, True
    return fl._ops._convolution_prepack(weight, size, *settings, arguments["groups"]), False


def _is_prepackable(arguments: dict[str, Any], result: RecordedValue) -> bool:
    is_quick = fl._C._cpu_capability() in ("avx512_bf16", "amx") and not config.portable
    return (
        is_quick
        and result.dtype is fl.bfloat16
        and len(result.size) == len(arguments["input"].size) == 4
        and _is_channels_last(arguments["input"])
        and _is_channels_last(result)
    )


def _affine(bias: Any, norm: tuple[int, RecordedCall] | None) -> tuple[Any, Any]:
    """The factor and the summand of each channel behind a convolution; None where there is none."""
    if norm is None:
        return None, None if bias is None else bias.float()
    parameters: list[Any] = [None if v is None else v.tensor.detach().float() for v in norm[1].args[1:5]]
    gamma, beta, mean, variance = parameters
    scale = fl.rsqrt(variance + norm[1].args[7])
    scale = scale if gamma is None else scale * gamma
    shift = (-mean if bias is None else bias.float() - mean) * scale
    return scale, shift if beta is None else shift + beta


def _folded(weight: Any, bias: Any, operands: dict[str, RecordedValue | None]) -> tuple[Any, Any]:
    """The weight and bias of a convolution that is normalised."""
    mean, scale, shift = (None if v is None else v.tensor.detach().reshape(-1) for v in list(operands.values())[:3])
    if mean is not None:
        bias = -mean if bias is None else bias - mean
    if bias is not None and scale is not None:
        bias = bias * scale
    if shift is not None:
        bias = shift if bias is None else bias + shift
    return weight if scale is None else weight * scale.reshape(-1, 1, 1, 1), bias


def _operand(call: RecordedCall, value: RecordedValue, step: int) -> tuple[int, RecordedValue] | None:
    """Which of the steps from `step` on a call is, and its operand beside the value."""
    other = operand_beside(call, value, call.op._full_name == "sub.Tensor")
    if other is None or other.dtype is not fl.float32:
        return None
    for at in range(step, len(_STEPS)):
        op, name = _STEPS[at]
        whole = (other.size, other.stride) == (value.size, value.stride) and other.offset == 0
        fits = whole if name == "residual" else other.size == (1, value.size[1], 1, 1)
        if op == call.op._full_name and fits:
            return at, other
    return None


def _fits(arguments: dict[str, Any], result: RecordedValue, dtype: fl.dtype = fl.float32) -> bool:
    """Whether a convolution is one that the algorithm does."""
    return (
        arguments["weight"].size[2:] == (3, 3)
        and pair(arguments["stride"]) == pair(arguments["dilation"]) == [1, 1]
        and arguments["groups"] == 1
        and result.dtype is dtype
        and len(result.size) == 4
        and _is_channels_last(arguments["input"])
        and _is_channels_last(result)
    )


def _pays(arguments: dict[str, Any], result: RecordedValue, packs: bool) -> bool:
    """Whether the algorithm takes less time; without packing it has to transform the weights in each call."""
    if config.max_autotune:
        return _is_measured_quicker(arguments, packs)
    tiles, least = _extent(arguments, result)
    if packs:
        return tiles >= LEAST_PACKED_TILES and least >= LEAST_PACKED_CHANNELS
    return tiles >= int(result.size[1]) and least >= LEAST_CHANNELS


def _extent(arguments: dict[str, Any], result: RecordedValue) -> tuple[int, int]:
    """The tiles of 2 x 2 results, and the least number of channels on either side."""
    batch, channels, height, width = map(int, result.size)
    return batch * ((height + 1) // 2) * ((width + 1) // 2), min(channels, int(arguments["input"].size[1]))


def _pays_in_pairs(arguments: dict[str, Any], result: RecordedValue) -> bool:
    """The same for bfloat16 with packed weights."""
    tiles, least = _extent(arguments, result)
    fits = _fits(arguments, result, fl.bfloat16) and fl.backends.mkldnn.is_available()
    return fits and tiles >= LEAST_PAIR_TILES and least >= LEAST_PACKED_CHANNELS


def _is_measured_quicker(arguments: dict[str, Any], packs: bool) -> bool:
    from flambeau._inductor.tune import quickest

    size, kernel, padding = arguments["input"].size, arguments["weight"].size, pair(arguments["padding"])
    x = fl.ones(size, device="cpu").contiguous(memory_format=fl.channels_last)
    weight = fl.ones(kernel, device="cpu")
    packed = fl._ops._convolution_packed(weight) if packs else None
    ways = [
        lambda: fl.conv2d(x, weight, None, 1, padding),
        lambda: fl._ops._convolution_finished(x, weight, None, None, None, None, None, False, padding, packed),
    ]
    with fl.no_grad():
        return quickest(f"convolution {size} {kernel} {padding}{' packed' if packs else ''}", ways) == 1


def pair(argument: Any) -> list[int]:
    """An argument that is one number for both dimensions, or one for each."""
    numbers = [argument] if isinstance(argument, int) else list(argument)
    return numbers * 2 if len(numbers) == 1 else numbers


def _is_channels_last(value: RecordedValue) -> bool:
    _, channels, height, width = value.size
    return value.stride == (channels * height * width, 1, channels * width, channels)
