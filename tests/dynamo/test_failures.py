"""Faults of compilers and of their surroundings: right results, one message, no work that is done again."""

import errno
import itertools
import stat
import warnings

import pytest

import flambeau as fl
from flambeau import _logging
from flambeau._commands import cache, env
from flambeau._dynamo import config
from flambeau._inductor import build, failures
from flambeau._inductor.compile_fx import GraphCompiler
from flambeau._inductor.failures import BackendError
from flambeau._inductor.lower import Lowering

pytestmark = pytest.mark.host

numbers = itertools.count(1)


@pytest.fixture(autouse=True)
def fresh(monkeypatch):
    monkeypatch.delenv("FLAMBEAU_STRICT", raising=False)
    failures.forget()
    yield
    failures.forget()
    build.compiler.cache_clear()
    build.identity.cache_clear()
    build.private_dir.cache_clear()


@pytest.fixture
def program():
    """A function whose kernel nobody has built yet."""
    factor = 1.0 + next(numbers) / 4096 + id(object()) % 997 / 1e6
    return lambda x: (x * factor).sin() + factor


@pytest.fixture
def attempts(monkeypatch):
    """How often compiling was tried."""
    calls = []
    compile_for = GraphCompiler._graph_for
    monkeypatch.setattr(GraphCompiler, "_graph_for", lambda self, inputs: calls.append(1) or compile_for(self, inputs))
    return calls


def fail_in_lowering(monkeypatch, tmp_path):
    def lower(self, call):
        raise ValueError("no such loop")

    monkeypatch.setattr(Lowering, "lower", lower)
    return "ValueError: no such loop"


def fail_in_the_compiler(monkeypatch, tmp_path):
    script = tmp_path / "g++"
    script.write_text("#!/bin/sh\necho broken >&2\nexit 1\n")
    script.chmod(script.stat().st_mode | stat.S_IXUSR)
    monkeypatch.setenv("CXX", str(script))
    build.compiler.cache_clear()
    build.identity.cache_clear()
    return "'broken' and exit status 1"


def fail_on_all_disks(monkeypatch, tmp_path):
    def build_all(*args):
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(build, "_build_all", build_all)
    return "No space left on device"


FAULTS = [fail_in_lowering, fail_in_the_compiler, fail_on_all_disks]


@pytest.mark.parametrize("inject", FAULTS)
def test_a_failure_is_reported_once_and_remembered(inject, program, attempts, monkeypatch, tmp_path):
    cause = inject(monkeypatch, tmp_path)
    compiled = fl.compile(program)
    with warnings.catch_warnings(record=True) as seen:
        warnings.simplefilter("always")
        for size in (3, 3, 3, 5, 7):
            fl.testing.assert_close(compiled(fl.arange(float(size))), program(fl.arange(float(size))))
    reports = [w for w in seen if "could not be compiled" in str(w.message)]
    assert len(reports) == 1 and cause in str(reports[0].message)
    assert len(attempts) == 1
    assert cause in str(failures.remembered()[0]) and "program" in failures.remembered()[0].where
    assert "Backend Failures:" in str(fl._dynamo.explain(program)(fl.ones(2)))


@pytest.mark.parametrize("inject", FAULTS)
@pytest.mark.parametrize("how", ["fullgraph", "strict"])
def test_a_failure_is_raised_where_that_is_asked_for(inject, how, program, monkeypatch, tmp_path):
    inject(monkeypatch, tmp_path)
    if how == "strict":
        monkeypatch.setenv("FLAMBEAU_STRICT", "1")
    compiled = fl.compile(program, fullgraph=how == "fullgraph")
    with pytest.raises(BackendError) as raised:
        compiled(fl.ones(3))
    assert raised.value.__cause__ is not None


