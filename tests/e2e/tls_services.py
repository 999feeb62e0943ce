"""Services that serve TLS with files of an agent, and clients that call them without a pause."""

import contextlib
import http.client
import os
import shutil
import socket
import ssl
import struct
import subprocess
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Final

from tests.e2e.serving import free_port
from tests.system_packages import require_program

PATIENCE: Final = 90.0
CALLERS: Final = 2
TLS_PLEASE: Final = struct.pack("!ii", 8, 80877103)  # SSLRequest of PostgreSQL
PROTOCOL_3: Final = 196608


def until(holds: Callable[[], bool], what: str) -> None:
    deadline = time.monotonic() + PATIENCE
    while not holds():
        assert time.monotonic() < deadline, what
        time.sleep(0.05)


@contextlib.contextmanager
def readable_directory() -> Iterator[Path]:
    """A directory that services with users of their own can enter."""
    with tempfile.TemporaryDirectory() as place:
        Path(place).chmod(0o755)
        yield Path(place)


class TlsService:
    """A service: how it starts, how it is reloaded, and one call of a client."""

    def __init__(self, home: Path, web: Path) -> None:
        """`home`: for its own files. `web`: the files of the agent."""
        home.mkdir()
        self.home, self.web = home, web

    @staticmethod
    def user() -> str:
        """The owner of the private key; empty for the user of the agent."""
        return ""

    @property
    def reload(self) -> dict[str, object]:
        raise NotImplementedError

    def running(self) -> contextlib.AbstractContextManager[int]:
        """Run the service; its port."""
        raise NotImplementedError

    @staticmethod
    def call(port: int, trust: ssl.SSLContext) -> bytes:
        """One call over a new connection; the certificate that was presented."""
        raise NotImplementedError


class Nginx(TlsService):
    @property
    def reload(self) -> dict[str, object]:
        return {"signal": "HUP", "pidFile": str(self.home / "nginx.pid")}

    @contextlib.contextmanager
    def running(self) -> Iterator[int]:
        port, home, web = free_port(), self.home, self.web
        configuration = home / "nginx.conf"
        configuration.write_text(
            f"""
            {"user root;" if os.geteuid() == 0 else ""}
            daemon off; pid {home}/nginx.pid; error_log {home}/nginx.log; worker_processes 1;
            events {{}}
            http {{
              access_log off;
              client_body_temp_path {home}/body; proxy_temp_path {home}/proxy;
              fastcgi_temp_path {home}/fastcgi; uwsgi_temp_path {home}/uwsgi;
              scgi_temp_path {home}/scgi;
              server {{
                listen 127.0.0.1:{port} ssl;
                ssl_certificate {web}/tls.crt; ssl_certificate_key {web}/tls.key;
                location / {{ return 200 "hello"; }}
              }}
            }}
            """
        )
        process = subprocess.Popen([require_program("nginx"), "-c", configuration, "-p", home])
        try:
            until((home / "nginx.pid").exists, "nginx does not start")
            yield port
        finally:
            process.terminate()
            process.wait(PATIENCE)

    @staticmethod
    def call(port: int, trust: ssl.SSLContext) -> bytes:
        connection = http.client.HTTPSConnection("127.0.0.1", port, context=trust, timeout=30)
        with contextlib.closing(connection):
            connection.connect()
            presented = connection.sock.getpeercert(binary_form=True)
            connection.request("GET", "/")
            found = connection.getresponse().read()
        if found != b"hello":
            raise OSError(repr(found))
        return bytes(presented or b"")


class PostgreSql(TlsService):
    """PostgreSQL refuses to run as root and to read the key of another user."""

    @staticmethod
    def user() -> str:
        return "postgres" if os.geteuid() == 0 else ""

    @property
    def _data(self) -> Path:
        return self.home / "data"

    @property
    def reload(self) -> dict[str, object]:
        return {"signal": "HUP", "pidFile": str(self._data / "postmaster.pid")}

    def _words(self, program: str, *words: str) -> list[str]:
        newest = max(Path("/usr/lib/postgresql").iterdir(), key=lambda one: int(one.name))
        command = [str(newest / "bin" / program), *words]
        as_user = ["setpriv", "--reuid=postgres", "--regid=postgres", "--clear-groups", "--"]
        return [*as_user, *command] if self.user() else command

    @contextlib.contextmanager
    def running(self) -> Iterator[int]:
        if user := self.user():
            shutil.chown(self.home, user, user)
        port = free_port()
        made = self._words("initdb", "--no-sync", "-A", "trust", "-U", "caller", str(self._data))
        subprocess.run(made, cwd="/", check=True, capture_output=True)
        options = {
            "ssl": "on",
            "ssl_cert_file": self.web / "tls.crt",
            "ssl_key_file": self.web / "tls.key",
            "listen_addresses": "127.0.0.1",
            "unix_socket_directories": self.home,
            "fsync": "off",
        }
        words = [word for name, value in options.items() for word in ("-c", f"{name}={value}")]
        log = self.home.with_name("postgresql.log")
        with log.open("wb") as output:
            command = self._words("postgres", "-D", str(self._data), "-p", str(port), *words)
            process = subprocess.Popen(command, cwd="/", stdout=output, stderr=output)
        try:
            until(lambda: "ready to accept connections" in log.read_text(), log.read_text())
            yield port
        finally:
            process.terminate()
            process.wait(PATIENCE)

    @staticmethod
    def call(port: int, trust: ssl.SSLContext) -> bytes:
        with socket.create_connection(("127.0.0.1", port), timeout=30) as plain:
            plain.sendall(TLS_PLEASE)
            if plain.recv(1) != b"S":
                raise OSError("PostgreSQL does not offer TLS")
            with trust.wrap_socket(plain) as connection:
                start = struct.pack("!i", PROTOCOL_3)
                start += b"user\0caller\0database\0postgres\0\0"
                connection.sendall(struct.pack("!i", len(start) + 4) + start)
                found = b""
                while not found.endswith(b"Z\0\0\0\x05I"):  # ready for a query
                    data = connection.recv(4096)
                    if not data or found.startswith(b"E"):
                        raise OSError(repr(found))
                    found += data
                connection.sendall(b"X\0\0\0\x04")
                return bytes(connection.getpeercert(binary_form=True) or b"")


class Callers:
    """Clients that call a service without a pause, each time over a new connection."""

    def __init__(self, service: type[TlsService], port: int, bundle: Path) -> None:
        self.answers, self.failures = 0, list[str]()
        self.served: set[bytes] = set()  # certificates that the service presented
        self._service, self._port, self._bundle = service, port, bundle
        self._ended = threading.Event()
        self._threads: Sequence[threading.Thread] = [
            threading.Thread(target=self._call) for _ in range(CALLERS)
        ]

    def __enter__(self) -> "Callers":
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._ended.set()
        for thread in self._threads:
            thread.join()

    def _call(self) -> None:
        while not self._ended.is_set():
            trust = ssl.create_default_context(cafile=str(self._bundle))
            trust.check_hostname = False  # the name is not that of this machine
            try:
                self.served.add(self._service.call(self._port, trust))
                self.answers += 1
            except (OSError, http.client.HTTPException) as error:
                self.failures.append(repr(error))
