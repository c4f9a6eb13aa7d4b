"""Protocols between the service and its adapters: clock, store, authenticator, replication feed."""
