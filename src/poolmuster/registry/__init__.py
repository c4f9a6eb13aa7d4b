"""Pure decisions: the roster of leases, the list and its pages, the history, what a watcher is told.

Everything takes the time as an argument and returns what to do. Nothing here waits, logs or reads a clock.
"""
