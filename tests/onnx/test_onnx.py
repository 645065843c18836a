"""Export to ONNX: models run in onnxruntime as in Python, at sizes other than the examples'."""

import importlib.util
import io
import pathlib
import warnings

import numpy
import pytest

import flambeau as fl
import flambeau.export
import flambeau.onnx
from flambeau import nn
from flambeau.nn import functional as F

onnx = pytest.importorskip("onnx")
runtime = pytest.importorskip("onnxruntime")

_SPEC = importlib.util.spec_from_file_location(
    "export_models", pathlib.Path(__file__).parent.parent / "parity" / "export_models.py"
)
shared = importlib.util.module_from_spec(_SPEC)
_SPEC.loader.exec_module(shared)
# onnxruntime has no arithmetic in bfloat16
NAMES = [name for name in shared.MODELS if name not in ("dtypes", "mixed_precision")]


@pytest.mark.parametrize(("name", "opset"), [(n, 20) for n in NAMES] + [(n, o) for n in ("attention", "conv_net", "many_operators", "lstm") for o in (17, 18, 23)])  # fmt: skip
def test_models_agree_with_onnxruntime(name, opset):
    fl.manual_seed(0)
    net, args, shapes, other = shared.MODELS[name][0](fl, nn, F)
    program = fl.onnx.export(net, args, dynamic_shapes=shapes, opset_version=opset)
    onnx.checker.check_model(program.model_proto, full_check=True)
    found = [x.numpy() for x in program(*shared.inputs_of(fl, other))]
    wanted = [x for x in shared.arrays(fl, net(*shared.inputs_of(fl, other))) if x is not None]
    if name == "pytrees":
        wanted = [x for x in wanted if isinstance(x, numpy.ndarray)]
    assert len(found) == len(wanted)
    for a, b in zip(found, wanted):
        numpy.testing.assert_allclose(a, b, rtol=1e-3, atol=1e-4)
        assert not isinstance(b, numpy.ndarray) or a.dtype == b.dtype


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.fc = nn.Linear(4, 3)

    def forward(self, x, scale=None):
        y = self.fc(x)
        return y if scale is None else y * scale


def test_names_and_dynamic_axes():
    made = fl.onnx.export(
        Net(), (fl.randn(2, 4),), input_names=["features"], output_names=["scores"],
        dynamic_axes={"features": {0: "rows"}, "scores": {0: "rows"}},
    )  # fmt: skip
    graph = made.model_proto.graph
    assert [v.name for v in graph.input] == ["features"] and [v.name for v in graph.output] == ["scores"]
    assert graph.input[0].type.tensor_type.shape.dim[0].dim_param == "rows"
    assert graph.output[0].type.tensor_type.shape.dim[0].dim_param == "rows"
    assert {t.name for t in graph.initializer} == {"fc.weight", "fc.bias"}
    assert made(fl.randn(5, 4))[0].shape == (5, 3)


def test_dims_give_their_names():
    batch = fl.export.Dim("batch", min=2, max=8)
    made = fl.onnx.export(Net(), (fl.randn(2, 4),), dynamic_shapes={"x": {0: batch}})
    assert made.model_proto.graph.input[0].type.tensor_type.shape.dim[0].dim_param == "batch"


def test_files(tmp_path):
    net = nn.Sequential(nn.Linear(64, 64), nn.ReLU()).eval()
    x = fl.randn(2, 64)
    made = fl.onnx.export(net, (x,), tmp_path / "plain.onnx", external_data=False)
    assert [p.name for p in tmp_path.iterdir()] == ["plain.onnx"]
    made.save(tmp_path / "split.onnx", external_data=True)
    assert (tmp_path / "split.onnx.data").stat().st_size >= 64 * 64 * 4
    for name in ("plain.onnx", "split.onnx"):
        session = runtime.InferenceSession(str(tmp_path / name), providers=["CPUExecutionProvider"])
        (found,) = session.run(None, {session.get_inputs()[0].name: x.numpy()})
        numpy.testing.assert_allclose(found, net(x).detach().numpy(), rtol=1e-4, atol=1e-5)
    held = io.BytesIO()
    made.save(held)
    assert onnx.load_from_string(held.getvalue()).graph.node[0].op_type == "Gemm"
    made.save(tmp_path / "bare.onnx", include_initializers=False)
    bare = onnx.load(tmp_path / "bare.onnx")
    assert not bare.graph.initializer and len(bare.graph.input) == 3


