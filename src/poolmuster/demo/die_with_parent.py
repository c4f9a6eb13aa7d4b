"""Run a module that ends with the process that started it: ``die_with_parent PID MODULE ...``.

The kernel kills a tied process when its parent ends, however that ends. Where the kernel is not Linux there is no such
tie, and the parent's own orderly end has to do.
"""

import ctypes
import os
import signal
import sys

PR_SET_PDEATHSIG = 1


def main() -> None:
    """Tie this process to its parent, and become the module."""
    parent, module, *arguments = sys.argv[1:]
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
    if os.getppid() != int(parent):
        sys.exit(1)  # it ended before the tie was made
    os.execv(sys.executable, [sys.executable, "-m", module, *arguments])  # noqa: S606  # what the demo starts, and no shell


if __name__ == "__main__":
    main()
