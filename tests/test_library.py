"""Operators of users: definitions, kernels in Python by dispatch key, fake kernels, fallbacks, custom_op."""

import gc

import pytest

import flambeau as torch
from flambeau import library
from flambeau.library import Library, custom_op, infer_schema


@pytest.fixture
def lib():
    with library._scoped_library("testlib", "DEF") as made:
        yield made


def test_define_and_call(lib):
    lib.define("scale(Tensor x, float factor=2.0) -> Tensor")
    lib.impl("scale", lambda x, factor=2.0: x * factor, "CPU")
    x = torch.ones(2)
    assert torch.ops.testlib.scale(x).tolist() == [2, 2]
    assert torch.ops.testlib.scale.default(x, factor=3.0).tolist() == [3, 3]
    with pytest.raises(NotImplementedError):
        torch.ops.testlib.scale(torch.ones(2, device="meta"))


SCHEMAS = {
    "plain(Tensor x) -> Tensor": ["Tensor"],
    "lists(Tensor[] xs, int[] n, float[]? f=None) -> Tensor[]": ["List[Tensor]", "List[int]", "Optional[List[float]]"],
    "symbolic(Tensor x, SymInt n=3, SymInt[2] k=[1, 2]) -> (Tensor, Tensor)": ["Tensor", "SymInt", "List[SymInt]"],
    "written(Tensor(a!) x, *, Tensor? y=None, str mode='sum', bool flag=True) -> ()": [
        "Tensor",
        "Optional[Tensor]",
        "str",
        "bool",
    ],
    "aliased(Tensor(a) x, ScalarType? dtype=None, Device? device=None) -> Tensor(a)": None,
    "named(Tensor x) -> (Tensor values, Tensor indices)": ["Tensor"],
}


@pytest.mark.parametrize("schema", SCHEMAS)
def test_schemas_are_read(lib, schema):
    name = lib.define(schema)
    read = getattr(torch.ops.testlib, name).default._schema
    if SCHEMAS[schema] is not None:
        assert [str(a.type) for a in read.arguments] == SCHEMAS[schema]
    assert read.is_mutable == ("!" in schema)


def test_named_and_listed_results(lib):
    lib.define("pair(Tensor x) -> (Tensor first, Tensor second)")
    lib.impl("pair", lambda x: (x + 1, x + 2), "CPU")
    result = torch.ops.testlib.pair(torch.zeros(1))
    assert result.first.item() == 1 and result[1].item() == 2
    lib.define("parts(Tensor x) -> Tensor[]")
    lib.impl("parts", lambda x: [x, x + 1], "CPU")
    assert [t.item() for t in torch.ops.testlib.parts(torch.zeros(1))] == [0, 1]


def test_bad_definitions_are_refused(lib):
    lib.define("once(Tensor x) -> Tensor")
    with pytest.raises(RuntimeError):
        lib.define("once(Tensor x) -> Tensor")
    with pytest.raises(RuntimeError):
        lib.define("unknown(Thing x) -> Tensor")
    with pytest.raises(RuntimeError):
        lib.define("no arrow")
    with pytest.raises(RuntimeError):
        lib.impl("undefined", lambda x: x, "CPU")
    with pytest.raises(RuntimeError):
        lib.impl("once", lambda x: x, "NoSuchKey")
    with pytest.raises(TypeError):
        lib.impl("once", 3, "CPU")
    with pytest.raises(ValueError):
        Library("aten", "DEF")
    with pytest.raises(ValueError):
        Library("x", "OTHER")


def test_overloads(lib):
    lib.define("join.int(Tensor x, int y) -> Tensor")
    lib.define("join.str(Tensor x, str y) -> Tensor")
    lib.impl("join.int", lambda x, y: x + y, "CPU")
    lib.impl("join.str", lambda x, y: x + len(y), "CPU")
    x = torch.zeros(1)
    assert torch.ops.testlib.join(x, 5).item() == 5 and torch.ops.testlib.join(x, "abc").item() == 3
    assert sorted(torch.ops.testlib.join.overloads()) == ["int", "str"]


def test_kernels_by_key(lib):
    lib.define("where_am_i(Tensor x) -> Tensor")
    lib.impl("where_am_i", lambda x: torch.zeros(1), "CPU")
    lib.impl("where_am_i", lambda x: torch.empty(9, device="meta"), "Meta")
    assert torch.ops.testlib.where_am_i(torch.ones(1)).shape == (1,)
    assert torch.ops.testlib.where_am_i(torch.ones(1, device="meta")).shape == (9,)


