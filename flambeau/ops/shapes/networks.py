"""Shape rules of recurrent layers, bags of embeddings, sequence losses, histograms and products with sparse matrices."""

from __future__ import annotations

from collections.abc import Sequence

from flambeau.ops.shapes import Geometry, shape
from flambeau.ops.shapes.geometry import Int, Ints, broadcast, equal_sizes, require, same

NOTHING: Ints = (0,)


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
    kept = (*steps, hidden) if gates > 1 else NOTHING
    return [(*steps, hx.sizes[-1]), hx.sizes, NOTHING if cx is None else cx.sizes, (*steps, w_hh.sizes[0]), kept]


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


@shape("scaled_dot_product_attention")
def attention(query: Geometry, key: Geometry, value: Geometry, enable_gqa: bool) -> Ints:
    equal_sizes(query.sizes[-1], key.sizes[-1], "attention width")
    equal_sizes(key.sizes[-2], value.sizes[-2], "attention length")
    if enable_gqa:
        return (*query.sizes[:-1], value.sizes[-1])
    lead = broadcast(query.sizes[:-2], key.sizes[:-2], value.sizes[:-2])
    return (*lead, query.sizes[-2], value.sizes[-1])


@shape("_ctc_loss")
def ctc_loss(log_probs: Geometry, input_lengths: Ints, target_lengths: Ints) -> list[Ints]:
    steps, batch, _ = log_probs.sizes
    equal_sizes(batch, len(input_lengths), "ctc_loss")
    return [(batch,), (batch, steps, 2 * max((int(n) for n in target_lengths), default=0) + 1)]


@shape("_ctc_loss_backward")
def ctc_loss_backward(log_probs: Geometry) -> Ints:
    return log_probs.sizes


@shape("_embedding_bag")
def embedding_bag(
    weight: Geometry, indices: Geometry, offsets: Geometry, mode: int, include_last_offset: bool
) -> list[Ints]:
    bags = offsets.sizes[0] - 1 if include_last_offset else offsets.sizes[0]
    table = (bags, weight.sizes[1])
    return [table, indices.sizes[:1], (bags,), table if mode == 2 else NOTHING]


@shape("embedding_renorm_")
def embedding_renorm(self: Geometry) -> Ints:
    return self.sizes


@shape("_overlap_add")
def overlap_add(self: Geometry, hop: Int) -> Ints:
    batch, count, width = self.sizes
    return batch, (count - 1) * hop + width


@shape("nonzero_static")
def nonzero_static(self: Geometry, size: Int) -> Ints:
    return size, len(self.sizes)


@shape("_fractional_max_pool2d", "_fractional_max_pool3d")
def fractional_max_pool(self: Geometry, output_size: Ints) -> list[Ints]:
    sizes = (*self.sizes[: len(self.sizes) - len(output_size)], *output_size)
    return [sizes, sizes]


@shape("binomial")
def binomial(count: Geometry, prob: Geometry) -> Ints:
    return broadcast(count.sizes, prob.sizes)


@shape("_sparse_mm")
def sparse_mm(values: Geometry, dense: Geometry, rows: Int) -> Ints:
    return rows, dense.sizes[1]


@shape("_sparse_dots")
def sparse_dots(row: Geometry) -> Ints:
    return row.sizes


@shape("_isin_sorted")
def isin(self: Geometry) -> Ints:
    return self.sizes


@shape("_search")
def search(values: Geometry) -> Ints:
    return values.sizes


@shape("_histogramdd")
def histogram(edges: Sequence[Geometry]) -> Ints:
    return tuple(e.sizes[0] - 1 for e in edges)


@shape("histc")
def histc(bins: Int) -> Ints:
    return (bins,)


@shape("triu_indices")
def triangle_indices(row: Int, col: Int, offset: int) -> Ints:
    if not same(row, col) or offset != 1:
        raise NotImplementedError  # a sum over rows
    require(row >= 1, f"[triu_indices] expected at least one row, got {row}")
    return 2, row * (row - 1) // 2
