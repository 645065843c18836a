"""The end of a process whose daemon threads are still inside of native code that called Python."""

from __future__ import annotations

import subprocess
import sys

PROGRAM = """
import sys, threading, time
import flambeau as fl
from flambeau.utils._python_dispatch import TorchDispatchMode

class Late:
    # The interpreter, while it ends, lets other threads run.
    def __del__(self, sleep=time.sleep):
        sleep(0.1)

late, inside = Late(), threading.Event()

def stay(*args):
    inside.set()
    while True:
        time.sleep(0.005)

class Stays(fl.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        return x * 2

    @staticmethod
    def backward(ctx, grad):
        stay()

class Mode(TorchDispatchMode):
    def __torch_dispatch__(self, *args):
        stay()

@fl.library.custom_op("exit::stays", mutates_args=())
def custom(x: fl.Tensor) -> fl.Tensor:
    stay()

def backward():
    Stays.apply(fl.ones(2, requires_grad=True)).sum().backward()

def hook():
    y = fl.ones(2, requires_grad=True) * 2
    y.register_hook(stay)
    y.sum().backward()

def saved():
    with fl.autograd.graph.saved_tensors_hooks(stay, stay):
        fl.ones(2, requires_grad=True) ** 2

def dispatch():
    with Mode():
        fl.ones(2) + 1

def operator():
    custom(fl.ones(2))

def compiling():
    fl.compile(lambda x: x + 1, backend=stay)(fl.ones(2))

threading.Thread(target=globals()[sys.argv[1]], daemon=True).start()
assert inside.wait(60)
"""


def test_threads_inside_of_callbacks_do_not_hinder_the_exit() -> None:
    states = ["backward", "hook", "saved", "dispatch", "operator", "compiling"]
    started = {
        state: subprocess.Popen([sys.executable, "-c", PROGRAM, state], stderr=subprocess.PIPE, text=True)
        for state in states
    }
    ended = {state: (process.communicate(timeout=60)[1], process.returncode) for state, process in started.items()}
    assert ended == dict.fromkeys(states, ("", 0))
