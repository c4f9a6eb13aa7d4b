"""The HTTP server of every program: limits on each connection, TLS, authorization, dispatch, problem responses.

HTTP itself is uvicorn's and httptools', requests and responses are Starlette's. What is added here is what a service on
an open network needs beside: time limits on heads and bodies, a bound on connections, and one form of error.
"""
