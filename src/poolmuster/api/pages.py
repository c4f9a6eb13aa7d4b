"""Pages for people."""

from starlette.routing import Route


def page_routes() -> list[Route]:
    """The routes of all pages."""
    return []
