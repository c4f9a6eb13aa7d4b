"""The client of the discovery service, async and sync.

`AsyncClient` and `Client` read and write; ``follow`` gives a live copy of the list (`Follower`). `DiscoveryApi` is one
instance. Only the names exported here are public.
"""

from poolmuster.client.api import DiscoveryApi
from poolmuster.client.async_client import AsyncClient
from poolmuster.client.errors import InvalidResponse, NotReady, UnexpectedStatus, Unreachable
from poolmuster.client.follow import Follower
from poolmuster.client.pool_index import Usable
from poolmuster.client.responses import ApiResponse, Document, PoolList, SourceReport
from poolmuster.client.settings import ClientSettings
from poolmuster.client.subscription import Subscription, Update, UpdateKind
from poolmuster.client.sync_client import Client, SyncFollower, SyncSubscription
from poolmuster.client.transport import Session, open_session
from poolmuster.model.errors import Forbidden, Unauthenticated

__all__ = [
    "ApiResponse",
    "AsyncClient",
    "Client",
    "ClientSettings",
    "DiscoveryApi",
    "Document",
    "Follower",
    "Forbidden",
    "InvalidResponse",
    "NotReady",
    "PoolList",
    "Session",
    "SourceReport",
    "Subscription",
    "SyncFollower",
    "SyncSubscription",
    "Unauthenticated",
    "UnexpectedStatus",
    "Unreachable",
    "Update",
    "UpdateKind",
    "Usable",
    "open_session",
]
