"""Protocols between the service and the world: the clock and the registration store."""
