"""Small names that libraries reach for: checks, control flow, weak dictionaries, types of results, `_C`."""

import gc
import subprocess
import sys
import warnings

import pytest

import flambeau as fl


def test_checks_raise_what_they_say():
    fl._check(True)
    with pytest.raises(RuntimeError, match="too few"):
        fl._check(False, lambda: "too few")
    with pytest.raises(IndexError):
        fl._check_index(False)
    with pytest.raises(ValueError):
        fl._check_tensor_all_with(ValueError, fl.tensor([True, False]))
    with pytest.raises(TypeError):
        fl._check(1)


def test_control_flow_runs_eagerly():
    x = fl.tensor(3.0, requires_grad=True)
    fl.cond(x > 2, lambda v: v * v, lambda v: -v, (x,)).backward()
    assert x.grad.item() == 6
    count, total = fl.while_loop(lambda i, s: i < 4, lambda i, s: (i + 1, s + i), (fl.tensor(0), fl.tensor(0)))
    assert (count.item(), total.item()) == (4, 6)


def test_weak_dictionaries_forget_dead_tensors():
    from flambeau.utils.weak import WeakIdKeyDictionary

    table, kept = WeakIdKeyDictionary(), fl.ones(2)
    table[kept] = "kept"
    table[fl.ones(2)] = "gone"
    gc.collect()
    assert list(table.values()) == ["kept"] and kept in table and fl.ones(2) not in table


def test_types_of_results():
    assert isinstance(fl.rand(4).topk(2), fl.return_types.topk)
    assert isinstance(fl.rand(4, 4).max(0), fl.return_types.max)
    assert not hasattr(fl.return_types, "nothing")


def test_native_names():
    fl._C._log_api_usage_once("some.library")
    assert isinstance(fl.Tensor, fl._C._TensorMeta)
    assert fl._C._get_tracing_state() is None
    assert not hasattr(fl._C, "no_such_name")
    with pytest.raises(NotImplementedError, match="native"):
        fl._C.PyTorchFileReader()
    assert str(fl._C.Graph()).startswith("graph(") and str(fl._C.ListType(fl._C.IntType.get())) == "int[]"


def test_fused_normalisation_does_the_same():
    from flambeau import nn

    conv, norm = nn.Conv2d(3, 4, 3).eval(), nn.BatchNorm2d(4).eval()
    norm.running_mean.normal_()
    norm.running_var.uniform_(0.5, 2)
    x = fl.randn(2, 3, 6, 6)
    fused = nn.utils.fuse_conv_bn_eval(conv, norm)
    assert fl.allclose(fused(x), norm(conv(x)), atol=1e-5)
    linear, norm = nn.Linear(5, 4).eval(), nn.BatchNorm1d(4).eval()
    norm.running_mean.normal_()
    y = fl.randn(3, 5)
    assert fl.allclose(nn.utils.fuse_linear_bn_eval(linear, norm)(y), norm(linear(y)), atol=1e-5)


def test_scripted_and_traced_modules_share_tensors():
    from flambeau import nn

    model = nn.Sequential(nn.Linear(3, 2), nn.Dropout(0.5)).eval()
    x = fl.randn(4, 3)
    traced = fl.jit.trace(model, x)
    assert fl.equal(traced(x), model(x)) and list(traced.state_dict()) == list(model.state_dict())
    scripted = fl.jit.script(model)
    assert isinstance(traced, fl.jit.ScriptModule) and isinstance(scripted, fl.jit.ScriptModule)
    assert scripted[0].weight is model[0].weight and fl.equal(scripted(x), model(x))


def test_operators_of_aten_without_a_record():
    aten = fl.ops.aten
    x = fl.ones(2, 3)
    assert aten.sym_size(x) == (2, 3) and aten.sym_size.int(x, 1) == 3 and aten.sym_numel.default(x) == 6
    assert aten.item(fl.tensor(2.5)) == 2.5 and aten.cross_entropy_loss(x, fl.tensor([0, 1])).dim() == 0
    packet = aten.gelu_backward
    assert packet.default is aten.gelu_backward.default and str(packet.default) == "aten.gelu_backward.default"
    with pytest.raises(NotImplementedError, match="gelu_backward"):
        packet.default(x, x)
    with pytest.raises(AttributeError):
        _ = aten.no_such_operator


def test_a_written_argument_may_be_marked_short():
    library = fl.library.Library("short_marks", "DEF")
    library.define("fill(Tensor x, Tensor! out) -> ()")
    library.impl("fill", lambda x, out: out.copy_(x), "CPU")
    out = fl.zeros(2)
    fl.ops.short_marks.fill(fl.ones(2), out)
    assert out.tolist() == [1, 1]
    assert fl.ops.short_marks.fill.default._schema.arguments[1].alias_info.is_write


