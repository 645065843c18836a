"""Stances, settings, logs and the names under which programs reach for them."""

import logging

import pytest

import flambeau as fl
from flambeau import _logging, nn
from flambeau._dynamo.testing import CompileCounter


@pytest.fixture
def logs(capsys):
    def read(*names):
        return capsys.readouterr().err

    yield read
    _logging.set_logs()


def test_stances():
    counter = CompileCounter()
    fast = fl.compile(lambda x: x * x.dtype.itemsize, backend=counter)
    a, b = fl.ones(2), fl.ones(2, dtype=fl.float64)
    fast(a)
    with fl.compiler.set_stance("eager_on_recompile"):
        assert fast(b).tolist() == [8, 8] and fast(a).tolist() == [4, 4]
    assert counter.frame_count == 1
    with fl.compiler.set_stance("fail_on_recompile"):
        fast(a)
        with pytest.raises(RuntimeError, match="fail_on_recompile"):
            fast(b)
    with fl.compiler.set_stance("force_eager"):
        fast(b)
    assert counter.frame_count == 1
    fast(b)
    assert counter.frame_count == 2

    @fl.compiler.set_stance("force_eager")
    def inside():
        return fast(fl.ones(2, dtype=fl.int64))

    inside()
    assert counter.frame_count == 2
    with pytest.raises(RuntimeError, match="invalid"):
        fl.compiler.set_stance("sideways")


def test_eager_then_compile():
    counter = CompileCounter()
    fast = fl.compile(lambda x: x + 1, backend=counter)
    with fl.compiler.set_stance("eager_then_compile"):
        fast(fl.ones(2))
        assert counter.frame_count == 0
        fast(fl.ones(2))
        assert counter.frame_count == 1


def test_run_uses_what_is_there():
    counter = CompileCounter()
    fast = fl._dynamo.optimize(counter)(lambda x: x + 1)
    prior = fl._dynamo.run(fast)
    assert prior(fl.ones(1)).item() == 2 and counter.frame_count == 0
    fast(fl.ones(1))
    prior(fl.ones(1))
    assert counter.frame_count == 1


def test_optimize_assert_refuses_breaks():
    @fl._dynamo.optimize_assert("eager")
    def f(x):
        fl._dynamo.graph_break()
        return x

    with pytest.raises(fl._dynamo.exc.Unsupported):
        f(fl.ones(1))


def test_compiled_modules_are_optimized_modules():
    net = nn.Linear(2, 2)
    fast = fl.compile(net, backend="eager")
    assert isinstance(fast, fl._dynamo.OptimizedModule) and isinstance(fast, fl._dynamo.eval_frame.OptimizedModule)
    assert not isinstance(net, fl._dynamo.OptimizedModule) and isinstance(fast, nn.Linear)


def test_settings_for_a_block():
    config = fl._dynamo.config
    with config.patch(recompile_limit=3), fl._dynamo.patch_dynamo_config("max_depth", 7):
        assert config.recompile_limit == 3 and config.max_depth == 7
    assert config.recompile_limit == 8 and config.max_depth == 120

    @config.patch({"recompile_limit": 5})
    def inside():
        return config.recompile_limit

    assert inside() == 5 and config.recompile_limit == 8


def test_default_backend():
    counter = CompileCounter()
    fl.compiler.set_default_backend(counter)
    try:
        fl.compile(lambda x: x + 1)(fl.ones(1))
        assert counter.frame_count == 1 and fl.compiler.get_default_backend() is counter
    finally:
        fl.compiler.set_default_backend("inductor")


def test_wrap_numpy():
    np = pytest.importorskip("numpy")
    f = fl.compiler.wrap_numpy(lambda a, b: {"sum": np.add(a, b), "n": 1})
    made = f(fl.ones(2), fl.ones(2))
    assert made["sum"].tolist() == [2, 2] and isinstance(made["sum"], fl.Tensor) and made["n"] == 1


def test_logs_of_capture(logs):
    _logging.set_logs(dynamo=True)

    def f(x, n):
        y = x * n
        fl._dynamo.graph_break()
        return y + 1

    fast = fl.compile(f, backend="eager")
    fast(fl.ones(2), "a" and 2)
    fast(fl.ones(2), True)
    text = logs()
    for part in ("[graph_breaks]", "[guards]", "[graph_code]", "[bytecode]", "[recompiles]", "argument 1"):
        assert part in text, part


@pytest.mark.parametrize("level", [logging.WARNING, logging.ERROR, False, None])
def test_logs_are_silenced_by_their_level(logs, level):
    _logging.set_logs(dynamo=level, inductor=level)
    fl.compile(lambda x: x + 1)(fl.ones(2))
    assert logs() == ""


def test_logs_of_the_compiler(logs):
    _logging.set_logs("inductor")
    fl.compile(lambda x: (x * 2 + 1).exp(), backend="inductor")(fl.ones(8))
    text = logs()
    assert "[steps]" in text and "[output_code]" in text and "exp" in text


