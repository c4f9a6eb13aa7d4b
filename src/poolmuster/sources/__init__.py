"""Registration stores (`poolmuster.ports.store`)."""
