"""Protocols between the service and the world: the clock, the registration store, what tells who asks.

With them what every program above needs and what differs nowhere: the system's clock, files read again, work that
blocks, and names resolved without blocking.
"""
