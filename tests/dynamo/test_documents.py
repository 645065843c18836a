"""docs/graph-breaks.md is what the records say."""

import pathlib

from flambeau._dynamo import breaks

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent


def test_the_page_of_graph_breaks_is_current():
    assert (ROOT / "docs" / "graph-breaks.md").read_text() == breaks.document()
