"""The bounded HTTP server that every program serves with: limits on a connection, problem answers, host checks.

HTTP itself is uvicorn's and httptools', routing is Starlette's. What is added here is what a service on an open
network needs beside: time limits on heads and bodies, a bound on connections, and one form of error.
"""
