"""What a client accepts: encodings, media types, entities it already has."""

from starlette.types import Scope


def header(scope: Scope, name: bytes) -> str:
    """A header's value, several joined by commas; empty where it is missing."""
    return ", ".join(value.decode("latin-1") for each, value in scope["headers"] if each == name)


def _weights(text: str) -> dict[str, float]:
    weights = {}
    for item in text.split(","):
        token, *parameters = (part.strip() for part in item.split(";"))
        weight = 1.0
        for parameter in parameters:
            name, _, value = parameter.partition("=")
            if name.strip().lower() == "q":
                try:
                    weight = float(value)
                except ValueError:
                    weight = 0.0
        if token:
            weights[token.lower()] = weight
    return weights


def accepts_gzip(scope: Scope) -> bool:
    """Whether the answer may be gzipped."""
    weights = _weights(header(scope, b"accept-encoding"))
    return weights.get("gzip", weights.get("*", 0.0)) > 0


def preferred(scope: Scope, offered: tuple[str, ...]) -> str | None:
    """The media type of ``offered`` that the client likes best, the earlier of equals; ``None`` where it takes none."""
    text = header(scope, b"accept")
    if not text.strip():
        return offered[0]
    weights = _weights(text)

    def weight(media_type: str) -> float:
        group = media_type.partition("/")[0] + "/*"
        return next((weights[each] for each in (media_type, group, "*/*") if each in weights), 0.0)

    best = max(offered, key=weight)
    return best if weight(best) > 0 else None


def etag_matches(scope: Scope, etag: bytes) -> bool:
    """Whether ``If-None-Match`` names ``etag``, compared weakly."""
    text = header(scope, b"if-none-match")
    if not text:
        return False
    wanted = etag.decode().removeprefix("W/")
    return any(each.strip() == "*" or each.strip().removeprefix("W/") == wanted for each in text.split(","))