def test_the_older_style_writes_and_returns_nothing(tmp_path):
    net = nn.Sequential(nn.Linear(4, 4), nn.Dropout(0.5)).train()
    x = fl.randn(2, 4)
    path = tmp_path / "old.onnx"
    assert fl.onnx.export(net, x, str(path), dynamo=False, input_names=["in"], opset_version=17) is None
    assert net.training and net[1].training  # it was exported for evaluation
    session = runtime.InferenceSession(str(path), providers=["CPUExecutionProvider"])
    numpy.testing.assert_allclose(session.run(None, {"in": x.numpy()})[0], net.eval()(x).detach().numpy(), atol=1e-5)


def test_an_operator_without_translation_is_named():
    class Bad(nn.Module):
        def forward(self, x):
            return fl.linalg.svd(x)[1] + 1

    with pytest.raises(fl.onnx.errors.UnsupportedOperatorError, match="svd") as caught:
        fl.onnx.export(Bad(), (fl.randn(3, 3),))
    text = str(caught.value)
    assert "test_onnx.py" in text and "custom_translation_table" in text
    assert isinstance(caught.value, fl.onnx.OnnxExporterError)


def test_opsets_outside_the_range():
    with pytest.raises(ValueError, match="9 to 23"):
        fl.onnx.export(Net(), (fl.randn(2, 4),), opset_version=8)
    with pytest.warns(fl.onnx.errors.OnnxExporterWarning, match="at least 17"):
        assert fl.onnx.export(Net(), (fl.randn(2, 4),), opset_version=9)._model.opset == 18


