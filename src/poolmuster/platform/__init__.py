"""TODO platform."""
