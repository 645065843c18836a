# ruff: noqa
"""try, except, else, finally, raise, assert."""

import flambeau as fl

from . import program, t


class Problem(Exception):
    def __init__(self, code, text="?"):
        super().__init__(code, text)
        self.code = code


def fail(kind=ValueError):
    raise kind("failed")


@program(t(3))
def caught(x):
    try:
        raise ValueError("bad")
    except ValueError as error:
        return x + len(error.args[0])


@program(t(3))
def caught_from_callee(x):
    try:
        fail(KeyError)
    except (KeyError, IndexError):
        x = x * 2
    return x


@program(t(3))
def not_matching(x):
    try:
        try:
            fail(TypeError)
        except ValueError:
            x = x + 1
    except TypeError:
        x = x + 2
    return x


@program(t(3))
def else_clause(x):
    try:
        y = x + 1
    except Exception:
        y = x
    else:
        y = y * 2
    return y


@program(t(3))
def finally_clause(x):
    log = []
    try:
        y = x + 1
        log.append("body")
    finally:
        log.append("finally")
    return y, log


@program(t(3))
def finally_with_return(x):
    log = []

    def f():
        try:
            return x + 1
        finally:
            log.append(1)

    return f(), log


@program(t(3))
def finally_after_exception(x):
    log = []
    try:
        try:
            fail()
        finally:
            log.append("inner")
    except ValueError:
        log.append("outer")
    return x, log


@program(t(3))
def key_error(x):
    d = {"a": 1}
    try:
        return d["b"]
    except KeyError as error:
        return x, error.args


@program(t(3))
def index_error(x):
    try:
        [1, 2][5]
    except IndexError as error:
        return x * 2, str(error)


@program(t(3))
def zero_division(x):
    try:
        1 / 0  # noqa: B018
    except ZeroDivisionError as error:
        return x, str(error)


@program(t(3))
def attribute_error(x):
    try:
        x.no_such_attribute  # noqa: B018
    except AttributeError:
        return x + 1


@program(t(3))
def type_error(x):
    try:
        len(5)
    except TypeError as error:
        return x, str(error)


@program(t(3))
def stop_iteration(x):
    it = iter([1])
    next(it)
    try:
        next(it)
    except StopIteration:
        return x + 1


@program(t(3))
def reraise(x):
    try:
        try:
            fail()
        except ValueError:
            raise
    except ValueError:
        return x * 3


@program(t(3))
def raise_from(x):
    try:
        try:
            fail()
        except ValueError as error:
            raise RuntimeError("second") from error
    except RuntimeError as error:
        return x, type(error.__cause__).__name__, error.args


@program(t(3))
def implicit_context(x):
    try:
        try:
            fail()
        except ValueError:
            raise RuntimeError("second")  # noqa: B904
    except RuntimeError as error:
        return x, type(error.__context__).__name__


@program(t(3))
def user_exception(x):
    try:
        raise Problem(7, "why")
    except Problem as error:
        return x * error.code, error.args


@program(t(3))
def exception_in_loop(x):
    out = []
    for i in range(4):
        try:
            if i == 2:
                raise ValueError(i)
            out.append(x * i)
        except ValueError:
            out.append(None)
            continue
    return out


@program(t(3))
def break_out_of_try(x):
    for i in range(4):
        try:
            if i == 2:
                break
            x = x + i
        finally:
            x = x * 2
    return x


@program(t(3))
def assertion(x):
    assert x.shape[0] == 3, "three"
    assert isinstance(x, fl.Tensor)
    return x + 1


@program(t(3))
def assertion_caught(x):
    try:
        assert x.shape[0] == 4, f"got {x.shape[0]}"
    except AssertionError as error:
        return x, str(error)


@program(t(3))
def exception_in_comprehension(x):
    try:
        return [1 // n for n in (1, 0)]
    except ZeroDivisionError:
        return x


@program(t(3))
def exception_in_generator(x):
    def g():
        yield 1
        raise ValueError("inside")

    out = []
    try:
        for v in g():
            out.append(v)
    except ValueError:
        out.append("caught")
    return x, out


@program(t(3))
def generator_throw(x):
    def g():
        try:
            yield 1
        except KeyError:
            yield 2

    it = g()
    next(it)
    value = it.throw(KeyError("k"))
    return x * value, list(it)


@program(t(3))
def exception_attributes(x):
    e = ValueError(1, 2)
    return x, e.args, isinstance(e, Exception), repr(e)


@program(t(3))
def exception_returned(x):
    return x, ValueError("kept")


@program(t(3), breaks=True)
def raises_value_error(x):
    y = x + 1
    raise ValueError("out", y.shape[0])


@program(t(3), breaks=True)
def raises_from_callee(x):
    y = x + 1
    fail(RuntimeError)
    return y


@program(t(3), list, breaks=True)
def raises_after_side_effect(x, log):
    log.append(1)
    if x.shape[0] == 3:
        raise Problem(3)
    return x


@program(t(3), breaks=True)
def assertion_fails(x):
    assert x.shape[0] == 5, "five"
    return x


@program(t(3), t(4), breaks=True)
def operator_error(x, y):
    return x + y


@program(t(3), t(4), breaks=True)
def operator_error_caught(x, y):
    try:
        return x + y
    except RuntimeError:
        return x - 1


@program(t(3), breaks=True)
def unbound_local(x):
    if x.shape[0] == 4:
        z = x
    return z + 1


@program(t(3), breaks=True)
def wrong_arguments(x):
    def f(a, b):
        return a + b

    return f(x)


@program(t(3), breaks=True)
def undefined_name(x):
    return x + not_defined_anywhere  # noqa: F821


@program(t(3), breaks=True)
def break_inside_try(x):
    try:
        y = x * 2
        n = y.sum().item()
        z = y + n
    except ValueError:
        z = x
    finally:
        w = x + 1
    return z, w


@program(t(3), breaks=True)
def break_raises_inside_try(x):
    try:
        y = x * 2
        n = y.numpy().no_such
        z = y + n
    except AttributeError:
        z = x - 1
    return z + 1


@program(t(3), breaks=True)
def break_in_handler(x):
    try:
        y = x * 2
        fail()
    except ValueError:
        y = x * x.sum().item()
    return y + 1


@program(t(3), breaks=True)
def break_in_finally(x):
    log = []
    try:
        y = x * 2
    finally:
        log.append(x.sum().item())
    return y, log


@program(t(3), breaks=True)
def break_in_try_in_loop(x):
    out = []
    for i in range(3):
        try:
            v = (x * i).sum().item()
            if i == 1:
                raise ValueError(i)
            out.append(v)
        except ValueError as error:
            out.append(error.args[0])
    return out


@program(t(3), breaks=True)
def value_error_from_int(x):
    try:
        n = int("zz" if x.sum().item() > 0 else "1")
    except ValueError:
        n = 4
    return x * n
