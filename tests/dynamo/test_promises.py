"""What programs promise of sizes and values: names of what varies, marks, and facts that need no guard."""

import pytest

import flambeau as fl
from flambeau._dynamo import exc

SCALE = 1


class Counting:
    """A backend that counts the graphs it is given."""

    def __init__(self):
        self.graphs = 0

    def __call__(self, graph_module, example_inputs):
        self.graphs += 1
        return graph_module


@pytest.fixture
def varying():
    from flambeau.compiler import config

    with config.patch(dynamic_sources="L['x'], L\\['other.*'\\]"):
        yield


@pytest.mark.parametrize("dynamic", [None, False])
def test_named_places_are_symbols_from_the_first_call_on(varying, dynamic):
    counting = Counting()

    @fl.compile(backend=counting, dynamic=dynamic)
    def product(x, other1):
        return fl.ones(2, 1) * other1 * x

    for n in (2, 3, 4):
        assert product(n, fl.ones(n)).tolist() == [[float(n)] * n] * 2
    assert counting.graphs == 1


def specialized(x):
    return x.sin() if x.shape[0] == 3 else x.cos()


def squeezed(x):
    if x.shape[0] > 3:
        return x.cos()
    return x * 2 if x.shape[0] < 3 else x.sin()


@pytest.mark.parametrize("function", [specialized, squeezed])
def test_a_size_that_was_promised_to_vary_does(function):
    x = fl.randn(3, 3)
    fl._dynamo.mark_dynamic(x, 0)
    with pytest.raises(exc.ConstraintViolationError, match="specialized it to be a constant"):
        fl.compile(function, backend="eager")(x)
    weak = fl.randn(3, 3)
    fl._dynamo.maybe_mark_dynamic(weak, 0)
    assert fl.equal(fl.compile(function, backend="eager")(weak), weak.sin())


def test_a_size_outside_of_its_promised_range_is_refused():
    x = fl.randn(8, 3)
    fl._dynamo.mark_dynamic(x, 0, min=2, max=5)
    with pytest.raises(exc.ConstraintViolationError, match="from 2 to 5"):
        fl.compile(lambda x: x + 1, backend="eager")(x)


def test_facts_that_the_program_leaves_out_are_not_guarded():
    global SCALE
    options = {"guard_filter_fn": fl.compiler.skip_guard_on_globals_unsafe}
    compiled = fl.compile(lambda x: x * SCALE, backend="eager", options=options)
    SCALE = 2
    assert compiled(fl.ones(1)).tolist() == [2.0]
    SCALE = 3
    assert compiled(fl.ones(1)).tolist() == [2.0]


def test_modules_may_be_left_out():
    module = fl.nn.LayerNorm(8)
    module.scale = 1
    options = {"guard_filter_fn": fl.compiler.skip_guard_on_all_nn_modules_unsafe}
    compiled = fl.compile(module, options=options)
    compiled(fl.rand(4, 8))
    module.eps = 1e-2
    with fl._dynamo.config.patch(error_on_recompile=True):
        compiled(fl.rand(4, 8))


def test_filters_see_names_kinds_and_values():
    seen = []

    def keep(entries):
        seen.extend((entry.name, entry.guard_type, entry.value) for entry in entries)
        return [not (entry.name == "y" and entry.value is None) for entry in entries]

    compiled = fl.compile(lambda x, y: x if y is None else x + y, backend="eager", options={"guard_filter_fn": keep})
    compiled(fl.ones(1), None)
    assert ("y", "CONSTANT_MATCH", None) in seen
    assert compiled(fl.ones(1), fl.ones(1)).tolist() == [1.0]


def test_a_filter_answers_for_every_fact():
    compiled = fl.compile(
        lambda x: x + 1, backend="eager", options={"guard_filter_fn": lambda entries: []}, fullgraph=True
    )
    with pytest.raises(Exception, match="guard_filter_fn to return"):
        compiled(fl.ones(1))


def test_numbers_may_be_guarded_by_value_always():
    counting = Counting()
    compiled = fl.compile(lambda x, s: x * s, backend=counting)
    with fl._dynamo.config.patch(specialize_float=True):
        for s in (0.5, 1.5, 2.5):
            compiled(fl.ones(1), s)
    assert counting.graphs == 3


def test_exported_operators_keep_sizes_that_vary():
    options = {"aten_graph": True, "tracing_mode": "symbolic"}
    module, _ = fl._dynamo.export(lambda x: fl.ones(5 * x.shape[0]), **options)(fl.randn(4))
    assert module(fl.randn(6)).shape == (30,)
