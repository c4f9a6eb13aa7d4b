"""For what must be freed by its reference count: programs freeze long-lived objects, and a cycle of them stays."""

import contextlib
import gc
from collections.abc import Iterator


@contextlib.contextmanager
def collector_stopped() -> Iterator[None]:
    """Let the garbage collector do nothing meanwhile."""
    gc.disable()
    try:
        yield
    finally:
        gc.enable()
