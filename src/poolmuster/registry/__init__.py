"""Pure: one list of leases. The lease table, the record list, the change log, and what a table scan means.

Everything takes the time as an argument and returns decisions. Nothing here waits, logs or reads a clock.
"""