def test_composite_kernels_serve_every_device(lib):
    lib.define("twice(Tensor x) -> Tensor")
    lib.impl("twice", lambda x: x + x, "CompositeImplicitAutograd")
    lib.define("thrice(Tensor x) -> Tensor")
    lib.impl("thrice", lambda x: x * 3, "CompositeExplicitAutograd")
    for device in ("cpu", "meta"):
        x = torch.ones(2, device=device)
        assert torch.ops.testlib.twice(x).shape == torch.ops.testlib.thrice(x).shape == (2,)
    from flambeau.utils._python_dispatch import TorchDispatchMode

    class Log(TorchDispatchMode):
        def __torch_dispatch__(self, func, types, args=(), kwargs=None):
            seen.append(str(func))
            return func(*args, **(kwargs or {}))

    seen = []
    with Log():
        torch.ops.testlib.twice(x)
        torch.ops.testlib.thrice(x)
    assert seen == ["aten.add.Tensor", "testlib.thrice.default"]


def test_a_built_in_operator_can_be_overridden_and_restored():
    x = torch.ones(2)
    with library._scoped_library("aten", "IMPL") as own:
        own.impl("add.Tensor", lambda a, b, alpha=1: torch.mul(a, 7), "CPU")
        assert (x + x).tolist() == [7, 7]
    assert (x + x).tolist() == [2, 2]


def test_a_library_takes_its_operators_with_it():
    own = Library("shortlived", "DEF")
    own.define("op(Tensor x) -> Tensor")
    own.impl("op", lambda x: x + 1, "CPU")
    assert torch.ops.shortlived.op(torch.zeros(1)).item() == 1
    del own
    gc.collect()
    own = Library("shortlived", "DEF")
    own.define("op(Tensor x, int n) -> Tensor")
    own.impl("op", lambda x, n: x + n, "CPU")
    assert torch.ops.shortlived.op(torch.zeros(1), 5).item() == 5


def test_functions_of_the_module():
    library.define("testfree::inc", "(Tensor x, *, int by=1) -> Tensor")

    @library.impl("testfree::inc", "cpu")
    def inc(x, *, by=1):
        return x + by

    @library.register_fake("testfree::inc")
    def fake(x, *, by=1):
        return torch.empty_like(x)

    assert torch.ops.testfree.inc(torch.zeros(1), by=4).item() == 4
    assert torch.ops.testfree.inc(torch.zeros(3, device="meta")).shape == (3,)
    with pytest.raises(ValueError):
        library.define("unqualified", "(Tensor x) -> Tensor")


