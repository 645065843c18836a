"""A record is found by the name of its operator, without importing the modules that hold others."""

import subprocess
import sys

from flambeau import _C
from flambeau.backends import records
from flambeau.ops.record import find


def test_every_record_is_found_where_the_table_says():
    for name, record in records._all().items():
        module, base = _C._record_place(name)
        found = find(name)
        assert found.name == name and (base or found is record)
        if base:
            assert find(base).where == module and name.startswith("_grad_")
        else:
            assert record.where == module
    assert find("no_such_operator") is None


def test_one_record_takes_one_module():
    code = (
        "import sys; from flambeau.ops.record import find; before = set(sys.modules); "
        "assert find('gelu').kind == 'pointwise' and find('_grad_gelu_0') is not None; "
        "print(sum(m.startswith('flambeau.ops.') for m in set(sys.modules) - before))"
    )
    made = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert int(made.stdout) < 10