def test_names_that_libraries_import():
    from flambeau._subclasses.fake_tensor import is_fake
    from flambeau._tensor_str import PRINT_OPTS, _tensor_str
    from flambeau.distributions.multivariate_normal import Distribution, constraints
    from flambeau.serialization import FILE_LIKE, MAP_LOCATION

    assert Distribution is fl.distributions.Distribution and constraints is fl.distributions.constraints
    assert FILE_LIKE is not None and MAP_LOCATION is not None
    assert PRINT_OPTS.precision == 4 and _tensor_str(fl.ones(2), 0) == "[1., 1.]"
    assert not is_fake(fl.ones(1)) and fl._C._nn._parse_to("cpu", fl.float64)[1] is fl.float64
    assert fl._C._nn.gelu is fl.nn.functional.gelu and not fl._C._has_xpu


def test_functions_have_a_signature():
    import inspect

    functions = fl.nn.functional
    assert (
        str(inspect.signature(functions.layer_norm))
        == "(input: flambeau.Tensor, normalized_shape, weight=None, bias=None, eps: float = 1e-05)"
    )
    assert inspect.signature(functions.cross_entropy).parameters["reduction"].default == "mean"
    assert str(inspect.signature(functions.max_pool2d)) == "(*args, **kwargs)"
    with pytest.raises(ValueError):
        inspect.signature(fl.Tensor.sum)


def test_modules_have_a_signature():
    import inspect

    assert str(inspect.signature(fl.nn.Linear(1, 1))) == "(*args, **kwargs)"
    assert next(iter(inspect.signature(fl.nn.Linear).parameters)) == "in_features"


def test_named_results_and_tables_print_as_pytorchs():
    shown = repr(fl.tensor([3.0, 1.0]).topk(1))
    assert shown == "torch.return_types.topk(\nvalues=tensor([3.]),\nindices=tensor([0]))"
    module = fl.nn.Linear(1, 1)
    assert repr(module._modules) == "{}"
    module.register_forward_hook(print)
    assert repr(module._forward_hooks).startswith("OrderedDict(")


def test_no_device_means_the_default_one():
    with fl.device("meta"):
        assert fl.empty(2, device=None).is_meta and fl.nn.Linear(2, 2).weight.is_meta
        assert not fl.empty(2, device="cpu").is_meta
    assert not fl.empty(2, device=None).is_meta


def test_names_that_modules_put_beside_the_native_ones():
    """Each is there at once, whatever has been imported before: a subclass of Tensor is the first to ask."""
    names = "DisableTorchFunctionSubclass DisableTorchFunction DispatchKeySet _DisableTorchDispatch _ExcludeDispatchKeyGuard"
    for name in names.split():
        program = f"import flambeau.as_torch, torch; assert torch._C.{name}.__name__"
        done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
        assert done.returncode == 0, done.stderr


def test_types_of_containers_are_looked_into():
    from typing import Any

    check = fl.jit.isinstance
    assert check([1, 2], list[int]) and not check([1, "a"], list[int]) and check([], list[int])
    assert check({"a": fl.ones(1)}, dict[str, fl.Tensor]) and not check({"a": 1}, dict[str, fl.Tensor])
    assert check((1, "a"), tuple[int, str]) and not check((1,), tuple[int, str]) and check((1, 2), tuple[int, ...])
    assert check(None, int | None) and not check("a", int | None) and check("a", (int, str)) and check(1, Any)


def test_compiled_backward_is_nothing_to_switch_on():
    x = fl.ones(2, requires_grad=True)
    with pytest.warns(UserWarning, match="calls none"), fl._dynamo.compiled_autograd._enable(fl.compile):
        (x * x).sum().backward()
    assert x.grad.tolist() == [2, 2]
    assert fl._C._LinAlgError is fl.linalg.LinAlgError


def test_settings_that_nothing_reads_cannot_be_changed():
    config = fl.compiler.config
    with pytest.raises(NotImplementedError, match="force_disable_caches"):
        config.force_disable_caches = True
    config.force_disable_caches = config.force_disable_caches
    with pytest.warns(UserWarning, match="order of contraction"):
        fl.backends.opt_einsum.enabled = False
    fl.backends.opt_einsum.enabled = True
    with pytest.raises(NotImplementedError), fl.compiler.config.patch(cache_key_tag="a"):
        pass
    with pytest.raises(AttributeError), fl.compiler.config.patch(no_such_setting=1):
        pass


def test_onednn_says_that_it_stays_on():
    mkldnn = fl.backends.mkldnn
    with pytest.warns(UserWarning, match="enabled"), mkldnn.flags(enabled=False):
        pass
    assert mkldnn.enabled


