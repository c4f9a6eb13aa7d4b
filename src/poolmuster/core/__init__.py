"""Replication (moves next)."""
