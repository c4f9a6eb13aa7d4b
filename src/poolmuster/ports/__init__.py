"""Protocols between the service and the world: the clock, the registration store, what tells who asks.

With them two things that every program above needs and that differ nowhere: the system's clock, and files read again.
"""
