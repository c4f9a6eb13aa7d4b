"""The relay: stands beside a pool, finds out what it serves and registers it with discovery at every heartbeat.

Pure are `heartbeat` (what to send when), `verdict` (is the server up), `facts` (what to say) and the readers of files;
`probe` and `discovery` call out, `agent` drives one pool, `crew` all of them, and `app` shows how they fare.
"""
