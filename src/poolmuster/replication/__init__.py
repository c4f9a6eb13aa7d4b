"""TODO replication."""
