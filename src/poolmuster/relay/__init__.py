"""The relay: probes the server of a pool, and registers the pool with discovery at every heartbeat.

`heartbeat` (what to send when) is pure. `probe` and `discovery` make calls, `agent` drives one pool, `supervisor` all
of them, and `app` shows their state.
"""
