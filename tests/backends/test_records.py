"""A record is found by the name of its operator, without importing the modules that hold others."""

import subprocess
import sys

from flambeau import _C
from flambeau.backends import records


def test_every_record_is_found_where_the_table_says():
    for name, record in records._all().items():
        module, base = _C._record_place(name)
        found = records.named(name)
        assert found.name == name and (base or found is record)
        if base:
            assert records.named(base).where == module and name.startswith("_grad_")
        else:
            assert record.where == module
    assert records.named("no_such_operator") is None


def test_one_record_takes_one_module():
    code = (
        "import sys; from flambeau.backends import records; before = set(sys.modules); "
        "assert records.named('gelu').kind == 'pointwise' and records.named('_grad_gelu_0') is not None; "
        "print(sum(m.startswith('flambeau.ops.') for m in set(sys.modules) - before))"
    )
    made = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert int(made.stdout) < 10
