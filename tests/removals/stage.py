"""A server whose files may change and that may restart, and open connections to it.

Start with `Stage`. The administrator has connections of their own, so that nothing disturbs what is
remembered for a caller's. The caller is identified by the token of a request, or by the
certificate that was shown when the connection was opened.
"""

import http.client
import json
import random
import ssl
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from tests.conformance.exchanges import TOKENS, tokens_by_user
from tests.e2e.serving import Server, free_port, start, wait_until_ready
from tests.security.certified import issued, other_authority

ISSUER = "https://orchid.test"
CONNECTIONS = 6
ANSWER_SECONDS = 30.0
START_SECONDS = 60.0
NEW_TOKENS = 200  # static tokens, each of which can be taken out of the file once
ADMIN = tokens_by_user()["admin"]


class NotDone(Exception):
    """The stage could not be set."""


class Client:
    """A connection that is kept open; one that was closed is opened again by the next request."""

    def __init__(self, port: int, tls: ssl.SSLContext) -> None:
        self._connection = http.client.HTTPSConnection(
            "127.0.0.1", port, context=tls, timeout=ANSWER_SECONDS
        )

    def ask(self, method: str, path: str, body: Any = None, *, token: str = "") -> tuple[int, Any]:
        """Send a request and give its status and its answer."""
        headers = {"Content-Type": "application/json"}
        if token:
            headers["Authorization"] = f"Bearer {token}"
        data = None if body is None else json.dumps(body).encode()
        self._connection.request(method, path, data, headers)
        answer = self._connection.getresponse()
        return answer.status, json.loads(answer.read())

    def close(self) -> None:
        self._connection.close()


class AnyClient:
    """Several connections, of which each request takes one: what one knows all know."""

    def __init__(self, clients: Sequence[Client], chance: random.Random) -> None:
        self._clients, self._chance = clients, chance

    def ask(self, method: str, path: str, body: Any = None, *, token: str = "") -> tuple[int, Any]:
        return self._chance.choice(self._clients).ask(method, path, body, token=token)


class Stage:
    """One server, its files, and those who speak to it."""

    def __init__(self, directory: Path, *, workers: int, chance: random.Random) -> None:
        self.chance = chance
        self._directory = directory
        self._count = 0
        self._port = free_port()
        self._tls = ssl._create_unverified_context()  # noqa: S323 -- who answers is not what is tested
        self._trusted = other_authority("trusted")
        self._stays = other_authority("stays")
        self._static = [f"static-token-{number:04d}" for number in range(NEW_TOKENS)]
        self._unused = list(self._static)
        self.trust(True)
        self._write_tokens()
        self._flags = (
            "--controllers", "", "--workers", str(workers),
            "--service-account-issuer", ISSUER, "--api-audiences", ISSUER,
            "--client-ca-file", str(self._authorities),
            "--token-auth-file", str(self._tokens),
        )  # fmt: skip
        self.server = self._started()
        self._admins = self._clients()
        self._callers = self._clients()

    # Who speaks

    def caller(self) -> "Client | AnyClient":
        """One connection, or another for each request, for somebody who has a token."""
        several = AnyClient(self._callers, self.chance)
        return self.chance.choice((several, self.chance.choice(self._callers)))

    def administrator(self) -> Client:
        return self.chance.choice(self._admins)

    def admin(self, method: str, path: str, body: Any = None) -> Any:
        """Have something done by the administrator."""
        status, answer = self.administrator().ask(method, path, body, token=ADMIN)
        if status not in (200, 201):
            raise NotDone(f"{method} {path}: {status} {answer}")
        return answer

    def certified(self, user: str) -> Client:
        """A new connection of somebody with a certificate of the authority that may go."""
        made = issued(self._trusted, user)
        chain, key = self._directory / "client.crt", self._directory / "client.key"
        chain.write_bytes(made.chain)
        key.touch(mode=0o600)
        key.write_bytes(made.key)
        tls = ssl._create_unverified_context()  # noqa: S323 -- who answers is not what is tested
        tls.load_cert_chain(chain, key)
        return Client(self._port, tls)

    def name(self) -> str:
        """One that nothing had before."""
        self._count += 1
        return f"n{self._count}"

    # Files

    @property
    def _authorities(self) -> Path:
        return self._directory / "client-authorities.crt"

    @property
    def _tokens(self) -> Path:
        return self._directory / "tokens.csv"

    def trust(self, both: bool) -> None:
        """Put both authorities into the file of client authorities, or only the one that stays."""
        text = self._stays.certificate_pem + (self._trusted.certificate_pem if both else b"")
        new = self._authorities.with_suffix(".new")
        new.write_bytes(text)
        new.replace(self._authorities)

    def static_token(self) -> str:
        """A token of the file that nobody has used yet."""
        return self._unused.pop()

    def drop_token(self, token: str) -> None:
        """Take a token out of the file; it is read at the start, so the server starts again."""
        self._static.remove(token)
        self._write_tokens()
        self.close()
        self.server = self._started()

    def _write_tokens(self) -> None:
        lines = [f"{token},holder-{token},uid-{token}\n" for token in self._static]
        self._tokens.write_text(TOKENS.read_text() + "".join(lines))

    # The server

    def _started(self) -> Server:
        started = start(self._directory / "data", *self._flags, port=self._port)
        try:
            return wait_until_ready(started, START_SECONDS)
        except BaseException:
            started.kill()
            raise

    def _clients(self) -> list[Client]:
        return [Client(self._port, self._tls) for _ in range(CONNECTIONS)]

    def close(self) -> None:
        for client in (*self._admins, *self._callers):
            client.close()
        self.server.stop()


@contextmanager
def staged(directory: Path, *, workers: int, chance: random.Random) -> Iterator[Stage]:
    """A stage for as long as the block lasts."""
    stage = Stage(directory, workers=workers, chance=chance)
    try:
        yield stage
    except BaseException:
        with suppress(ProcessLookupError):
            stage.server.kill()  # the failure of the block is the one to report
        raise
    stage.close()
