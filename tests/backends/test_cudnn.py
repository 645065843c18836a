"""cuDNN's switches are those of its module, with or without a device."""

import flambeau as fl

cudnn = fl.backends.cudnn


def test_switches_are_set_and_restored():
    assert cudnn.allow_tf32 is True and cudnn.enabled is True
    with cudnn.flags(enabled=False, allow_tf32=False, benchmark=True):
        assert (cudnn.enabled, cudnn.allow_tf32, cudnn.benchmark) == (False, False, True)
    assert (cudnn.enabled, cudnn.allow_tf32, cudnn.benchmark) == (True, True, False)
    cudnn.allow_tf32 = False
    try:
        assert cudnn.allow_tf32 is False
    finally:
        cudnn.allow_tf32 = True


def test_there_is_none_without_a_device():
    assert cudnn.is_available() == (cudnn.version() is not None)
    assert not cudnn.is_acceptable(fl.ones(1))


def test_precision_of_products_is_one_setting_with_two_names():
    try:
        fl.backends.cuda.matmul.allow_tf32 = True
        assert fl.get_float32_matmul_precision() == "high"
        fl.set_float32_matmul_precision("medium")
        assert fl.backends.cuda.matmul.allow_tf32 and fl.get_float32_matmul_precision() == "medium"
    finally:
        fl.set_float32_matmul_precision("highest")
    assert not fl.backends.cuda.matmul.allow_tf32


def test_version_of_the_toolkit():
    assert (fl.version.cuda is not None) == fl.cuda.is_available()


def test_deterministic():
    assert cudnn.deterministic is False
    with cudnn.flags(enabled=True, deterministic=True):
        assert cudnn.deterministic is True
    assert cudnn.deterministic is False
