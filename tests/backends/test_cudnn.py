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
