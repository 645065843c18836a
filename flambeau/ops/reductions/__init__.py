"""Reductions, scans, statistics and counts."""
