"""Names to addresses, by the system's resolver, in threads that do not hold the exit."""

import socket

from aiohttp.abc import AbstractResolver, ResolveResult

from poolmuster.platform.threads import run_in_daemon_thread


class Resolver(AbstractResolver):
    """For aiohttp's connectors, which ask for a name once at a time and keep its addresses for ten seconds."""

    async def resolve(
        self, host: str, port: int = 0, family: socket.AddressFamily = socket.AF_INET
    ) -> list[ResolveResult]:
        """The addresses of ``host``. Raises `OSError`."""

        def look_up() -> list[ResolveResult]:
            found = socket.getaddrinfo(host, port, family, socket.SOCK_STREAM, flags=socket.AI_ADDRCONFIG)
            return [
                ResolveResult(
                    hostname=host,
                    host=str(address[0]),
                    port=port,
                    family=kind,
                    proto=protocol,
                    flags=socket.AI_NUMERICHOST | socket.AI_NUMERICSERV,
                )
                for kind, _, protocol, _, address in found
            ]

        return await run_in_daemon_thread("resolver", look_up)

    async def close(self) -> None:
        """There is nothing to close."""
