"""`python -m flambeau.utils.collect_env`: what a bug report should say about the machine."""

from __future__ import annotations

import os
import platform
import sys
from typing import Any, NamedTuple

import flambeau

__all__ = ["SystemEnv", "get_env_info", "get_pretty_env_info", "main", "pretty_str"]


class SystemEnv(NamedTuple):
    """Versions and properties, as text."""

    flambeau_version: str
    torch_version: str
    is_debug_build: str
    os: str
    libc_version: str
    gcc_version: str
    cmake_version: str
    python_version: str
    python_platform: str
    is_cuda_available: str
    cpu_info: str
    threads: str
    cpu_capability: str
    pip_packages: str


def _output(*command: str) -> str | None:
    """The first line that a program prints, if it is there."""
    import subprocess

    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=10)
    except (OSError, subprocess.SubprocessError):
        return None
    return done.stdout.splitlines()[0] if done.returncode == 0 and done.stdout else None


def _system() -> str:
    try:
        return platform.freedesktop_os_release().get("PRETTY_NAME", "Linux")
    except OSError:
        return platform.platform()


def _processor() -> str:
    try:
        with open("/proc/cpuinfo") as file:
            names = {line.partition(":")[2].strip() for line in file if line.startswith("model name")}
        return f"{', '.join(sorted(names)) or platform.processor()} ({os.cpu_count()} processors)"
    except OSError:
        return platform.processor() or "unknown"


def _packages() -> str:
    from importlib.metadata import distributions

    wanted = ("flambeau", "torch", "numpy", "onednn", "openblas", "triton", "onnx", "mypy", "safetensors")
    packages = {f"{d.metadata['Name']}=={d.version}" for d in distributions() if d.metadata["Name"]}
    return "\n".join(sorted(line for line in packages if any(word in line.lower() for word in wanted)))


def get_env_info() -> SystemEnv:
    capability = getattr(flambeau.backends.cpu, "get_cpu_capability", lambda: "unknown")()
    return SystemEnv(
        flambeau_version=str(getattr(flambeau.version, "flambeau", flambeau.version.__version__)),
        torch_version=str(flambeau.__version__),
        is_debug_build="False",
        os=f"{_system()} ({platform.machine()})",
        libc_version="-".join(platform.libc_ver()),
        gcc_version=_output("gcc", "--version") or "Could not collect",
        cmake_version=_output("cmake", "--version") or "Could not collect",
        python_version=f"{sys.version} ({sys.maxsize.bit_length() + 1}-bit runtime)".replace("\n", " "),
        python_platform=platform.platform(),
        is_cuda_available=str(flambeau.cuda.is_available()),
        cpu_info=_processor(),
        threads=str(flambeau.get_num_threads()),
        cpu_capability=str(capability),
        pip_packages=_packages(),
    )


def pretty_str(info: Any) -> str:
    titles = {
        "flambeau_version": "flambeau version", "torch_version": "PyTorch API version",
        "is_debug_build": "Is debug build", "os": "OS", "libc_version": "Libc version", "gcc_version": "GCC version",
        "cmake_version": "CMake version", "python_version": "Python version", "python_platform": "Python platform",
        "is_cuda_available": "Is CUDA available", "cpu_info": "CPU", "threads": "Threads",
        "cpu_capability": "CPU capability", "pip_packages": "Versions of relevant libraries",
    }  # fmt: skip
    lines = []
    for name, value in info._asdict().items():
        value = "\n" + "\n".join(f"[pip] {line}" for line in value.splitlines()) if name == "pip_packages" else value
        lines.append(f"{titles[name]}: {value}".replace(": \n", ":\n"))
    return "\n".join(lines)


def get_pretty_env_info() -> str:
    return pretty_str(get_env_info())


def main() -> None:
    print("Collecting environment information...")
    print(get_pretty_env_info())


if __name__ == "__main__":
    main()
