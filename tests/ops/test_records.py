"""Every pointwise record, on samples derived from its schema: all forms of an op and all layouts must agree.

The arithmetic is judged by the reference device, which evaluates the same records in plain Python; protected here
is everything around it: dtypes, strides, broadcasting, in-place and out= forms, meta, empty and zero-dim tensors.
"""

import pytest

import flambeau as fl
from flambeau.ops.record import load

POINTWISE = [r for r in load().values() if r.kind == "pointwise"]
DTYPES = {
    "b": [fl.bool],
    "i": [fl.uint8, fl.int8, fl.int16, fl.int32, fl.int64],
    "f": [fl.float16, fl.bfloat16, fl.float32, fl.float64],
    "c": [fl.complex64, fl.complex128],
}


def sample(dtype, shape, seed):
    """Values that most functions are defined on: small and positive, without the exact integers of poles."""
    n = 1
    for s in shape:
        n *= s
    values = [0.15 + ((i * 7 + seed * 3) % 11) * 0.07 for i in range(n)]
    if not (dtype.is_floating_point or dtype.is_complex):
        values = [1 + (i * 7 + seed) % 3 for i in range(n)]
    return fl.tensor(values, dtype=fl.float64).reshape(shape).to(dtype)


def arguments(record, dtype, shapes):
    """One positional argument for each of the schema's, and the keywords."""
    positional, keywords = [], {}
    for i, arg in enumerate(record.schema.args):
        if arg.is_tensor:
            mask = arg.name in record.details["mask"]
            value = sample(dtype, shapes[i % len(shapes)], i)
            if record.details["promote"] == "first" and i == 2:
                value = 1
            value = value.to(fl.float32) > 0.4 if mask else value
        elif arg.name == record.details["select"]:
            value = next(iter(record.details["table"]))
        elif arg.default is not None and arg.default != "None":
            continue
        else:
            value = 1
        if arg.keyword_only:
            keywords[arg.name] = value
        else:
            positional.append(value)
    return positional, keywords


def callable_of(record):
    overload = record.schema.overload or "default"
    return getattr(getattr(fl.ops.aten, record.schema.name), overload)


def accepted(record):
    return [t for kind in record.details["dtypes"] for t in DTYPES[kind]]


def close(a, b, dtype):
    assert a.dtype == b.dtype and a.shape == b.shape, (a, b)
    tolerance = {fl.float16: 2e-2, fl.bfloat16: 1e-1}.get(dtype, 1e-5)
    wide = fl.complex128 if a.is_complex() else fl.float64
    assert fl.allclose(a.to(wide), b.to(wide), rtol=tolerance, atol=tolerance, equal_nan=True), (a, b)


@pytest.mark.parametrize("record", POINTWISE, ids=lambda r: r.name)
def test_forms_and_layouts_of_a_pointwise_op_agree(record):
    op = callable_of(record)
    for dtype in accepted(record):
        positional, keywords = arguments(record, dtype, [(3, 4)])
        want = op(*positional, **keywords)
        assert want.shape == (3, 4)

        def mapped(f, positional=positional):
            return [f(x) if isinstance(x, fl.Tensor) else x for x in positional]

        # Transposed, spread out and offset inputs.
        close(op(*mapped(lambda x: x.t().contiguous().t()), **keywords), want, dtype)
        close(op(*mapped(lambda x: fl.stack([x, x], -1)[..., 1]), **keywords), want, dtype)
        # Large enough for several blocks and threads.
        many = op(*mapped(lambda x: x.repeat(20, 30)), **keywords)
        close(many, want.repeat(20, 30), dtype)
        # Broadcast against a row, zero-dim, empty.
        row = op(*mapped(lambda x: x[:1]), **keywords)
        close(row, want[:1], dtype)
        scalar = op(*mapped(lambda x: x[1, 2]), **keywords)
        close(scalar, want[1, 2], dtype)
        assert op(*mapped(lambda x: x[:0]), **keywords).shape == (0, 4)
        # meta
        meta = op(*mapped(lambda x: x.to("meta")), **keywords)
        assert meta.is_meta and meta.shape == want.shape and meta.dtype == want.dtype
        if record.out:
            out = fl.empty_like(want).t().contiguous().t()
            name = f"{record.schema.overload}_out" if record.schema.overload else "out"
            packet = getattr(fl.ops.aten, record.schema.name)
            got = getattr(packet, name if name in packet.overloads() else "out")(*positional, **keywords, out=out)
            assert got is out
            close(out, want, dtype)
        if record.inplace and isinstance(positional[0], fl.Tensor) and want.dtype == positional[0].dtype:
            target = positional[0].clone()
            method = getattr(fl.ops.aten, record.schema.name + "_")
            got = getattr(method, record.schema.overload or "default")(target, *positional[1:], **keywords)
            assert got is target
            close(target, want, dtype)


@pytest.mark.parametrize(
    "record",
    [r for r in POINTWISE if sum(a.type == "Tensor" or a.type == "Tensor|Scalar" for a in r.schema.args) > 1],
    ids=lambda r: r.name,
)
def test_operands_broadcast(record):
    if record.details["promote"] == "first":
        pytest.skip("the first operand has the result's shape")
    op = callable_of(record)
    dtype = accepted(record)[-1] if "f" not in record.details["dtypes"] else fl.float32
    positional, keywords = arguments(record, dtype, [(3, 1), (1, 4), (2, 1, 1)])
    got = op(*positional, **keywords)
    tensors = [x for x in positional if isinstance(x, fl.Tensor)]
    whole = fl.broadcast_tensors(*tensors)
    replaced = iter(whole)
    want = op(*[next(replaced).contiguous() if isinstance(x, fl.Tensor) else x for x in positional], **keywords)
    close(got, want, dtype)


@pytest.mark.parametrize("record", POINTWISE, ids=lambda r: r.name)
def test_dtypes_outside_the_record_are_refused(record):
    op = callable_of(record)
    outside = [kind for kind in "bifc" if kind not in record.details["dtypes"]]
    for kind in outside:
        if (record.details["promote"] == "float" and kind in "bi") or (
            record.details["promote"] == "int" and kind == "b"
        ):
            continue
        positional, keywords = arguments(record, DTYPES[kind][0], [(2, 2)])
        with pytest.raises(RuntimeError):  # NotImplementedError is one
            op(*positional, **keywords)
