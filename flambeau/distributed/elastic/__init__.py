"""Launching of workers that are watched and restarted."""