def test_onednn_reports_its_calls(capfd):
    if not fl.backends.mkldnn.is_available():
        pytest.skip("oneDNN is not installed")
    with fl.backends.mkldnn.verbose(fl.backends.mkldnn.VERBOSE_ON):
        fl.nn.functional.conv2d(fl.ones(1, 16, 32, 32), fl.ones(16, 16, 5, 5), stride=2)
    reported = capfd.readouterr().out
    fl.nn.functional.conv2d(fl.ones(1, 16, 32, 32), fl.ones(16, 16, 5, 5), stride=2)
    assert "convolution" in reported and not capfd.readouterr().out


QUESTIONS = """
import flambeau as fl
from flambeau.utils import _triton

available = fl.cuda.is_available()
assert fl.accelerator.is_available() == available == fl._C._has_cuda
assert fl.accelerator.device_count() == fl.cuda.device_count() == fl._C._cuda_getDeviceCount()
assert (fl.accelerator.current_accelerator() is not None) == available
assert not _triton.has_triton() or (available and _triton.has_triton_package())
assert fl.vmap(lambda x: fl.tensor(fl._C._functorch.is_batchedtensor(x)))(fl.ones(2)).all()
assert not fl._C._functorch.is_batchedtensor(fl.ones(2))
try:
    fl.accelerator.synchronize()
except RuntimeError as error:
    assert not available and "accelerator" in str(error)
else:
    assert available
"""


