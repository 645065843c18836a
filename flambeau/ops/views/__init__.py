"""Views of the same memory, and their copies."""
