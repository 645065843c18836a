"""Constants under their names, stores that are left out, numbers as results, and programs that are exported again."""

from __future__ import annotations

import io

import pytest

import flambeau as fl
from flambeau import fx, nn
from flambeau._dynamo.breaks import GraphBreakError
from flambeau._higher_order_ops import scan
from flambeau.export import Dim, draft_export, export
from flambeau.export.dynamic_shapes import refine_dynamic_shapes_from_suggested_fixes
from flambeau.ops.symbolic import DataDependentOutput as GuardOnDataDependentSymNode


class Inner(nn.Module):
    def __init__(self):
        super().__init__()
        self.constant = fl.rand(2, requires_grad=True)

    def forward(self, x):
        return x + self.constant


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.inner = Inner()
        self.same = self.inner.constant
        self.register_parameter("odd:name", nn.Parameter(fl.ones(2)))

    def forward(self, x):
        return self.inner(x) * self.same + getattr(self, "odd:name")


def test_constants_are_called_after_attributes():
    model, x = Model(), fl.rand(2)
    program = export(model, (x,))
    assert sorted(program.constants) == ["inner.constant", "same"]
    names = [node.name for node in program.graph.nodes if node.op == "placeholder"]
    assert names == ["p_odd_name", "c_same", "x"] or names == ["p_odd_name", "c_inner_constant", "x"]
    fl.testing.assert_close(program.module()(x), model(x))
    assert not any(value.requires_grad for value in program.constants.values())


def test_stores_of_plain_values_are_left_out_with_a_warning():
    class Counts(nn.Module):
        def __init__(self):
            super().__init__()
            self.calls, self.last, self.table = 1, None, {"k": 2}

        def forward(self, x):
            self.calls = self.calls + 4
            self.table["k"] = self.table["k"] + 5
            self.last = x.shape
            return x + self.calls + self.table["k"]

    model = Counts()
    with pytest.warns(UserWarning, match="'calls' of Counts is not part of the program"):
        program = export(model, (fl.rand(2),))
    assert model.calls == 1 and model.last is None and model.table == {"k": 2}
    assert fl.equal(program.module()(fl.zeros(2)), fl.full((2,), 12.0))


def test_programs_know_that_they_are_exported_and_return_numbers():
    class Reads(nn.Module):
        def forward(self, x):
            return x.sum().item() if fl.compiler.is_exporting() else None

    assert export(Reads(), (fl.ones(3),)).module()(fl.full((3,), 2.0)) == 6.0
    assert not fl.compiler.is_exporting()


def test_arguments_by_keyword_only_and_any_number():
    class Sums(nn.Module):
        def forward(self, x, *more, scale, **rest):
            return (x + sum(more)) * scale + rest["shift"]

    args, kwargs = (fl.ones(2), fl.ones(2), fl.ones(2)), {"scale": fl.tensor(2.0), "shift": fl.tensor(1.0)}
    assert fl.equal(export(Sums(), args, kwargs).module()(*args, **kwargs), fl.full((2,), 7.0))


@pytest.mark.parametrize("strict", [False, True])
def test_graph_modules_are_captured(strict):
    model, x = nn.Sequential(nn.Linear(2, 2), nn.ReLU()), fl.rand(3, 2)
    traced = fx.symbolic_trace(model)
    assert fl.equal(export(traced, (x,), strict=strict).module()(x), model(x))
    again = export(export(model, (x,)).module(), (x,), strict=strict)
    fl.testing.assert_close(again.module()(x), model(x))
    fl.testing.assert_close(fl.compile(fx.symbolic_trace(model), fullgraph=True)(x), model(x))


class Replaced(fl.nn.Module):
    def __init__(self):
        super().__init__()
        self.register_buffer("count", fl.zeros(1))
        self.register_buffer("total", fl.zeros(2), persistent=False)

    def forward(self, input):
        self.total += input
        before = self.count
        self.count = self.count + 1
        return input + self.count + self.total, before


@pytest.mark.parametrize("decomposed", [False, True])
def test_buffers_that_are_replaced_are_written(decomposed):
    program = export(Replaced(), (fl.ones(2),))
    assert program.graph_signature.user_inputs == ("input",)
    program = program.run_decompositions() if decomposed else program
    assert set(program.graph_signature.buffers_to_mutate.values()) == ({"count", "total"} if decomposed else set())
    expected, module = Replaced(), program.module()
    for _ in range(3):
        assert all(fl.equal(a, b) for a, b in zip(module(fl.ones(2)), expected(fl.ones(2))))


class Chosen(fl.nn.Module):
    def forward(self, x):
        return fl.cond(x.shape[0] > 4, lambda x: x.sin(), lambda x: x.cos(), (x,))


def test_cond_on_a_size_keeps_both_branches():
    program = export(Chosen(), (fl.ones(3),), dynamic_shapes=({0: Dim("n")},))
    for n in (3, 4, 5, 9):
        assert fl.equal(program.module()(fl.ones(n)), Chosen()(fl.ones(n)))


class Halves(fl.nn.Module):
    def forward(self, x):
        return x.reshape(-1, 2)