def test_errors_in_kernels_come_through(lib):
    lib.define("fails(Tensor x) -> Tensor")
    lib.impl("fails", lambda x: 1 // 0, "CPU")
    with pytest.raises(ZeroDivisionError):
        torch.ops.testlib.fails(torch.ones(1))
    lib.define("short(Tensor x) -> (Tensor, Tensor)")
    lib.impl("short", lambda x: x, "CPU")
    with pytest.raises(RuntimeError, match="2 results"):
        torch.ops.testlib.short(torch.ones(1))


# ---------------------------------------------------------------------------------------------- infer_schema


def test_infer_schema():
    def op(
        x: torch.Tensor,
        ys: list[torch.Tensor],
        n: int = 1,
        f: float | None = None,
        *,
        name: str = "a",
        dims: list[int] = (0,),
    ) -> tuple[torch.Tensor, torch.Tensor]: ...

    text = infer_schema(op, mutates_args=())
    assert text == (
        '(Tensor x, Tensor[] ys, SymInt n=1, float? f=None, *, str name="a", SymInt[] dims=(0,)) -> (Tensor, Tensor)'
    )

    def writes(x: torch.Tensor, y: torch.Tensor) -> None: ...

    assert infer_schema(writes, mutates_args={"y"}) == "(Tensor x, Tensor(a0!) y) -> ()"
    assert infer_schema(writes, mutates_args="unknown") == "(Tensor(a0!) x, Tensor(a1!) y) -> ()"


def test_infer_schema_refuses_what_it_cannot_say():
    def bare(x) -> torch.Tensor: ...

    def odd(x: dict) -> torch.Tensor: ...

    def star(*x: torch.Tensor) -> torch.Tensor: ...

    for function in (bare, odd, star):
        with pytest.raises(ValueError):
            infer_schema(function, mutates_args=())


# ---------------------------------------------------------------------------------------------- custom_op


def test_custom_op():
    @custom_op("testcustom::axpy", mutates_args=())
    def axpy(x: torch.Tensor, y: torch.Tensor, a: float = 1.0) -> torch.Tensor:
        return x * a + y

    @axpy.register_fake
    def _(x, y, a=1.0):
        return torch.empty_like(x)

    x = torch.ones(2)
    assert axpy(x, x, 2.0).tolist() == [3, 3] == torch.ops.testcustom.axpy(x, x, a=2.0).tolist()
    assert axpy(x.to("meta"), x.to("meta")).is_meta
    assert axpy.__name__ == "axpy"


def test_custom_op_by_device_and_without_fake():
    @custom_op("testcustom::bydevice", mutates_args=(), device_types="cpu")
    def bydevice(x: torch.Tensor) -> torch.Tensor:
        return x + 1

    assert bydevice(torch.zeros(1)).item() == 1
    with pytest.raises(NotImplementedError, match="register_fake"):
        bydevice(torch.zeros(1, device="meta"))

    @bydevice.register_kernel("meta")
    def _(x):
        return torch.empty(5, device="meta")

    assert bydevice(torch.zeros(1, device="meta")).shape == (5,)


def test_custom_op_that_writes():
    @custom_op("testcustom::fill_one", mutates_args={"x"})
    def fill_one(x: torch.Tensor) -> None:
        x.fill_(1)

    x = torch.zeros(2)
    assert fill_one(x) is None and x.tolist() == [1, 1]
    assert torch.ops.testcustom.fill_one.default._schema.is_mutable


def test_custom_op_may_not_return_its_argument():
    @custom_op("testcustom::same", mutates_args=())
    def same(x: torch.Tensor) -> torch.Tensor:
        return x

    with pytest.raises(RuntimeError, match="one of the inputs"):
        same(torch.ones(1))


@pytest.mark.skipif(not hasattr(torch, "no_grad"), reason="needs autograd")
def test_custom_op_with_derivative():
    @custom_op("testcustom::cube", mutates_args=())
    def cube(x: torch.Tensor, scale: float = 1.0) -> torch.Tensor:
        return scale * x * x * x

    def setup(ctx, inputs, output):
        ctx.save_for_backward(inputs[0])
        ctx.scale = inputs[1]

    def backward(ctx, grad):
        (x,) = ctx.saved_tensors
        return grad * 3 * x * x * ctx.scale, None

    cube.register_autograd(backward, setup_context=setup)
    x = torch.tensor([2.0], requires_grad=True)
    cube(x).backward()
    assert x.grad.item() == 12


def test_written_arguments_get_a_new_version():
    @torch.library.custom_op("versions::fill", mutates_args={"x"})
    def fill(x: torch.Tensor, value: float) -> None:
        x.numpy()[:] = value

    x, y = torch.zeros(2), torch.ones(2, requires_grad=True)
    product = x * y
    fill(x, 3.0)
    assert x.tolist() == [3.0, 3.0] and x._version == 1
    with pytest.raises(RuntimeError, match="modified"):
        product.sum().backward()


def test_operators_refuse_arguments_with_runtime_errors():
    @torch.library.custom_op("misfits::same", mutates_args=())
    def same(x: torch.Tensor, k: float = 1.0) -> torch.Tensor:
        if k < 0:
            raise TypeError("mine")
        return x * k

    for call in (
        lambda: same(3),
        lambda: same(),
        lambda: same(torch.ones(1), "a"),
        lambda: torch.ops.misfits.same(torch.ones(1), nothing=1),
        lambda: torch.ops.aten.mm(torch.ones(1)),
        lambda: torch.ops.aten.mm.default(torch.ones(1)),
    ):
        with pytest.raises(RuntimeError, match="expected"):
            call()
    with pytest.raises(TypeError, match="mine"):
        same(torch.ones(1), -1.0)
    with pytest.raises(TypeError):
        torch.mm(torch.ones(1))
