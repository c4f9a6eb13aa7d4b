"""One principal of each role, with a token each, and what each path takes."""

from collections.abc import Iterable

from poolmuster.auth.credentials_file import credentials_line, digest_of, new_token
from poolmuster.model.auth import Role

CLUSTER = "c"
"""The cluster that whoever may register speaks for."""

TOKENS = {role: new_token() for role in Role}
EXPIRED = new_token()
UNKNOWN = new_token()

OPEN = ("/", "/docs", "/openapi.json", "/health/live", "/health/ready")
"""What anybody may GET."""

READ = ("/pools", "/pools/c/n/a", "/routers", "/changes", "/status", "/metrics", "/pools/watch")
"""What `Role.READ` may GET."""

MALFORMED = {
    "no scheme": TOKENS[Role.ADMIN],
    "another scheme": f"Basic {TOKENS[Role.ADMIN]}",
    "no token": "Bearer",
    "an empty token": "Bearer  ",
    "two words": f"Bearer {TOKENS[Role.ADMIN]} x",
    "a tab": f"Bearer\t{TOKENS[Role.ADMIN]}",
    "quoted": f'Bearer "{TOKENS[Role.ADMIN]}"',
    "another letter case": f"Bearer {TOKENS[Role.ADMIN].swapcase()}",
    "its digest": f"Bearer {digest_of(TOKENS[Role.ADMIN].encode()).hex()}",
    "a list": f"Bearer {TOKENS[Role.ADMIN]}, Bearer {TOKENS[Role.READ]}",
    "outside of ASCII": f"Bearer {TOKENS[Role.ADMIN]}\xe9",
    "unknown": f"Bearer {UNKNOWN}",
    "expired": f"Bearer {EXPIRED}",
    "empty": "",
}


def bearer(role: Role) -> dict[str, str]:
    """The header of a principal of this role."""
    return {"authorization": f"Bearer {TOKENS[role]}"}


def lines(more: Iterable[str] = ()) -> str:
    """A credentials file for all of them."""
    found = [
        credentials_line(
            f"the-{role.value}",
            sha256=digest_of(token.encode()).hex(),
            roles=(role.value,),
            clusters=(CLUSTER, "team-*") if role is Role.REGISTER else (),
        )
        for role, token in TOKENS.items()
    ]
    digest = digest_of(EXPIRED.encode()).hex()
    found.append(f'the-expired = {{sha256 = "{digest}", roles = ["admin"], expires = 2020-01-01T00:00:00Z}}')
    return "\n".join([*found, *more, ""])
