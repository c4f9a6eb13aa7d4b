"""Where programs are put together: settings parsed once, logging, metrics, the real clock."""
