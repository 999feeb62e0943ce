"""The attack: a site in the same browser, or a program on the same machine, calls `orchid console`.

Over real sockets. The console listens on loopback with the listener of the API server, which keeps
connections open, caches their heads and takes several requests at once.
"""

import asyncio
import os
import re
import stat
import subprocess
import sys
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit

import pytest

from orchid.features.console.rendering import Renderer
from orchid.features.console.sign_in.local import LinkSignIn
from orchid.features.console.web.loopback import LIMITS, LoopbackListener
from orchid.features.console.web.messages import WebRequest, WebResponse
from orchid.kernel.base.clock import SystemClock
from tests.unit.kernel.outbound.test_remote import kubeconfig


class OnePage:
    """A site that answers everything."""

    async def respond(self, request: WebRequest, base: str, viewer: Any) -> WebResponse:
        return WebResponse(200, f"page {request.method} {request.path}".encode())

    def static(self, path: str) -> WebResponse:
        return WebResponse(200, b"static")


class Console:
    """A console, and the session of its user."""

    def __init__(self) -> None:
        site: Any = OnePage()
        viewer: Any = None
        self.sign_in = LinkSignIn(site, Renderer(), viewer, SystemClock.monotonic)
        self.listener = LoopbackListener(self.sign_in, SystemClock.monotonic)
        self.host = self.base = self.cookie = ""

    async def open(self) -> None:
        port = await self.listener.start()
        self.sign_in.listens_at(port)
        self.host = f"127.0.0.1:{port}"
        path = self.sign_in.new_link().removeprefix(f"http://{self.host}")
        opened = (await self.send(self.request("GET", path)))[0]
        cookie = re.search(r"(orchid=[^;]+); Path=([^;]+)/;", opened)
        assert cookie
        self.cookie, self.base = cookie[1], cookie[2]

    def request(self, method: str, path: str, *lines: str, host: str = "") -> bytes:
        head = (f"{method} {path} HTTP/1.1", f"Host: {host or self.host}", *lines, "", "")
        return "\r\n".join(head).encode()

    async def send(self, *data: bytes) -> list[str]:
        """The responses to data that is sent in pieces on one connection, one for each piece."""
        _, _, port = self.host.partition(":")
        reader, writer = await asyncio.open_connection("127.0.0.1", int(port))
        answers = []
        async with asyncio.timeout(5):
            for piece in data:
                writer.write(piece)
                answers.append(await self.answer(reader))
        writer.close()
        return answers

    async def answer(self, reader: asyncio.StreamReader) -> str:
        head = (await reader.readuntil(b"\r\n\r\n")).decode()
        length = re.search(r"Content-Length: (\d+)", head)
        assert length
        return head + (await reader.readexactly(int(length[1]))).decode()


@pytest.fixture
async def console() -> AsyncIterator[Console]:
    console = Console()
    await console.open()
    yield console
    await console.listener.close()


async def test_every_request_of_a_connection_is_checked(console: Console) -> None:
    """DNS rebinding on a connection whose earlier requests, with cached heads, were the user's."""
    cookie = f"Cookie: {console.cookie}"
    own = console.request("GET", f"{console.base}/", cookie)
    rebound = console.request("GET", f"{console.base}/", cookie, host="evil.example")
    without = console.request("GET", f"{console.base}/")

    answers = await console.send(own, own, own, rebound, without, own)

    statuses = [answer.partition("\r\n")[0].split()[1] for answer in answers]
    assert statuses == ["200", "200", "200", "421", "403", "200"]


async def test_requests_that_are_sent_together_are_checked_one_by_one(console: Console) -> None:
    """A forged form behind a page of the user."""
    cookie = f"Cookie: {console.cookie}"
    own = console.request("GET", f"{console.base}/", cookie)
    forged = console.request("POST", f"{console.base}/out", cookie, "Content-Length: 0")
    _, _, port = console.host.partition(":")
    reader, writer = await asyncio.open_connection("127.0.0.1", int(port))

    writer.write(own + forged + own)

    async with asyncio.timeout(5):
        answers = [await console.answer(reader) for _ in range(3)]
    assert [answer.split()[1] for answer in answers] == ["200", "403", "200"]
    writer.close()


@pytest.mark.parametrize("line", ["Host: evil.example", "Host: {host}", "Transfer-Encoding: x"])
async def test_ambiguous_requests_are_refused(console: Console, line: str) -> None:
    """Two hosts, also equal ones, and a body of unknown length."""
    request = console.request("GET", f"{console.base}/", line.format(host=console.host))

    assert (await console.send(request))[0].split()[1] in {"400", "501"}


async def test_a_session_is_of_this_console_and_of_its_host(console: Console) -> None:
    """Only connections with a session keep their place among many."""
    headers = {"host": console.host, "cookie": console.cookie}

    def has_session(**other: str) -> bool:
        return console.sign_in.has_session(WebRequest("GET", "/", {}, headers | other))

    assert has_session()
    assert not has_session(cookie="")
    assert not has_session(cookie="orchid=evil")
    assert not has_session(host="evil.example")


async def test_silent_connections_do_not_keep_the_user_out(console: Console) -> None:
    """Twice as many as the console accepts: those without a session are ended for the user's."""
    _, _, port = console.host.partition(":")
    silent = [
        await asyncio.open_connection("127.0.0.1", int(port))
        for _ in range(2 * LIMITS.max_connections)
    ]

    answer = await console.send(
        console.request("GET", f"{console.base}/", f"Cookie: {console.cookie}")
    )

    assert answer[0].split()[1] == "200"
    for _, writer in silent:
        writer.close()


def test_no_command_line_has_the_link(tmp_path: Path) -> None:
    """Every user of the machine reads those of all processes, and could be faster than a browser.

    With --open: the browser gets a file that only its user can read.
    """
    config, asked, browser = tmp_path / "config", tmp_path / "asked", tmp_path / "browser"
    config.write_text(kubeconfig("https://127.0.0.1:1", {"token": "abc"}))
    os.mkfifo(asked)
    browser.write_text(f'#!/bin/sh\necho "$1" > {asked}\n')
    browser.chmod(0o700)
    with subprocess.Popen(
        [sys.executable, "-P", "-m", "orchid", "console", "--open", "--kubeconfig", config],
        env={**os.environ, "BROWSER": f"{browser} %s", "TMPDIR": str(tmp_path)},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
    ) as running:
        try:
            assert running.stdin is not None
            assert running.stdout is not None
            link = running.stdout.readline().strip()
            argument = asked.read_text().strip()
            file = Path(unquote(urlsplit(argument).path))

            assert "/in/" in link
            assert "/in/" not in argument
            assert link in file.read_text()
            assert stat.S_IMODE(file.stat().st_mode) == 0o600
            running.stdin.write("\n")  # for another link, when it has its signal handlers
            running.stdin.flush()
            assert running.stdout.readline()
        finally:
            running.terminate()
    assert not file.exists()
