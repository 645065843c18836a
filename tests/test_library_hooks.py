"""Libraries that take tensors of flambeau without the alias, and private names of PyTorch that programs call."""

import subprocess
import sys

import pytest

import flambeau as fl


def test_safetensors_takes_tensors_of_flambeau(tmp_path):
    pytest.importorskip("safetensors")
    from safetensors.flambeau import load_file, save_file

    save_file({"a": fl.arange(3.0)}, tmp_path / "a.safetensors")
    assert load_file(tmp_path / "a.safetensors")["a"].tolist() == [0, 1, 2]


def test_safetensors_of_pytorch_takes_both(tmp_path):
    pytest.importorskip("safetensors")
    pytest.importorskip("torch")
    program = (
        "import sys, torch, flambeau as fl, safetensors.torch as st\n"
        "for x in (torch.ones(2), fl.ones(2)):\n"
        "    st.save_file({'a': x}, sys.argv[1])\n"
        "    print(st.load_file(sys.argv[1])['a'].tolist())\n"
    )
    command = [sys.executable, "-c", program, str(tmp_path / "a.safetensors")]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120)
    assert done.stdout.split("\n")[:2] == ["[1.0, 1.0]"] * 2, done.stderr


def test_jaxtyping_knows_dtypes_and_shapes():
    jaxtyping = pytest.importorskip("jaxtyping")
    assert isinstance(fl.ones(2, 3), jaxtyping.Float[fl.Tensor, "a b"])
    assert not isinstance(fl.ones(2, 3), jaxtyping.Float[fl.Tensor, "a"])
    assert not isinstance(fl.ones(2), jaxtyping.Int[fl.Tensor, "a"])


def test_ranges_are_operators_of_the_profiler():
    from flambeau.profiler import profile

    with profile() as recorded:
        handle = fl.ops.profiler._record_function_enter("a range")
        fl.ones(3).sum()
        fl.ops.profiler._record_function_exit(handle)
    assert "a range" in {event.key for event in recorded.key_averages()}


def test_private_names_that_programs_call():
    projection = fl.nn.MultiheadAttention(4, 2).out_proj
    assert type(projection) is fl.nn.modules.linear.NonDynamicallyQuantizableLinear
    assert fl.utils.checkpoint.get_device_states(fl.ones(1), {"a": [fl.ones(2)]}) == ([], [])
    assert "segments" in fl.cuda.memory._snapshot()