def test_selection_of_logs(monkeypatch, capsys):
    for given, wanted in [
        ("", set()),
        ("+dynamo", set(_logging.GROUPS["dynamo"])),
        ("dynamo,-guards", set(_logging.GROUPS["dynamo"]) - {"guards"}),
        ("graph, output_code", {"graph_code", "output_code"}),
        ("all", set(_logging.DESCRIPTIONS)),
    ]:
        monkeypatch.setattr(_logging, "_on", None)
        monkeypatch.setenv("TORCH_LOGS", given)
        monkeypatch.delenv("FLAMBEAU_LOGS", raising=False)
        assert {name for name in _logging.DESCRIPTIONS if _logging.enabled(name)} == wanted
    monkeypatch.setattr(_logging, "_on", None)
    monkeypatch.setenv("TORCH_LOGS", "help")
    _logging.enabled("guards")
    assert "output_code" in capsys.readouterr().err


@pytest.mark.parametrize("backend", ["eager", "aot_eager"])
def test_numbers_read_from_tensors_stay_in_the_graph(backend):
    def scaled(x):
        total = x.sum().item()
        factor = float(x[0]) * 2 + 1
        return x * total, fl.full((2,), factor), [total, factor]

    def chosen(x):
        total = x.sum().item()
        return x * total if total > 0 else -x

    x = fl.tensor([1.0, 2.0])
    with fl._dynamo.config.patch(capture_scalar_outputs=True):
        counter = CompileCounter()
        fl.compile(scaled, backend=counter, fullgraph=True)(x)
        assert counter.frame_count == 1
        for function in (scaled, chosen):
            fast = fl.compile(function, backend=backend)
            for given in (x, x * 2, -x):
                assert str(fast(given)) == str(function(given))
    fl._dynamo.reset()


def test_breaks_are_errors_where_a_block_says_so():
    from flambeau._dynamo import error_on_graph_break, exc, graph_break

    def strict(x):
        with error_on_graph_break(True):
            y = x * 2
            graph_break()
        return y

    def lenient(x):
        with error_on_graph_break(False):
            y = x * 2
            graph_break()
        return y

    x = fl.ones(2)
    with pytest.raises(exc.Unsupported):
        fl.compile(strict, backend="eager")(x)
    assert fl.compile(lenient, backend="eager", fullgraph=True)(x).tolist() == [2, 2]
    assert strict(x).tolist() == [2, 2]


def test_settings_of_the_compiler():
    assert fl.compiler.config.get_config_copy()["force_disable_caches"] is False


@pytest.mark.parametrize("backend", ["eager", "aot_eager"])
def test_inference_mode_inside_of_a_function(backend):
    @fl.inference_mode()
    def frozen(x):
        return x * 2

    def function(x):
        with fl.inference_mode():
            inside = x * 3, fl.is_inference_mode_enabled(), fl.is_grad_enabled()
        return frozen(x), *inside, x * 4, fl.is_inference_mode_enabled()

    fast = fl.compile(function, backend=backend, fullgraph=True)
    x = fl.ones(2, requires_grad=True)
    for _ in range(2):
        doubled, tripled, mode, grad, made, after = fast(x)
        assert (mode, grad, after) == (True, False, False)
        assert not doubled.requires_grad and not tripled.requires_grad and made.requires_grad
        assert doubled.tolist() == [2, 2] and tripled.tolist() == [3, 3] and made.tolist() == [4, 4]
    made.sum().backward()
    assert x.grad.tolist() == [4, 4]


def test_a_break_in_inference_mode():
    def function(x):
        with fl.inference_mode():
            y = x * 2
            fl._dynamo.graph_break()
            inside = fl.is_inference_mode_enabled()
        return y, x * 3, inside

    fast = fl.compile(function, backend="eager")
    for _ in range(2):
        y, made, inside = fast(fl.ones(2, requires_grad=True))
        assert inside and not y.requires_grad and made.requires_grad
        assert not fl.is_inference_mode_enabled() and fl.is_grad_enabled()
    with fl.inference_mode():
        assert fast(fl.ones(2))[2] and fl.is_inference_mode_enabled()


def test_autocast_is_captured_from_the_first_call():
    device = fl.get_default_device().type

    def function(x):
        with fl.autocast(device, dtype=fl.bfloat16):
            return x @ x

    assert fl.compile(function, backend="eager", fullgraph=True)(fl.ones(2, 2)).dtype == fl.bfloat16


def test_operators_may_be_allowed_in_graphs():
    assert fl._dynamo.allow_in_graph(fl.sin) is fl.sin and fl._dynamo.allow_in_graph([fl.cos]) == [fl.cos]
    with pytest.raises(AssertionError):
        fl._dynamo.allow_in_graph(3)
