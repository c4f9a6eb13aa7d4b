"""The watch behind a reverse proxy with its default settings, which buffer answers and end silent ones."""

import asyncio
import json
from pathlib import Path

import aiohttp
import pytest

from tests.support.parts import NGINX
from tests.support.ports import free_port
from tests.support.process import Program, poolmuster

pytestmark = pytest.mark.integration

CONFIGURATION = """
daemon off;
master_process off;
user root;
pid {folder}/nginx.pid;
error_log {folder}/error.log;
events {{}}
http {{
    access_log off;
    client_body_temp_path {folder}/body;
    proxy_temp_path {folder}/proxy;
    fastcgi_temp_path {folder}/fastcgi;
    uwsgi_temp_path {folder}/uwsgi;
    scgi_temp_path {folder}/scgi;
    server {{
        listen 127.0.0.1:{port};
        location / {{ proxy_pass http://127.0.0.1:{behind}; }}
    }}
}}
"""


@pytest.mark.parametrize("media_type", ["text/event-stream", "application/x-ndjson"])
async def test_a_watch_through_nginx_with_its_defaults_brings_events_at_once_and_is_kept_alive(
    tmp_path: Path, media_type: str
) -> None:
    nginx = NGINX.require()
    port, behind = free_port(), free_port()
    configuration = tmp_path / "nginx.conf"
    configuration.write_text(CONFIGURATION.format(folder=tmp_path, port=port, behind=behind))
    service = poolmuster(
        "serve",
        "--listen",
        f"127.0.0.1:{behind}",
        "--lease-duration-secs",
        "60",
        folder=tmp_path,
        ready_url=f"http://127.0.0.1:{behind}/health/ready",
    )
    proxy = Program(
        nginx, "-c", configuration, folder=tmp_path, ready_url=f"http://127.0.0.1:{port}/health/live", name="nginx"
    )
    async with (
        service,
        proxy,
        aiohttp.ClientSession(f"http://127.0.0.1:{port}") as session,
        session.get("/pools/watch", headers={"accept": media_type}) as stream,
    ):
        assert stream.status == 200
        lines = stream.content
        assert b'"snapshot"' in await _line_with(lines, b'"type"', within_s=3)
        pool = {"cluster_id": "c", "namespace": "n", "dgd_name": "p"}
        async with session.post("/pools", json=pool) as answer:
            assert answer.status == 201
        added = await _line_with(lines, b'"added"', within_s=3)
        assert json.loads(added.removeprefix(b"data: "))["pool"] == pool
        assert b"ping" in await _line_with(lines, b"ping", within_s=15)


async def _line_with(lines: aiohttp.StreamReader, wanted: bytes, within_s: float) -> bytes:
    async with asyncio.timeout(within_s):
        while True:
            line = await lines.readline()
            assert line, "the stream ended"
            if wanted in line:
                return line
