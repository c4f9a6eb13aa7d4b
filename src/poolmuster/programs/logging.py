"""Logging: one line an event on standard error, as text for people or JSON for machines.

An event is a short sentence in plain words that never varies; what varies is beside it as ``key=value``. The standard
library's loggers (uvicorn, asyncio, aiohttp) come out in the same form.
"""

import logging
import sys

import structlog
from structlog.typing import EventDict, Processor, WrappedLogger

SECRET_NAMES = ("authorization", "cookie", "password", "secret", "token")
"""A value whose key ends in one of these is not written."""


def configure_logging(log_format: str | None, level: str) -> None:
    """Set up logging for this process, again if need be.

    ``log_format`` is ``text``, ``json``, or ``None`` for text on a terminal and JSON elsewhere. ``level`` is the least
    that is written: ``debug``, ``info``, ``warning`` or ``error``.
    """
    as_text = log_format == "text" or (log_format is None and sys.stderr.isatty())
    least = logging.getLevelNamesMapping()[level.upper()]
    shared: list[Processor] = [
        structlog.contextvars.merge_contextvars,
        structlog.stdlib.add_log_level,
        structlog.stdlib.add_logger_name,
        structlog.processors.TimeStamper(fmt="iso", utc=True),
        hide_secrets,
    ]
    structlog.configure(
        processors=[*shared, structlog.stdlib.ProcessorFormatter.wrap_for_formatter],
        logger_factory=structlog.stdlib.LoggerFactory(),
        wrapper_class=structlog.make_filtering_bound_logger(least),
    )
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(
        structlog.stdlib.ProcessorFormatter(
            foreign_pre_chain=shared,
            processors=[
                structlog.stdlib.ProcessorFormatter.remove_processors_meta,
                *(_text_renderers() if as_text else _json_renderers()),
            ],
        )
    )
    root = logging.getLogger()
    root.handlers[:] = [handler]
    root.setLevel(least)


def hide_secrets(_logger: WrappedLogger, _method: str, event: EventDict) -> EventDict:
    """Put ``(hidden)`` in the place of values whose key says that they are secret."""
    for name in event:
        if name.lower().endswith(SECRET_NAMES):
            event[name] = "(hidden)"
    return event


def _one_line(_logger: WrappedLogger, _method: str, event: EventDict) -> EventDict:
    """Escape what is not printable: a client's words must not look like a line of ours, nor move the terminal."""
    for name, value in event.items():
        if name != "exception" and not _is_printable(value):
            event[name] = "".join(char if char.isprintable() else ascii(char)[1:-1] for char in str(value))
    return event


def _is_printable(value: object) -> bool:
    return isinstance(value, int | float) or value is None or str(value).isprintable()


def _text_renderers() -> list[Processor]:
    # Tracebacks stay plain: the prettier kind shows local variables, and with them secrets.
    plain = structlog.dev.plain_traceback
    return [_one_line, structlog.dev.ConsoleRenderer(colors=sys.stderr.isatty(), exception_formatter=plain)]


def _json_renderers() -> list[Processor]:
    return [structlog.processors.format_exc_info, structlog.processors.JSONRenderer()]
