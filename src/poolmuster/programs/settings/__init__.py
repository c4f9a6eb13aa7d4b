"""TODO programs/settings."""
