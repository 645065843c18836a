"""vmap of every record against a loop, on its samples."""

import pathlib
import sys

import pytest

import flambeau as fl
from flambeau.func import vmap
from flambeau.ops import samples

sys.path.insert(0, str(pathlib.Path(__file__).parents[1]))
from sampled import NAMES, RECORDS, calls, operator, tensors, walk

# No function of values alone: random numbers, memory without values, writes, and compositions of what the data decides.
LEFT_OUT = set(
    "empty_like new_empty new_empty_strided resize_ resize_as_ nonzero.as_tuple argwhere where masked_select "
    "repeat_interleave.self_Tensor torchvision::qnms _local_scalar_dense allclose equal nn_rrelu nn_gumbel_softmax svd_lowrank pca_lowrank bernoulli.p normal.float_Tensor normal.Tensor_float normal.Tensor_Tensor".split()
)

# They read lengths, places or limits from a tensor, which then has to be the same for all.
READS = set(
    "tensor_split.tensor_indices_or_sections narrow.Tensor lstm.data gru.data rnn_tanh.data rnn_relu.data "
    "_pack_padded_sequence _pad_packed_sequence segment_reduce histogram.bin_ct linspace logspace "
    "_foreach_addcmul.Tensor _foreach_addcdiv.Tensor grouped_mm".split()
)


def comparable(name):
    record = RECORDS[name]
    writes = any("(!)" in a.type for a in record.schema.args) or record.schema.name.endswith("_")
    refused = {"random", "data_dependent"} & set(record.tags)
    return not writes and not refused and "dropout" not in name and name not in LEFT_OUT


def vary(t, k):
    """Another tensor of the same kind for each element of the batch."""
    return t * (1 - 0.1 * k) if t.is_floating_point() or t.is_complex() else t


@pytest.mark.parametrize("which", ["all", "first"])
@pytest.mark.parametrize("name", [n for n in NAMES if comparable(n) and n not in READS])
def test_records_agree_with_a_loop(name, which):
    op = operator(name)
    for call in calls(name, fl.float64)[:3]:
        given = samples.plain([list(call.args), call.kwargs])
        places = list(range(len(tensors(given))))
        chosen = places if which == "all" else places[:1]
        if not places or (which == "first" and len(places) == 1):
            continue

        def with_tensors(values, given=given):
            values = iter(values)
            return walk(given, lambda t: next(values))

        def run(*picked, given=given, chosen=chosen, call=call):
            replaced = list(tensors(given))
            for i, t in zip(chosen, picked):
                replaced[i] = t
            args, kwargs = with_tensors(replaced, given)
            out = op(*args, **kwargs)
            return tuple(tensors(call.result(out)))

        rows = [[vary(tensors(given)[i], k) for i in chosen] for k in range(2)]
        try:
            want = [run(*row) for row in rows]
        except (RuntimeError, ValueError):
            continue  # what was varied is not an argument for it
        if any(w.shape != v.shape for w, v in zip(*want)):
            continue
        got = vmap(run)(*(fl.stack(column) for column in zip(*rows)))
        assert len(got) == len(want[0])
        for k in range(2):
            for g, w in zip(got, want[k]):
                assert g[k].shape == w.shape and g.dtype == w.dtype
                assert fl.allclose(g[k], w, rtol=1e-7, atol=1e-9, equal_nan=True)
