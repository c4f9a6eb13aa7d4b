"""Adapters to this machine that every layer above needs: clock, threads, files, TLS contexts, the resolver."""
