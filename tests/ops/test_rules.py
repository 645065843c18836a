"""Rules of operators: they are found in the operator's family, and are there where they are due."""

import subprocess
import sys

import pytest

import flambeau as fl
import flambeau.backends.reference
from flambeau.backends import registered
from flambeau.ops import rules
from flambeau.ops.record import find, load

COMPOSITE = "CompositeImplicitAutograd"


def lacks_definition(record):
    """Whether a device without a kernel for the operator cannot run it."""
    op = fl._C._operator_object(record.name)
    served = op.has_kernel_for_dispatch_key(COMPOSITE) or fl._C._has_kernel(op, registered["ref"].key)
    return not served and record.definition is None


def test_native_operators_have_a_definition_or_a_reason():
    rules.definition.all()
    lacking = {r.name for r in load().values() if r.kind == "native" and lacks_definition(r)}
    assert lacking <= set(rules.definition.absent)
    assert not [name for name in rules.definition.absent if find(name).definition is not None]


def test_primitives_are_the_kernels_of_the_reference_device():
    rules.definition.all()
    primitives = {name for name, why in rules.definition.absent.items() if why == "a primitive"}
    assert primitives <= registered["ref"].claims


def test_records_have_their_rules_as_attributes():
    record = find("mm")
    assert record.shape is rules.shape.find("mm") and record.batching is rules.batching.find("mm")
    assert record.samples is not None and record.definition is rules.definition.find("mm")
    assert find("sort").samples is not None and find("sort").definition is None
    assert rules.shape.find("no_such_operator") is None


def test_rules_of_other_families_are_refused():
    with pytest.raises(ValueError, match=r"expected a rule of an operator of .*, got mm of flambeau.ops.matmul"):
        rules.shape("mm")
    with pytest.raises(ValueError, match=r"got no_such_operator of None"):
        rules.batching("no_such_operator")


def test_a_second_rule_is_refused():
    module = {"__package__": "flambeau.ops.matmul", "rules": rules}
    rules.shape.find("mm")
    with pytest.raises(ValueError, match="expected one rule in shapes for mm, got a second"):
        exec("rules.shape('mm')(lambda self: self.sizes)", module)
    assert rules.shape.find("mm").__module__ == "flambeau.ops.matmul.shapes"


def test_one_rule_takes_the_modules_of_one_family():
    code = (
        "import sys; from flambeau.ops import rules; before = set(sys.modules); "
        "assert rules.definition.find('max_pool2d') is not None; "
        "print(*sorted(m for m in set(sys.modules) - before if m.startswith('flambeau.ops.')))"
    )
    loaded = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.split()
    assert "flambeau.ops.pooling.definitions" in loaded and "flambeau.ops.pooling.records" not in loaded
    assert not [name for name in loaded if name.endswith((".shapes", ".samples", ".batching"))]
