"""Convolutions of planes with what follows them as one Triton kernel, where that was measured as quicker than cuDNN.

A convolution is a product: the rows are the pixels of the result, the columns its channels, and the depth runs over the
elements of the kernel and the input's channels. Nothing is gathered in memory: each step of the loop over the depth finds
its pixels of the input by their strides, and zeros outside of it. With few channels a step goes over several elements of
the kernel.

As with products (`triton_products.py`), the loops of the group that alone reads the result go on with the tile in
registers: bias, normalisation by known statistics, activation, residual sum.

The gradient with respect to the input of a convolution without steps is one of the gradient with respect to its result,
by the kernel turned around; the call for the other gradients stays.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import flambeau as fl
from flambeau._functorch.aot.trace import RecordedCall
from flambeau._inductor.convolutions import pair
from flambeau._inductor.ir import Access, Buffer, OperatorCall, refine, split_strides
from flambeau._inductor.schedule import Group, Member
from flambeau._inductor.tiles import Target, power, subgroup
from flambeau._inductor.triton import Kernel
from flambeau._inductor.triton_products import Choice, Finished, over
from flambeau.backends import records
from flambeau.ops import tags

__all__ = ["Convolution", "convolution"]

CHOICES = (
    Choice(128, 256, 64, 8, 3), Choice(256, 128, 64, 8, 3), Choice(128, 128, 64, 8, 3), Choice(128, 128, 64, 4, 4),
    Choice(256, 64, 64, 8, 3), Choice(128, 64, 64, 4, 4), Choice(64, 128, 64, 4, 4), Choice(64, 64, 64, 4, 4),
    Choice(128, 128, 32, 8, 4), Choice(256, 64, 32, 8, 4), Choice(128, 64, 32, 4, 4), Choice(64, 64, 32, 4, 5),
    Choice(64, 32, 32, 4, 4), Choice(32, 32, 16, 2, 4),
)  # fmt: skip
_BACKWARD = "_convolution_backward"
MOST_PROGRAMS = 4096  # of which smaller tiles than that are not measured
FEW = 16  # channels below which a step takes several elements of the kernel


@dataclass
class Convolution:
    """x[batch, channels, height, width] with weight[n, channels, kernel...], summed over channels and kernel."""

    item: OperatorCall
    x: Access  # over batch, channels, height, width
    weight: Access  # over n, channels and the kernel's two dimensions
    bias: Access | None  # over n
    result: Buffer
    channels: int
    space: tuple[int, int]  # of the input
    made: tuple[int, int, int]  # batch, height and width of the result
    kernel: tuple[int, int]
    stride: list[int]
    padding: list[int]
    dilation: list[int]
    n: int
    last: bool  # the result lies channels-last

    @property
    def m(self) -> int:
        return math.prod(self.made)

    @property
    def operands(self) -> tuple[Access, ...]:
        return (self.x, self.weight) if self.bias is None else (self.x, self.weight, self.bias)

    def call(self) -> RecordedCall:
        return _with_mask(self.item.call, lambda i: i == 0) if self._of_several else self.item.call

    def leave(self) -> list[Kernel] | None:
        if not self._of_several or not any(b is not None for b in self.item.results[1:]):
            return []
        self.item.call = _with_mask(self.item.call, lambda i: i != 0)
        self.item.results[0] = None
        return None

    @property
    def _of_several(self) -> bool:
        return bool(self.item.call.op._full_name == _BACKWARD)

    def __str__(self) -> str:
        parts = (
            self.item.call.op._full_name, self.made, self.n, self.channels, self.space, self.kernel, self.stride,
            self.padding, self.dilation, self.x.strides, self.weight.strides, self.bias is not None, self.result.dtype, self.last,
        )  # fmt: skip
        return " ".join(map(str, parts))

    def over(self, group: Group) -> Group | None:
        batch, area = self.made[0], self.made[1] * self.made[2]
        dims = refine(group.dims, (batch, area, self.n) if self.last else (batch, self.n, area))
        if dims is None:
            return None
        members = [_over_dims(m, group.dims, dims) for m in group.members]
        if self.last:
            split = _boundary(dims, self.n)
            return None if split is None else over(self, subgroup(dims, None, members), split)
        # The channels lie in the middle: rows are batch and area.
        after = _boundary(dims, area)
        before = _boundary(dims, area * self.n)
        if after is None or before is None or over(self, subgroup(dims, None, members), after) is None:
            return None
        order = [*range(before), *range(after, len(dims)), *range(before, after)]
        turned = [_turned(m, order) for m in members]
        return subgroup(tuple(dims[i] for i in order), len(dims) - (after - before), turned)

    def kernels(self, group: Group, stored: set[Buffer], target: Target) -> list[Kernel]:
        names = ", ".join([self.item.call.op._full_name, *(m.loop.name for m in group.members)])
        depth = self.channels if self.channels >= FEW else self.channels * math.prod(self.kernel)
        fitting = [
            choice
            for choice in CHOICES
            if choice.rows <= max(power(self.m), 32)
            and choice.columns <= max(power(self.n), 32)
            and choice.depth <= max(power(depth), 16)
            and choice.fits(target, self.result.dtype)
        ]
        few = [c for c in fitting if -(-self.m // c.rows) * -(-self.n // c.columns) <= MOST_PROGRAMS]
        return [_ByPixels(self, group, stored, c).kernel(names, stages=c.stages) for c in few or fitting[:4]]


def _boundary(dims: tuple[int, ...], size: int) -> int | None:
    """From which of the dimensions on their product is a size."""
    return next((i for i in range(len(dims), -1, -1) if math.prod(dims[i:]) == size), None)


def _over_dims(member: Member, old: tuple[int, ...], new: tuple[int, ...]) -> Member:
    def refined(access: Access) -> Access:
        return Access(access.buffer, access.offset, split_strides(access.strides, old, new))

    return Member(member.loop, member.level, list(map(refined, member.reads)), refined(member.write))


def _turned(member: Member, order: list[int]) -> Member:
    def turned(access: Access) -> Access:
        return Access(access.buffer, access.offset, tuple(access.strides[i] for i in order))

    return Member(member.loop, member.level, list(map(turned, member.reads)), turned(member.write))


# ---------------------------------------------------------------- which


def convolution(item: OperatorCall) -> Convolution | None:
    """A call that is a convolution of planes in one group, or the gradient of one with respect to its input."""
    if item.call is None or item.call.op._full_name not in tags.operators("convolution"):
        return None
    bound = records.bind(item.call.op, item.call.args, item.call.kwargs)
    result = item.results[0]
    transposed = bound.get("transposed", "output_padding" in bound)
    if result is None or bound["groups"] != 1 or transposed or isinstance(bound["padding"], str):
        return None
    backward = item.call.op._full_name == _BACKWARD
    x, weight, bias = bound["grad_output" if backward else "input"], bound["weight"], bound.get("bias")
    if len(weight.size) != 4:
        return None
    stride, padding, dilation = (pair(bound[name]) for name in ("stride", "padding", "dilation"))
    if len(x.size) != 4 or result.memory is not result or result.padded or (backward and stride != [1, 1]):
        return None
    floats = (fl.bfloat16, fl.float16, *([fl.float32] if fl.backends.cudnn.allow_tf32 else []))
    values = [x, weight, *([] if bias is None else [bias])]
    if result.dtype not in floats or any(v.dtype is not result.dtype for v in values):
        return None
    if 0 in result.size or 0 in x.size or 0 in weight.size:
        return None
    last = _is_dense(result, (0, 2, 3, 1))
    if not last and not _is_dense(result, (0, 1, 2, 3)):
        return None
    buffers = {id(v): buffer for buffer, v in item.reads}
    kernel = (int(weight.size[2]), int(weight.size[3]))
    filters = Access(buffers[id(weight)], weight.offset, tuple(weight.stride))
    if backward:
        outer, inner, down, right = filters.strides
        end = filters.offset + (kernel[0] - 1) * down + (kernel[1] - 1) * right
        filters = Access(filters.buffer, end, (inner, outer, -down, -right))
        padding = [d * (k - 1) - p for d, k, p in zip(dilation, kernel, padding)]
    batch, n, height, width = map(int, result.size)
    return Convolution(
        item,
        Access(buffers[id(x)], x.offset, tuple(x.stride)),
        filters,
        Access(buffers[id(bias)], bias.offset, tuple(bias.stride)) if bias is not None else None,
        result, int(x.size[1]), (int(x.size[2]), int(x.size[3])), (batch, height, width), kernel, stride, padding,
        dilation, n, last,
    )  # fmt: skip


def _with_mask(call: RecordedCall, wanted: Callable[[int], bool]) -> RecordedCall:
    """A call for gradients that computes some of those that it was to compute."""
    bound = records.bind(call.op, call.args, call.kwargs)
    bound["output_mask"] = [asked and wanted(i) for i, asked in enumerate(bound["output_mask"])]
    return RecordedCall(call.op, tuple(bound.values()), {}, call.results, call.writes)


def _is_dense(buffer: Buffer, order: tuple[int, ...]) -> bool:
    """Whether the dimensions lie without gaps in an order, the last one innermost."""
    step = 1
    for i in reversed(order):
        if buffer.size[i] != 1 and buffer.stride[i] != step:
            return False
        step *= buffer.size[i]
    return True


# ---------------------------------------------------------------- printing


class _ByPixels(Finished):
    matrix: Convolution

    def _reach(self) -> int:
        c = self.matrix
        sizes = (
            c.made[0],
            c.channels,
            *(n + 2 * p + k * d for n, p, k, d in zip(c.space, c.padding, c.kernel, c.dilation)),
        )
        far = sum(n * s for n, s in zip(sizes, c.x.strides))
        weights = sum(n * abs(s) for n, s in zip((c.n + 256, c.channels + 64, *c.kernel), c.weight.strides))
        return max(super()._reach(), far, weights)

    def scaled(self, variable: str, what: str, by: int) -> str:
        return variable if by == 1 else f"{variable} * {self.number(what, 0, by)}"

    def sums(self) -> list[str]:
        c = self.matrix
        height, width = (self.number(what, 0, n) for what, n in zip(("height", "width of result"), c.made[1:]))
        lines = [f"left = i % {width}", f"over = i // {width}"]
        starts = []
        for axis, (what, text) in enumerate((("y", f"over % {height}"), ("x", "left"))):
            start = self.scaled(f"({text})", f"step {what}", c.stride[axis])
            pad = c.padding[axis]
            starts.append(f"{start} - {self.number(f'padding {what}', 0, pad)}" if pad else start)
        lines += [f"top = {starts[0]}", f"side = {starts[1]}"]
        strides = [self.scaled_by(s, f"stride {k}") for k, s in enumerate(c.x.strides)]
        lines.append(
            f"pixels = {self.pointer(c.x)} + over // {height}{strides[0]} + top{strides[2]} + side{strides[3]}"
        )
        turned = [self.scaled_by(s, f"weight {k}") for k, s in enumerate(c.weight.strides)]
        lines.append(f"filters = {self.pointer(c.weight)} + j{turned[0]}")
        return lines + (self._by_channels(strides, turned) if c.channels >= FEW else self._by_elements(strides, turned))

    def scaled_by(self, stride: int, what: str) -> str:
        return "" if stride == 1 else f" * {self.number(what, 0, stride)}"

    def _moves(self) -> list[str]:
        """Which row and column of the kernel an element is in, and how far from its first one."""
        wide = self.matrix.kernel[1]
        lines = [f"row = tap // {wide}", f"column = tap % {wide}"]
        for name, variable, by in zip(("down", "right"), ("row", "column"), self.matrix.dilation):
            lines.append(f"{name} = {self.scaled(variable, f'dilation {name}', by)}")
        return lines

    def _inside(self, down: str, right: str) -> list[str]:
        """Conditions on a pixel; without padding all are met."""
        c = self.matrix
        conditions = []
        for axis, text in enumerate((f"(top + {down})", f"(side + {right})")):
            if c.padding[axis]:
                size = self.number("size of input", axis, c.space[axis])
                conditions.append(f"({text} >= 0) & ({text} < {size})")
        return conditions

    def _dot(self) -> str:
        precision = ', input_precision="tf32"' if self.matrix.result.dtype is fl.float32 else ""
        return f"tl.dot(a, b, made{precision})"

    def _by_channels(self, x: list[str], w: list[str]) -> list[str]:
        """A step takes K channels at one element of the kernel."""
        c = self.matrix
        single = math.prod(c.kernel) == 1
        channels = self.number("channels", 0, c.channels)
        whole = c.channels % self.depth_of_tile == 0
        body = []
        if single:
            lines, down, right, shift, turn = [f"for at in range(0, {channels}, K):"], "0", "0", "", ""
        else:
            # What the loop over the depth divides by is fixed when the kernel is compiled.
            steps = -(-c.channels // self.depth_of_tile)
            lines = [f"for step in range(0, {steps * math.prod(c.kernel)}):"]
            body += [f"tap = step // {steps}", f"at = step % {steps} * K"]
            body += self._moves()
            down, right = "down", "right"
            shift = f" + down{x[2]} + right{x[3]}"
            turn = f" + row{w[2]} + column{w[3]}"
        body.append("channel = k + at")
        masks = self._inside(down, right)
        bounds = [] if whole else [f"(channel[None, :] < {channels})"]
        body.append(self._load("a", f"pixels{shift} + channel[None, :]{x[1]}", [*masks, *bounds]))
        bounds = [] if whole else [f"channel[:, None] < {channels}"]
        body.append(self._load("b", f"filters{turn} + channel[:, None]{w[1]}", bounds))
        body.append(f"made = {self._dot()}")
        return [*lines, *(f"    {line}" for line in body)]

    def _by_elements(self, x: list[str], w: list[str]) -> list[str]:
        """A step takes K of all channels at all elements of the kernel."""
        c = self.matrix
        channels = self.number("channels", 0, c.channels)
        depth = self.number("depth", 0, c.channels * math.prod(c.kernel))
        body = []
        for name, axis, masks in (("a", "[None, :]", True), ("b", "[:, None]", False)):
            body += [f"e = k{axis} + at", f"channel = e % {channels}", f"tap = e // {channels}"]
            body += self._moves()
            bounds = [f"(e < {depth})"]
            if masks:
                place = f"pixels + down{x[2]} + right{x[3]} + channel{x[1]}"
                bounds += self._inside("down", "right")
            else:
                place = f"filters + row{w[2]} + column{w[3]} + channel{w[1]}"
            body.append(self._load(name, place, bounds))
        body.append(f"made = {self._dot()}")
        return [f"for at in range(0, {depth}, K):", *(f"    {line}" for line in body)]

    @staticmethod
    def _load(name: str, place: str, masks: list[str]) -> str:
        return f"{name} = tl.load({place}{', ' + ' & '.join(masks) + ', 0.0' if masks else ''})"
