"""The package's metadata, and the wheel with the CUDA library that an installed flambeau finds beside itself."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

import flambeau as fl

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "tools"))
import cuda_wheel
import package_metadata

COMPILER = shutil.which("cc") or shutil.which("gcc")
OPENED = '#include <stdio.h>\nvoid flcuda_open(void) { puts("opened"); fflush(stdout); }\n'


def test_addresses_come_from_the_repository(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FLAMBEAU_HOME_URL", "https://example.org/team/flambeau/")
    urls = package_metadata.dynamic_metadata("urls")
    assert urls["Source"] == "https://example.org/team/flambeau"
    assert all(url.startswith(urls["Source"]) for url in urls.values())


def test_links_and_pictures_of_the_readme_are_absolute(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FLAMBEAU_HOME_URL", "https://example.org/flambeau")
    text = package_metadata.dynamic_metadata("readme")["text"]
    assert "](docs/" not in text
    assert "](https://example.org/flambeau/raw/main/docs/images/comparison.svg)" in text


def test_the_cuda_wheel_holds_the_library_and_requires_the_same_version(tmp_path: Path) -> None:
    library = tmp_path / "library.so"
    library.write_bytes(b"library")
    wheel = cuda_wheel.pack(library, tmp_path / "dist", "linux_x86_64")
    with zipfile.ZipFile(wheel) as archive:
        names = archive.namelist()
        assert archive.read("flambeau_cuda/libflambeau_cuda.so") == b"library"
        info = wheel.name.partition("-py3")[0] + ".dist-info"
        metadata = archive.read(f"{info}/METADATA").decode()
        record = archive.read(f"{info}/RECORD").decode()
    assert f"Requires-Dist: flambeau=={fl.__version__.partition('+')[0]}\n" in metadata
    assert [line.partition(",")[0] for line in record.splitlines()] == names


@pytest.mark.skipif(COMPILER is None or fl.cuda.is_available(), reason="makes a library that stands for CUDA's driver")
def test_the_library_of_the_package_is_found_beside_an_installed_flambeau(tmp_path: Path) -> None:
    site, driver = tmp_path / "site", tmp_path / "driver"
    (site / "flambeau_cuda").mkdir(parents=True)
    driver.mkdir()
    (site / "flambeau").symlink_to(Path(fl.__file__).parent)
    (tmp_path / "empty.c").write_text("int nothing;\n")
    (tmp_path / "opened.c").write_text(OPENED)
    for source, target in (
        (tmp_path / "empty.c", driver / "libcuda.so.1"),
        (tmp_path / "opened.c", site / "flambeau_cuda" / "libflambeau_cuda.so"),
    ):
        subprocess.run([str(COMPILER), "-shared", "-fPIC", "-o", str(target), str(source)], check=True)
    environment = {**os.environ, "PYTHONPATH": str(site), "LD_LIBRARY_PATH": str(driver)}
    environment.pop("FLAMBEAU_CUDA_LIB", None)
    program = "import flambeau as fl; print(fl.cuda.is_available()); from flambeau.cuda import _library; print(_library.library_path())"
    result = subprocess.run(
        [sys.executable, "-c", program], env=environment, cwd=tmp_path, capture_output=True, text=True, check=True
    )
    expected = site / "flambeau_cuda" / "libflambeau_cuda.so"
    assert result.stdout.split() == ["opened", "False", str(expected)]
