"""Random functions compiled against eager: some seeds, and every one that ever differed."""

import compiler_fuzz as fuzz
import pytest


@pytest.mark.parametrize("seed", [*range(12), 34, 41, 95, 103, 110, 180])
def test_random_functions_agree(seed):
    assert fuzz.run(seed) is None
