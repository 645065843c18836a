"""The parts of the timing tools under the names programs import them by."""
