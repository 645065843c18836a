"""Averaging of models that train apart for some steps."""
