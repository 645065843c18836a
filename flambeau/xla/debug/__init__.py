"""Counts and times of programs."""
