"""A pool as a row of a table. Members of the wrong kind show as nothing: the service may be of another version."""

from typing import Any

from poolmuster.cli.escape import key_text
from poolmuster.client import Document
from poolmuster.client.responses import key_of, models_of, strings_of

TABLE = ("CLUSTER", "NAMESPACE", "NAME", "REGION", "MODELS")
WIDE = (*TABLE, "ZONE", "ALIASES", "CONTEXT", "WEIGHT", "FRONTEND", "LABELS")


def columns(*, wide: bool) -> tuple[str, ...]:
    """The headings that belong to `row`."""
    return WIDE if wide else TABLE


def row(pool: Document, *, wide: bool) -> list[str]:
    """The cells of one pool."""
    location = pool.get("location")
    location = location if isinstance(location, dict) else {}
    models = models_of(pool)
    cells = [
        *(_text(pool.get(name)) for name in ("cluster_id", "namespace", "dgd_name")),
        _text(location.get("region")),
        ", ".join(_text(model.get("id")) for model in models),
    ]
    if wide:
        labels = pool.get("labels")
        cells += [
            _text(location.get("availability_zone")),
            ", ".join(alias for model in models for alias in strings_of(model.get("aliases"))),
            ", ".join(_text(model.get("context_window")) or "-" for model in models),
            _text(pool.get("weight")),
            _text(pool.get("frontend_url")),
            ", ".join(f"{name}={_text(value)}" for name, value in labels.items()) if isinstance(labels, dict) else "",
        ]
    return cells


def key_of_pool(pool: Document) -> str:
    """The pool's key as one word."""
    key = key_of(pool)
    return "-" if key is None else key_text(key)


def _text(value: Any) -> str:
    return value if isinstance(value, str) else str(value) if isinstance(value, int | float) else ""