def test_questions_about_the_machine_are_answered_truthfully():  # in a process where nobody has registered a device
    done = subprocess.run([sys.executable, "-c", QUESTIONS], capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr


def test_marks_for_profilers_of_vendors_are_refused():
    for mark in (fl.autograd.profiler.emit_nvtx, fl.autograd.profiler.emit_itt):
        with mark(enabled=False):
            pass
        with pytest.raises(NotImplementedError, match=mark.__name__), mark():
            pass


def test_arguments_without_effect_are_refused():
    from flambeau.fx.passes.split_module import split_module
    from flambeau.utils import cpp_extension

    graph = fl.fx.symbolic_trace(fl.nn.ReLU())
    with pytest.raises(NotImplementedError, match="tuple_return"):
        split_module(graph, None, lambda node: 0, tuple_return=True)
    with pytest.raises(NotImplementedError, match="is_standalone"):
        cpp_extension.load("nothing", [], is_standalone=True)


def test_timers_tell_their_callback():
    blocks = []
    fl.utils.benchmark.Timer("pass").blocked_autorange(
        callback=lambda number, seconds: blocks.append(number), min_run_time=0.01
    )
    assert blocks and min(blocks) > 0


def test_modules_under_other_paths_are_the_same():
    from importlib import import_module

    from flambeau._compat import RENAMED

    for path, home in RENAMED.items():
        module = import_module(f"flambeau.{path}")
        assert module is import_module(f"flambeau.{home}".rstrip(".")), path
        assert module.__spec__.name == f"flambeau.{home}".rstrip("."), path


@pytest.mark.parametrize(
    ("path", "names"),
    [
        ("distributed._tensor", "DTensor Partial Placement Replicate Shard distribute_tensor"),
        ("distributed.tensor._utils", "compute_local_shape compute_local_shape_and_global_offset"),
        ("distributed.checkpoint.api", "CheckpointException"),
        ("onnx.utils", "export is_in_onnx_export register_custom_op_symbolic select_model_mode_for_export"),
        ("vision.models.segmentation.deeplabv3", "ASPP DeepLabHead DeepLabV3 deeplabv3_resnet50"),
        ("vision.models.detection.mask_rcnn", "MaskRCNN MaskRCNNHeads MaskRCNNPredictor maskrcnn_resnet50_fpn"),
        ("xla.amp.syncfree", "SGD Adam AdamW"),
        ("xla.experimental.xla_sharding", "Mesh mark_sharding"),
    ],
)
def test_modules_under_other_paths_have_the_names_of_those(path, names):
    from importlib import import_module

    module = import_module(f"flambeau.{path}")
    assert [name for name in names.split() if not hasattr(module, name)] == []


def test_context_managers_decorate():
    from flambeau.utils._contextlib import _DecoratorContextManager, _NoParamDecoratorContextManager, context_decorator

    class Deeper(_NoParamDecoratorContextManager):
        depth = 0

        def __enter__(self):
            Deeper.depth += 1

        def __exit__(self, *error):
            Deeper.depth -= 1

    @Deeper
    def by_class():
        return Deeper.depth

    @Deeper()
    def by_instance():
        yield Deeper.depth
        yield Deeper.depth

    assert by_class() == 1 and list(by_instance()) == [1, 1] and Deeper.depth == 0
    assert context_decorator(Deeper(), lambda: Deeper.depth)() == context_decorator(Deeper, lambda: Deeper.depth)() == 1
    assert issubclass(Deeper, _DecoratorContextManager)


def test_seeds_of_workers_are_those_of_pytorch():
    from flambeau.utils.data._utils.worker import _generate_state

    assert _generate_state(123, 4) == [3133042655, 609701789, 3156826794, 1639029168]
    assert _generate_state(2**40 + 5, 1) == [1498861247, 1071186679, 1894702639, 271086497]


def test_functions_of_the_module_functional():
    from flambeau import functional

    assert functional.einsum is fl.einsum and functional.stft is fl.stft
    with pytest.raises(AttributeError):
        functional.no_such_name  # noqa: B018


def test_rows_of_tensors():
    from flambeau._utils import _flatten_dense_tensors, _unflatten_dense_tensors

    tensors = [fl.rand(2, 3), fl.rand(4).t(), fl.rand(()), fl.rand(0, 2)]
    row = _flatten_dense_tensors(tensors)
    assert row.shape == (11,)
    for part, tensor in zip(_unflatten_dense_tensors(row * 2, tensors), tensors, strict=True):
        assert fl.equal(part, tensor * 2)


def test_functions_keep_what_programs_store():
    relu = fl.nn.functional.relu
    relu.note = "kept"
    assert vars(relu) == {"note": "kept"} and not hasattr(fl.nn.functional.gelu, "note")
    del relu.note
    assert not hasattr(relu, "note")


def test_types_of_scripts_are_names_of_torch():
    assert fl.TensorType is fl._C.TensorType and fl.IntType is fl._C.IntType


def test_parts_of_vmap_that_libraries_import():
    program = """
import torch
from torch._C._functorch import get_unwrapped, is_batchedtensor, maybe_get_bdim, maybe_get_level
from torch._functorch.vmap import _add_batch_dim, _maybe_remove_batch_dim

seen = []
def look(x, y):
    seen.append((is_batchedtensor(x), is_batchedtensor(y), maybe_get_bdim(x), maybe_get_bdim(y), get_unwrapped(x).shape))
    batched = _add_batch_dim(torch.ones(3, 2), -1, maybe_get_level(x))
    return x + batched.sum(), _maybe_remove_batch_dim("look", batched, maybe_get_level(x), 2, 0)

first, second = torch.vmap(look, (1, None), (0, None))(torch.zeros(4, 2), torch.ones(1))
assert seen == [(True, False, 1, -1, (4, 2))], seen
assert first.tolist() == [[3.0] * 4] * 2 and second.shape == (2, 3)
try:
    get_unwrapped(torch.ones(1))
except RuntimeError as error:
    assert "expected a batched tensor" in str(error)
"""
    done = subprocess.run([sys.executable, "-m", "flambeau", "run", "-c", program], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


def test_tensors_are_swapped_by_name_and_taken_in_groups():
    program = """
import torch
from torch._utils import _take_tensors
from torch.nn.utils._named_member_accessor import swap_tensor

layer, other = torch.nn.Linear(2, 2), torch.zeros(2, 2)
weight = layer.weight
assert swap_tensor(layer, "weight", other) is weight and layer.weight is other
assert swap_tensor(layer, "weight", weight) is other and list(layer.state_dict()) == ["weight", "bias"]
try:
    swap_tensor(layer, "wieght", other)
except AttributeError as error:
    assert "expected a tensor 'wieght' in Linear" in str(error)
rows = [torch.ones(2), torch.ones(2, dtype=torch.float64), torch.ones(2), torch.ones(4)]
assert [[t.numel() for t in group] for group in _take_tensors(rows, 16)] == [[2, 2], [4], [2]]
with torch.overrides.BaseTorchFunctionMode():
    assert torch._C._is_torch_function_mode_enabled()
assert not torch._C._is_torch_function_mode_enabled()
from functorch import FunctionalModule, make_functional
assert isinstance(make_functional(layer)[0], FunctionalModule)
"""
    done = subprocess.run([sys.executable, "-m", "flambeau", "run", "-c", program], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


def test_out_dtype_computes_in_the_wider_dtype():
    from flambeau._higher_order_ops.out_dtype import out_dtype

    a = fl.full((3, 40), 100, dtype=fl.int8)
    product = out_dtype(fl.ops.aten.mm.default, fl.int32, a, a.t())
    assert product.dtype is fl.int32 and (product == 400_000).all()
    with pytest.raises(TypeError, match=r"\[out_dtype\] expected a dtype"):
        out_dtype(fl.ops.aten.mm.default, "int32", a, a.t())


def test_a_warning_is_given_once():
    from flambeau._dynamo.utils import warn_once

    with pytest.warns(UserWarning, match="only once"):
        warn_once("only once")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        warn_once("only once")
