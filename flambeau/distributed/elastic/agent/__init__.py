"""Agents: one for each node, which starts and watches its workers."""
