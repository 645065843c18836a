"""Names that flambeau lacks: they import, say why when they are used, and give way to real modules."""

import importlib
import inspect
from typing import Optional

import pytest

import flambeau
from flambeau._compat import absent, absent_names


def test_every_word_of_the_table_makes_something():
    for module, (_, words) in absent_names.TABLE.items():
        for token in words.split():
            name, value = absent._make(f"torch.{module}", token, "because")
            assert name.isidentifier(), token
            assert value is not None or "=" in token


def test_functions_fail_when_called_with_their_name_and_a_reason():
    from flambeau.distributed._symmetric_memory import rendezvous

    with pytest.raises(NotImplementedError, match=r"torch\.distributed\._symmetric_memory\.rendezvous yet: "):
        rendezvous("worker")


def test_classes_serve_in_annotations_and_isinstance():
    from flambeau.numa.binding import AffinityMode
    from flambeau.utils._device import DeviceContext

    def take(module: DeviceContext | None, other: Optional[DeviceContext] = None) -> None: ...  # noqa: UP045

    assert inspect.signature(take)
    assert not isinstance(flambeau.ones(1), DeviceContext)
    assert AffinityMode.NODE != AffinityMode.SOCKET

    class Own(DeviceContext):
        pass

    for cls in (DeviceContext, Own):
        with pytest.raises(NotImplementedError, match="DeviceContext"):
            cls(1)


def test_unknown_names_of_absent_modules_are_not_there():
    import flambeau.distributed.fsdp as fsdp

    assert not hasattr(fsdp, "no_such_name")
    with pytest.raises(ImportError):
        from flambeau.distributed.fsdp import no_such_name  # noqa: F401
    with pytest.raises(ModuleNotFoundError):
        import flambeau.distributed.no_such_module  # noqa: F401


def test_a_misspelt_name_is_answered_with_the_right_one():
    with pytest.raises(AttributeError, match=r"'flambeau' has no attribute 'sofmax'. Did you mean: 'softmax'\?$"):
        flambeau.sofmax  # noqa: B018
    with pytest.raises(AttributeError, match=r"'flambeau' has no attribute 'quite_another_name'$"):
        flambeau.quite_another_name  # noqa: B018


def test_real_modules_come_first():
    assert absent.reason(flambeau.linalg.inv) is None
    assert flambeau.compiler.__file__


def test_what_is_lacking_can_be_told_from_what_works():
    assert "pruning" in absent.reason(flambeau.ao.pruning.BaseSparsifier)
    assert absent.reason(flambeau.float4_e2m1fn_x2)
    assert absent.reason(flambeau.float32) is None


def test_nothing_that_exists_is_called_lacking():
    """An entry that a real module has overtaken should go from the table."""
    for name, (_, words) in absent_names.TABLE.items():
        module = importlib.import_module(f"flambeau.{name}" if name else "flambeau")
        if getattr(module, "__file__", None) is None or name.startswith("distributions"):  # which are on their way
            continue
        for token in words.split():
            own = module.__dict__.get(absent._name(token))
            made = "=" in token or token.startswith(("@", "!"))
            assert own is None or made or absent.reason(own), f"{name}.{absent._name(token)} is written"
