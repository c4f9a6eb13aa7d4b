"""A file in memory: OpenSSL takes certificates and keys from files only, and a key has no business on a disk."""

import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def memfd(content: bytes) -> Iterator[str]:
    """A path that leads to ``content`` for as long as the block.

    The paths that it was read from may lead to other files by now.
    """
    if hasattr(os, "memfd_create"):
        with os.fdopen(os.memfd_create("poolmuster", os.MFD_CLOEXEC), "wb") as file:
            file.write(content)
            file.flush()
            yield f"/proc/self/fd/{file.fileno()}"
    else:
        with tempfile.NamedTemporaryFile() as temporary:  # for its owner's eyes only
            temporary.write(content)
            temporary.flush()
            yield temporary.name
