"""Loaders, processes and shardings, over the one device that a process has."""