class Older(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv, self.norm = nn.Conv2d(3, 4, 3), nn.LayerNorm(4)

    def forward(self, x):
        x = nn.functional.max_pool2d(self.conv(x), 2)
        x = nn.functional.hardswish(x).mean((2, 3)).clamp(-1, 2)
        x = self.norm(x).softmax(0).unsqueeze(1)
        return nn.functional.celu(x[:, :, 1:].sum(1)), nn.functional.pad(x, (1, 1)).squeeze(1)


@pytest.mark.parametrize("opset", [9, 11, 12, 13, 14, 16])
def test_older_opsets_of_the_older_style(opset, tmp_path):
    runtime = pytest.importorskip("onnxruntime")
    model, x = Older().eval(), fl.randn(2, 3, 6, 6)
    path = str(tmp_path / "older.onnx")
    fl.onnx.export(model, x, path, dynamo=False, opset_version=opset)
    found = runtime.InferenceSession(path, providers=["CPUExecutionProvider"]).run(None, {"x": x.numpy()})
    assert all(fl.allclose(fl.from_numpy(a), b, atol=1e-5) for a, b in zip(found, model(x)))


def test_operators_that_older_opsets_lack_are_refused(tmp_path):
    class Sums(nn.Module):
        def forward(self, x):
            return x.cumsum(0)

    with pytest.raises(fl.onnx.OnnxExporterError, match="expected opset_version of 11 or more for CumSum, got 9"):
        fl.onnx.export(Sums(), fl.ones(3), str(tmp_path / "sums.onnx"), dynamo=False, opset_version=9)


class Bag(nn.Module):
    def __init__(self, mode):
        super().__init__()
        self.bag = nn.EmbeddingBag(9, 3, mode=mode, padding_idx=2)

    def forward(self, x):
        return self.bag(x), fl.bucketize(self.bag.weight, fl.tensor([0.0, 1.0])), fl.roll(x, 1)


@pytest.mark.parametrize("mode", ["sum", "mean", "max"])
def test_bags_of_embeddings(mode):
    pytest.importorskip("onnxruntime")
    model, x = Bag(mode).eval(), fl.tensor([[1, 2], [3, 4], [2, 2]])
    found = fl.onnx.export(model, (x,))(x)
    assert all(fl.allclose(a, b) for a, b in zip(found, model(x)))


@pytest.fixture
def doubled():
    with fl.library._scoped_library("onnxtest", "DEF") as library:
        library.define("doubled(Tensor x) -> Tensor")
        library.impl("doubled", lambda x: x * 2, "CompositeExplicitAutograd")
        library.impl("doubled", lambda x: fl.empty_like(x), "Meta")
        yield fl.ops.onnxtest.doubled


class Doubling(nn.Module):
    def forward(self, x):
        return fl.ops.onnxtest.doubled(x) + 1


def test_translations_of_the_user(doubled):
    pytest.importorskip("onnxscript")
    from onnxscript import opset18 as op

    def translate(x):
        return op.Add(x, x)

    x = fl.randn(3)
    with pytest.raises(fl.onnx.errors.UnsupportedOperatorError, match=r"onnxtest\.doubled"):
        fl.onnx.export(Doubling(), (x,))
    made = fl.onnx.export(Doubling(), (x,), custom_translation_table={doubled.default: translate})
    assert fl.allclose(made(x)[0], x * 2 + 1)
    assert [n.op_type for n in made.model_proto.graph.node] == ["Add", "Add"]


def test_functions_of_onnxscript(doubled):
    onnxscript = pytest.importorskip("onnxscript")
    from onnxscript import opset18 as op

    custom = onnxscript.values.Opset("my.domain", 1)

    @onnxscript.script(custom)
    def Doubled(x):
        return op.Add(x, x)

    x = fl.randn(3)
    made = fl.onnx.export(Doubling(), (x,), custom_translation_table={doubled.default: Doubled})
    proto = made.model_proto
    assert [f.name for f in proto.functions] == ["Doubled"] and proto.graph.node[0].domain == "my.domain"
    assert fl.allclose(made(x)[0], x * 2 + 1)


def test_verification_and_report(tmp_path):
    x = fl.randn(2, 4)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        fl.onnx.export(Net().eval(), (x,), verify=True, report=True, artifacts_dir=tmp_path)
    (page,) = tmp_path.glob("*.md")
    assert "Gemm" in page.read_text()


def test_models_can_ask():
    class Asking(nn.Module):
        def forward(self, x):
            return x + 1 if fl.onnx.is_in_onnx_export() else x + 2

    made = fl.onnx.export(Asking(), (fl.zeros(2),))
    assert made(fl.zeros(2))[0].tolist() == [1.0, 1.0] and not fl.onnx.is_in_onnx_export()


def test_exported_programs_and_keywords():
    program = fl.export.export(Net(), (fl.randn(2, 4),), {"scale": fl.ones(3)})
    made = fl.onnx.export(program)
    x, scale = fl.randn(2, 4), fl.randn(3)
    assert made.input_names == ["x", "scale"]
    assert fl.allclose(made(x, scale=scale)[0], program.module()(x, scale=scale), atol=1e-5)
    again = fl.onnx.export(Net(), (x,), kwargs={"scale": scale})
    assert again.input_names == ["x", "scale"]


def test_weights_are_replaced():
    net = Net()
    made = fl.onnx.export(net, (fl.randn(2, 4),))
    other = {name: fl.zeros_like(value) for name, value in net.state_dict().items()}
    made.apply_weights(other)
    assert made(fl.randn(2, 4))[0].abs().sum() == 0


def test_registered_symbolics(doubled):
    fl.onnx.register_custom_op_symbolic("onnxtest::doubled", lambda g, x: g.op("Concat", x, x, axis_i=0), 17)
    try:
        x = fl.randn(3)
        made = fl.onnx.export(Doubling(), (x,))
        assert made.model_proto.graph.node[0].op_type == "Concat"
    finally:
        fl.onnx.unregister_custom_op_symbolic("onnxtest::doubled", 17)


def test_scripted_modules():
    net, x = nn.Sequential(nn.Linear(4, 4), nn.ReLU()).eval(), fl.randn(2, 4)
    assert fl.allclose(fl.onnx.export(fl.jit.script(net), (x,))(x)[0], net(x), atol=1e-5)
    assert fl.allclose(fl.onnx.export(fl.jit.trace(net, (x,)), (x,))(x)[0], net(x), atol=1e-5)


def test_rows_are_replaced_and_added_along_any_dimension():
    class Rows(fl.nn.Module):
        def forward(self, x, rows, index):
            y = x.clone()
            y[:, index] = rows
            z = x.clone()
            z[:, index, :, index] = 2.0
            return y, z, x.index_copy(1, index, rows), x.index_add(1, index, rows, alpha=2)

    x, rows, index = fl.randn(2, 4, 3, 5), fl.randn(2, 2, 3, 5), fl.tensor([3, 1])
    found = fl.onnx.export(Rows(), (x, rows, index))(x, rows, index)
    for one, other in zip(found, Rows()(x, rows, index)):
        assert fl.allclose(one, other, atol=1e-6)


def test_mixed_precision_is_casts():
    class Model(fl.nn.Module):
        def __init__(self):
            super().__init__()
            self.layer = fl.nn.Linear(3, 4)

        def forward(self, x):
            with fl.autocast("cpu", dtype=fl.bfloat16):
                y = self.layer(x)
            return y

    (result,) = fl.onnx.export(Model(), (fl.randn(2, 3),)).model_proto.graph.output
    assert result.type.tensor_type.elem_type == onnx.TensorProto.BFLOAT16


def test_results_are_compared_one_by_one():
    from flambeau.onnx.verification import VerificationInfo, verify_onnx_program

    class Two(fl.nn.Module):
        def forward(self, x):
            return x.softmax(-1), x.argmax(-1)

    program = fl.onnx.export(Two(), (fl.randn(4, 5),), dynamic_shapes=({0: "batch"},))
    for found in (verify_onnx_program(program), verify_onnx_program(program, (fl.randn(7, 5),))):
        assert [info.actual_dtype for info in found] == [fl.float32, fl.int64]
        assert all(info.max_abs_diff < 1e-6 for info in found)
    other = VerificationInfo.from_tensors("x", fl.tensor([1.0, float("inf")]), fl.tensor([1.5, float("inf")]))
    assert other.max_abs_diff == 0.5 and other.asdict()["abs_diff_hist"][0] == [1, 0, 0, 0, 0, 0, 1, 0, 0]


def test_a_registered_symbolic_is_in_the_domain_it_names():
    library = fl.library.Library("onnx_symbolics", "DEF")
    library.define("scaled(Tensor x, float a) -> Tensor")
    library.impl("scaled", lambda x, a: x * a, "CompositeExplicitAutograd")
    library.impl("scaled", lambda x, a: fl.empty_like(x), "Meta")

    class Scaled(fl.nn.Module):
        def forward(self, x):
            return fl.ops.onnx_symbolics.scaled(x, 2.0)

    def symbolic(g, x, a):
        half = g.op("Constant", value_t=fl.tensor(0.5))
        return g.op("custom.domain::Scaled", g.op("Mul", x, half), alpha_f=a)

    fl.onnx.register_custom_op_symbolic("onnx_symbolics::scaled", symbolic, 17)
    try:
        file = io.BytesIO()
        fl.onnx.export(Scaled(), (fl.ones(2),), file, dynamo=False, custom_opsets={"custom.domain": 2})
    finally:
        fl.onnx.unregister_custom_op_symbolic("onnx_symbolics::scaled", 17)
    model = onnx.load_from_string(file.getvalue())
    node = model.graph.node[-1]
    assert (node.domain, node.op_type) == ("custom.domain", "Scaled")
    assert [(a.name, a.f) for a in node.attribute] == [("alpha", 2.0)]
    assert {(o.domain, o.version) for o in model.opset_import} >= {("custom.domain", 2)}
