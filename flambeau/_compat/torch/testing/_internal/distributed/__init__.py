"""Helpers for programs of several processes."""
