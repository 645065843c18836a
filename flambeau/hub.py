"""Models from repositories and weights from addresses, kept in a folder of the user.

Repositories are GitHub's ("owner/name[:ref]") or local folders; a `hubconf.py` in it has the entry points. Loading a
repository runs its code, which has to be asked for: `trust_repo=True`, or the repository is in the list of trusted ones.
"""

from __future__ import annotations

import hashlib
import os
import re
import shutil
import sys
import tempfile
import zipfile
from typing import Any
from urllib.parse import urlparse
from urllib.request import Request, urlopen

__all__ = [
    "download_url_to_file", "get_dir", "help", "list", "load", "load_state_dict_from_url", "set_dir",
]  # fmt: skip

HASH_REGEX = re.compile(r"-([a-f0-9]*)\.")
READ_DATA_CHUNK = 128 * 1024
_hub_dir: str | None = None
_list = list


def _get_torch_home() -> str:
    cache = os.environ.get("XDG_CACHE_HOME", "~/.cache")
    return os.path.expanduser(os.environ.get("TORCH_HOME", os.path.join(cache, "torch")))


def get_dir() -> str:
    """The folder for downloads: set_dir, $TORCH_HOME/hub, or ~/.cache/torch/hub."""
    return os.path.join(_get_torch_home(), "hub") if _hub_dir is None else _hub_dir


def set_dir(d: str | os.PathLike) -> None:
    global _hub_dir
    _hub_dir = os.path.expanduser(d)


# ---------------------------------------------------------------------------------------------- files


def download_url_to_file(url: str, dst: str, hash_prefix: str | None = None, progress: bool = True) -> None:
    """Download to a path; the file appears there when it is complete and its SHA-256 starts as it should."""
    dst = os.path.expanduser(dst)
    request = Request(url, headers={"User-Agent": "torch.hub"})
    digest = hashlib.sha256()
    with urlopen(request) as answer, tempfile.NamedTemporaryFile(delete=False, dir=os.path.dirname(dst) or ".") as file:
        try:
            while chunk := answer.read(READ_DATA_CHUNK):
                file.write(chunk)
                digest.update(chunk)
            file.close()
            if hash_prefix and not digest.hexdigest().startswith(hash_prefix):
                raise RuntimeError(
                    f"[hub] expected a file whose hash starts with {hash_prefix!r}, got {digest.hexdigest()!r}"
                )
            shutil.move(file.name, dst)
        finally:
            if os.path.exists(file.name):
                os.remove(file.name)


def load_state_dict_from_url(
    url: str,
    model_dir: str | None = None,
    map_location: Any = None,
    progress: bool = True,
    check_hash: bool = False,
    file_name: str | None = None,
    weights_only: bool = True,
) -> dict[str, Any]:
    """The checkpoint at an address, downloaded once. It is read without running code from it, unless weights_only=False."""
    import flambeau

    folder = model_dir if model_dir is not None else os.path.join(get_dir(), "checkpoints")
    os.makedirs(folder, exist_ok=True)
    path = os.path.join(folder, file_name or os.path.basename(urlparse(url).path))
    if not os.path.exists(path):
        sys.stderr.write(f'Downloading: "{url}" to {path}\n')
        hash_match = HASH_REGEX.search(os.path.basename(path)) if check_hash else None
        download_url_to_file(url, path, hash_match.group(1) if hash_match else None, progress)
    return flambeau.load(path, map_location=map_location, weights_only=weights_only)


# ---------------------------------------------------------------------------------------------- repositories


def _repository(repo: str, source: str, force_reload: bool, trust_repo: Any) -> str:
    """The folder of a repository, downloaded if need be."""
    if source not in ("github", "local"):
        raise ValueError(f"[hub] expected the source 'github' or 'local', got {source!r}")
    if source == "local":
        return repo
    name, _, ref = repo.partition(":")
    owner, slash, project = name.partition("/")
    if not slash:
        raise ValueError(f"[hub] expected owner/name[:ref], got {repo!r}")
    ref = ref or "main"
    _check_trust(owner, project, trust_repo)
    folder = os.path.join(get_dir(), "_".join([owner, project, ref.replace("/", "_")]))
    if force_reload and os.path.exists(folder):
        shutil.rmtree(folder)
    if not os.path.exists(folder):
        os.makedirs(get_dir(), exist_ok=True)
        archive = f"{folder}.zip"
        download_url_to_file(f"https://github.com/{owner}/{project}/zipball/{ref}", archive)
        with zipfile.ZipFile(archive) as file, tempfile.TemporaryDirectory(dir=get_dir()) as place:
            file.extractall(place)  # zipfile keeps members inside the folder
            shutil.move(os.path.join(place, file.infolist()[0].filename.split("/")[0]), folder)
        os.remove(archive)
    return folder


def _check_trust(owner: str, project: str, trust_repo: Any) -> None:
    path = os.path.join(get_dir(), "trusted_list")
    name = f"{owner}_{project}"
    trusted: Any = ()
    if os.path.exists(path):
        with open(path) as file:
            trusted = file.read().split()
    if trust_repo is True or (trust_repo == "check" and owner in ("facebookresearch", "facebookincubator", "pytorch")):
        if name not in trusted:
            os.makedirs(get_dir(), exist_ok=True)
            with open(path, "a") as file:
                file.write(f"{name}\n")
    elif name not in trusted:
        raise RuntimeError(f"[hub] expected trust_repo=True to run code of {owner}/{project}, got {trust_repo!r}")


def _entry_points(folder: str) -> Any:
    from importlib.util import module_from_spec, spec_from_file_location

    sys.path.insert(0, folder)
    try:
        spec = spec_from_file_location("hubconf", os.path.join(folder, "hubconf.py"))
        module = module_from_spec(spec)  # type: ignore[arg-type]
        spec.loader.exec_module(module)  # type: ignore[union-attr]
    finally:
        sys.path.remove(folder)
    return module


def _entry(module: Any, model: str) -> Any:
    function = getattr(module, model, None)
    if function is None or not callable(function):
        raise RuntimeError(f"[hub] expected an entry point of hubconf.py, got {model!r}")
    return function


def list(
    github: str,
    force_reload: bool = False,
    skip_validation: bool = False,
    trust_repo: Any = "check",
    verbose: bool = True,
) -> Any:
    """Names of the entry points of a repository."""
    module = _entry_points(_repository(github, "github", force_reload, trust_repo))
    return [name for name, value in vars(module).items() if callable(value) and not name.startswith("_")]


def help(
    github: str, model: str, force_reload: bool = False, skip_validation: bool = False, trust_repo: Any = "check"
) -> Any:
    """The description of an entry point."""
    return _entry(_entry_points(_repository(github, "github", force_reload, trust_repo)), model).__doc__


def load(
    repo_or_dir: str,
    model: str,
    *args: Any,
    source: str = "github",
    trust_repo: Any = "check",
    force_reload: bool = False,
    verbose: bool = True,
    skip_validation: bool = False,
    **kwargs: Any,
) -> Any:
    """What an entry point of a repository returns."""
    folder = _repository(repo_or_dir, source.lower(), force_reload, trust_repo)
    return _entry(_entry_points(folder), model)(*args, **kwargs)


def __getattr__(name: str) -> Any:
    if name == "tqdm":  # libraries take the bar of progress from here
        from tqdm import tqdm

        return tqdm
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
