"""Where pools ought to be, as a port: Karmada, or the Kubernetes Multi-Cluster Services API."""

from typing import Protocol

from poolmuster.ports.source import Source


class Topology(Source, Protocol):
    """A source of placements and router replicas.

    Its first update has the whole set of placements. Until then its status is unknown, and the list is not readable.
    """

    @property
    def name(self) -> str:
        """What ``--pool-discovery`` calls it."""
        ...
