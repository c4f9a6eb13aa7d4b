"""TODO programs/metrics."""