def test_sizes_that_follow_others_have_ranges_and_are_checked():
    n = Dim("n", min=2, max=10)
    program = export(Halves(), (fl.ones(6),), dynamic_shapes=({0: 2 * n},))
    assert sorted(str(r) for r in program.range_constraints.values()) == ["VR[2, 10]", "VR[4, 20]"]
    with pytest.raises(AssertionError, match="Guard failed"):
        program.module()(fl.ones(7))
    with pytest.raises(ValueError, match="Trying to flatten"):
        program.module()()


class Running(fl.nn.Module):
    def forward(self, start, x):
        return scan(lambda held, row: (held + row, held * row[0]), start, x, dim=1, reverse=True)


def test_scan_is_one_node():
    inputs = (fl.zeros(2), fl.arange(6.0).reshape(2, 3))
    program = export(Running(), inputs)
    names = [str(node.target) for node in program.graph.nodes]
    assert "scan" in names and not any("stack" in name for name in names)
    file = io.BytesIO()
    fl.export.save(program, file)
    file.seek(0)
    for run in (program.module(), fl.export.load(file).module(), program.run_decompositions().module()):
        assert all(fl.equal(a, b) for a, b in zip(run(*inputs), Running()(*inputs)))


class Pooled(fl.nn.Module):
    def forward(self, x):
        return fl.nn.functional.max_pool2d(x, 2, return_indices=True)[1]


def test_definitions_take_defaults():
    x = fl.randn(1, 1, 4, 4)
    assert fl.equal(export(Pooled(), (x,)).module()(x), Pooled()(x))


class Sized(fl.nn.Module):
    def forward(self, x, y):
        return x + y


def test_suggested_fixes_can_be_applied():
    shapes = {"x": {0: Dim("a")}, "y": {0: Dim("b")}}
    inputs = (fl.ones(4), fl.ones(4))
    with pytest.raises(fl._dynamo.exc.UserError) as violation:
        export(Sized(), inputs, dynamic_shapes=shapes)
    refined = refine_dynamic_shapes_from_suggested_fixes(str(violation.value), shapes)
    assert export(Sized(), inputs, dynamic_shapes=refined).module()(fl.ones(6), fl.ones(6)).shape == (6,)


class Branching(fl.nn.Module):
    def forward(self, x):
        return x * 2 if x.item() > 2 else x


def test_branches_on_data_say_so():
    with pytest.raises(GuardOnDataDependentSymNode, match="depends on data"):
        export(Branching(), (fl.tensor(3),))


class Switched(fl.nn.Module):
    def forward(self, x):
        with fl.no_grad():
            return fl.nn.functional.gelu(x) * 2


def test_decompositions_leave_no_switches_of_gradients():
    from flambeau._compat.torch._decomp import core_aten_decompositions, get_decompositions

    program = export(Switched(), (fl.ones(2),))
    assert program.graph.find_nodes(op="call_function", target=fl._C._set_grad_enabled)
    functional = program.run_decompositions(core_aten_decompositions())
    assert not functional.graph.find_nodes(op="call_function", target=fl._C._set_grad_enabled)
    assert fl.equal(functional.module()(fl.ones(2)), Switched()(fl.ones(2)))
    assert get_decompositions([fl.ops.aten.linear]).keys() <= core_aten_decompositions().keys()


def test_draft_export_goes_the_way_of_the_example():
    program = draft_export(Branching(), (fl.tensor(3),))
    assert [str(failure.failure_type) for failure in program._report.failures] == ["DATA_DEPENDENT_ERROR"]
    assert int(program.module()(fl.tensor(4))) == 8
    with pytest.raises(RuntimeError, match="Runtime assertion failed"):
        program.module()(fl.tensor(1))
    with pytest.raises(GuardOnDataDependentSymNode):
        export(Branching(), (fl.tensor(3),))


class Condition(fl.nn.Module):
    def forward(self, x):
        if x.sum() > 0:
            return x + 1
        return x - 1


def test_draft_export_branches_on_tensors_as_the_example_does():
    program = draft_export(Condition(), (fl.ones(2),))
    assert [str(failure.failure_type) for failure in program._report.failures] == ["DATA_DEPENDENT_ERROR"]
    assert program.module()(fl.ones(2)).tolist() == [2, 2]
    with pytest.raises(RuntimeError, match="Runtime assertion failed"):
        program.module()(-fl.ones(2))


@fl.library.custom_op("drafts::double", mutates_args=())
def double(x: fl.Tensor) -> fl.Tensor:
    return x * 2


class Doubled(fl.nn.Module):
    def forward(self, x):
        return double(x) + 1


def test_draft_export_takes_results_of_the_example_for_missing_fakes():
    program = draft_export(Doubled(), (fl.ones(2),))
    assert [str(failure.failure_type) for failure in program._report.failures] == ["MISSING_FAKE_KERNEL"]
    assert program.module()(fl.full((2,), 4.0)).tolist() == [9, 9]
    with pytest.raises(GraphBreakError, match="tensors without data"):
        export(Doubled(), (fl.ones(2),))
