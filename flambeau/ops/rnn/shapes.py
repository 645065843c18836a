"""Shape rules of recurrent layers."""

from __future__ import annotations

from collections.abc import Sequence

from flambeau.ops.geometry import NOTHING, Geometry, Ints, equal_sizes
from flambeau.ops.rules import shape


@shape("_rnn_layer")
def rnn_layer(
    input: Geometry, hx: Geometry, cx: Geometry | None, w_ih: Geometry, w_hh: Geometry, mode: int
) -> list[Ints]:
    steps = input.sizes[:-1]  # (rows,) when packed, else (time, batch)
    equal_sizes(input.sizes[-1], w_ih.sizes[1], "rnn input")
    equal_sizes(hx.sizes[-1], w_hh.sizes[1], "rnn state")
    if len(steps) == 2:
        equal_sizes(steps[1], hx.sizes[-2], "rnn batch")
    gates = {2: 4, 3: 3}.get(int(mode), 1)  # of an LSTM, of a GRU
    hidden = w_hh.sizes[0] // gates
    saved = (*steps, hidden) if gates > 1 else NOTHING
    return [(*steps, hx.sizes[-1]), hx.sizes, NOTHING if cx is None else cx.sizes, (*steps, w_hh.sizes[0]), saved]


@shape("_rnn_layer_backward")
def rnn_layer_backward(
    input: Geometry,
    hx: Geometry,
    cx: Geometry | None,
    w_ih: Geometry,
    w_hh: Geometry,
    w_hr: Geometry | None,
    output_mask: Sequence[bool],
) -> list[Ints]:
    bias = (w_ih.sizes[0],)
    of = [input, hx, cx, w_ih, w_hh, None, None, w_hr]
    sizes = [bias if i in (5, 6) else NOTHING if g is None else g.sizes for i, g in enumerate(of)]
    return [s if wanted or i == 1 else NOTHING for i, (s, wanted) in enumerate(zip(sizes, output_mask))]
