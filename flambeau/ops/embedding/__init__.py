"""Embedding tables and bags."""