@pytest.mark.parametrize("fullgraph", [False, True])
def test_a_backend_that_raises(fullgraph):
    calls = []

    def backend(graph, inputs):
        calls.append(graph)
        raise KeyError("not today")

    compiled = fl.compile(lambda x: x + 1, backend=backend, fullgraph=fullgraph)
    if fullgraph:
        with pytest.raises(BackendError, match="not today"):
            compiled(fl.ones(3))
        return
    with pytest.warns(RuntimeWarning, match="not today"):
        assert compiled(fl.ones(3)).tolist() == [2, 2, 2]
    assert compiled(fl.ones(3)).tolist() == [2, 2, 2]
    assert len(calls) == 1


def test_programs_that_raise_are_no_failures(attempts):
    compiled = fl.compile(lambda x, i: x[i])
    compiled(fl.ones(3), fl.tensor([1]))
    with pytest.raises(IndexError):
        compiled(fl.ones(3), fl.tensor([7]))
    assert not failures.remembered()


def test_a_cache_that_cannot_be_written_is_replaced_by_a_temporary_one(program, monkeypatch, tmp_path):
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("FLAMBEAU_CACHE_DIR", str(tmp_path / "file"))
    compiled = fl.compile(program)
    with pytest.warns(RuntimeWarning, match="expected a folder for kernels") as seen:
        for size in (3, 4, 5):
            fl.testing.assert_close(compiled(fl.arange(float(size))), program(fl.arange(float(size))))
        folder = build.cache_dir()
    assert len([w for w in seen if "folder for kernels" in str(w.message)]) == 1
    assert folder.stat().st_mode & 0o077 == 0 and any(folder.glob("*.so"))
    assert not failures.remembered()


def test_a_full_disk_is_avoided(program, monkeypatch, tmp_path):
    monkeypatch.setenv("FLAMBEAU_CACHE_DIR", str(tmp_path))
    build_all = build._build_all

    def full(wanted, folder, extra):
        if folder.is_relative_to(tmp_path):
            raise OSError(errno.ENOSPC, "No space left on device")
        return build_all(wanted, folder, extra)

    monkeypatch.setattr(build, "_build_all", full)
    with pytest.warns(RuntimeWarning, match="No space left"):
        fl.testing.assert_close(fl.compile(program)(fl.ones(3)), program(fl.ones(3)))
    assert not failures.remembered()


def test_a_compiler_that_is_not_there_is_answered(monkeypatch):
    monkeypatch.setenv("CXX", "no-such-compiler")
    build.compiler.cache_clear()
    with pytest.warns(RuntimeWarning, match="no-such-compiler"):
        assert build.compiler() is not None


def test_a_launcher_before_the_compiler_is_no_mistake(monkeypatch):
    monkeypatch.setenv("CXX", "ccache g++")
    build.compiler.cache_clear()
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert build.compiler().endswith("g++")


def test_a_misspelt_log_is_answered(monkeypatch):
    monkeypatch.setattr(_logging, "_on", None)
    monkeypatch.setenv("FLAMBEAU_LOGS", "recompile")
    with pytest.warns(UserWarning, match="did you mean 'recompiles'"):
        _logging.enabled("recompiles")


def test_a_misspelt_variable_is_answered(monkeypatch):
    monkeypatch.setenv("FLAMBEAU_CACHEDIR", "/tmp")
    config.check_environment.cache_clear()
    with pytest.warns(UserWarning, match="expected FLAMBEAU_CACHE_DIR"):
        fl.compile(lambda x: x)
    config.check_environment.cache_clear()


@pytest.mark.parametrize("command", [(env, []), (cache, ["show"])], ids=["env", "cache"])
def test_commands_work_without_a_cache(command, monkeypatch, tmp_path, capsys):
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("FLAMBEAU_CACHE_DIR", str(tmp_path / "file"))
    module, arguments = command
    with pytest.warns(RuntimeWarning, match="folder for kernels"):
        assert module.main(arguments) == 0
    assert str(build._temporary_dir()) in capsys.readouterr().out
