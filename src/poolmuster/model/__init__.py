"""Frozen values: what a pool, a registration, a source and a change are, and what is wrong with bad ones.

Nothing here reads a clock, touches a socket or draws a random number.
"""
