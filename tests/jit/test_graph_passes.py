"""Passes that programs call on graphs: folding, small rewrites, common subexpressions, dtypes and sizes."""

import flambeau as torch
from flambeau.jit import _native_names as passes
from flambeau.jit._passes._property_propagation import apply_input_props_using_example


def taken_apart(x: int, y: int):
    items = [x, y, x + 0]
    return len(items) * 2 + items[2], {"a": x}["a"]


def folded(x):
    if 2 * 3 == 6:
        return x * (1 + 2)
    return x


def repeated(x, y: int):
    return (x * 2).relu() + (x * 2).relu(), y * y + y * y


def kinds(graph):
    return [node.kind() for node in graph.walk()]


def test_lists_and_dicts_that_are_taken_apart_vanish():
    graph = torch.jit.script(taken_apart).graph.copy()
    assert passes._jit_pass_peephole(graph)
    assert "aten::__getitem__" not in kinds(graph) and "aten::len" not in kinds(graph)


def test_constants_are_folded_and_branches_taken():
    graph = torch.jit.script(folded).graph.copy()
    passes._jit_pass_constant_propagation(graph)
    assert "prim::If" not in kinds(graph) and kinds(graph).count("aten::mul") == 1


def test_what_is_computed_twice_is_computed_once():
    graph = torch.jit.script(repeated).graph.copy()
    assert passes._jit_pass_cse(graph)
    assert kinds(graph).count("aten::relu") == 1 and kinds(graph).count("aten::mul") == 2
    function = passes._create_function_from_graph("once", graph)
    x = torch.randn(3)
    assert torch.equal(function(x, 3)[0], repeated(x, 3)[0])


def promoted(x, y, n: int):
    return (x + y).relu() * n if n > 2 else x + y


def test_dtypes_and_sizes_follow_from_examples():
    graph = torch.jit.script(promoted).graph.copy()
    apply_input_props_using_example(graph, [torch.ones(2, 1, dtype=torch.int32), torch.ones(3), 3])
    passes._jit_pass_propagate_shapes_on_graph(graph)
    result = next(graph.outputs()).type()
    assert result.dtype() == torch.float32 and result.dim() == 2
    passes._jit_pass_erase_shape_information(graph)
    assert next(graph.outputs()).type().dtype() is None


def views(x, y):
    part = x[0]
    return part + 1, y


def test_aliases_are_told_from_new_tensors():
    graph = torch.jit.script(views).graph
    aliases = graph.alias_db()
    part, result = graph.findNode("aten::select").output(), graph.findNode("aten::add").output()
    x = next(graph.inputs())
    assert aliases.may_contain_alias(part, x) and not aliases.may_contain_alias(result, x)


def writes(x, y):
    return (x + 1, y.mul_(2))


def test_results_alias_what_they_were_written_to():
    graph = torch.jit.script(writes).graph
    aliases = graph.alias_db()
    total, product = graph.findNode("aten::add").output(), graph.findNode("aten::mul_").output()
    y = list(graph.inputs())[1]
    assert aliases.may_contain_alias(product, y) and not aliases.may_contain_alias(total, y)
    assert aliases.has_writers(product) and not aliases.has_writers(total)
