"""An older name of the downloads in `hub`."""

from flambeau.hub import load_state_dict_from_url as load_url  # noqa: F401


def tqdm(iterable=None, *args, **kwargs):
    """A progress bar, where tqdm is installed."""
    try:
        from tqdm.auto import tqdm as bar
    except ImportError:
        return iterable
    return bar(iterable, *args, **kwargs)
