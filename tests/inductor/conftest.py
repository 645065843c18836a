"""Kernels that tests build go to a folder of their own, shared by the run, and every stage is held to its rules."""

import pytest

from flambeau._inductor import config


@pytest.fixture(scope="session", autouse=True)
def kernel_cache(tmp_path_factory):
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("FLAMBEAU_CACHE_DIR", str(tmp_path_factory.mktemp("cache")))
        patch.setattr(config, "verify_stages", True)
        yield
