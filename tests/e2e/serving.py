"""A real `orchid serve` process for as long as a `with` block lasts.

Start with `running_server`. It picks a port, starts the program, waits until /readyz answers 200,
and at the end asks it to stop by SIGTERM and insists on exit code 0. Whatever goes wrong raises
`ServerFailed` with the end of the server's log. Shared by the conformance tests, the end-to-end
tests and the benchmarks. Never ends a process that it did not start.

    with running_server(tmp_path / "data", "--controllers", "") as server:
        ... server.url, server.pid, server.kubeconfig ...
"""

import base64
import http.client
import os
import random
import signal
import socket
import ssl
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

# Below the kernel's range for clients, so that none of them takes ours before the server has it.
PORTS = range(20_000, 32_000)
POLL_SECONDS = 0.02
LOG_TAIL = 8_000

READY_SECONDS = 30.0
STOP_SECONDS = 20.0
ABORT_SECONDS = 5.0


class ServerFailed(Exception):
    """The server did not start, did not stop, or stopped with a failure; carries its log."""


@dataclass(frozen=True)
class Server:
    """A server process that we started."""

    process: subprocess.Popen[bytes]
    port: int
    data_dir: Path
    log: Path
    started: float  # time.monotonic() just before the process was started
    ready_after: float = 0.0  # seconds from there to the first 200 of /readyz

    @property
    def url(self) -> str:
        return f"https://127.0.0.1:{self.port}"

    @property
    def pid(self) -> int:
        return self.process.pid

    @property
    def kubeconfig(self) -> Path:
        return self.data_dir / "admin.kubeconfig"

    def stop(self, seconds: float = STOP_SECONDS) -> None:
        """Ask the server to drain and end; raise unless it does so in time and with exit code 0."""
        if self.process.poll() is None:
            self.process.terminate()
        try:
            code = self.process.wait(seconds)
        except subprocess.TimeoutExpired:
            self.abort()
            raise ServerFailed(
                self.with_log(f"did not stop in {seconds} s after SIGTERM")
            ) from None
        if code != 0:
            raise ServerFailed(self.with_log(f"ended with exit code {code}"))

    def kill(self) -> None:
        """End the server and all it started, at once, as a power cut would."""
        with suppress(ProcessLookupError):  # it may have ended by itself
            os.killpg(self.process.pid, signal.SIGKILL)  # its own group: see start_new_session
        self.process.wait()

    def abort(self) -> None:
        """End a server that hangs, so that its log says in which functions its threads are."""
        with suppress(ProcessLookupError, subprocess.TimeoutExpired):
            os.kill(self.process.pid, signal.SIGABRT)
            self.process.wait(ABORT_SECONDS)
        self.kill()

    def is_ready(self) -> bool:
        """Whether /readyz answers 200 right now, or 401 where it is not for everybody."""
        # Readiness is asked before anything of this server can be trusted.
        tls = ssl._create_unverified_context()  # noqa: S323 -- who answers is not what is tested
        connection = http.client.HTTPSConnection("127.0.0.1", self.port, context=tls, timeout=5)
        try:
            connection.request("GET", "/readyz")
            return connection.getresponse().status in (http.client.OK, http.client.UNAUTHORIZED)
        except (OSError, http.client.HTTPException):
            return False
        finally:
            connection.close()

    def log_text(self) -> str:
        return self.log.read_text(errors="replace")

    def with_log(self, what: str) -> str:
        return f"orchid serve (pid {self.pid}) {what}; its log ends:\n{self.log_text()[-LOG_TAIL:]}"


@contextmanager
def running_server(
    data_dir: Path,
    *flags: str,
    port: int | None = None,
    env: Mapping[str, str] | None = None,
    launcher: Sequence[str] = (),
    ready_seconds: float = READY_SECONDS,
) -> Iterator[Server]:
    """Run `orchid serve` with these flags until the block ends.

    `launcher` goes before the command, for example ("taskset", "-c", "0"). A block that has ended
    the server itself, by `stop` or `kill`, is left in peace. Starting again on the same `data_dir`
    and `port` is how a restart is tested; the log is kept and continued.
    """
    server = start(data_dir, *flags, port=port, env=env, launcher=launcher)
    try:
        yield wait_until_ready(server, ready_seconds)
    except BaseException:
        server.kill()  # the failure of the block is the one to report
        raise
    if server.process.returncode is None:
        server.stop()


def start(
    data_dir: Path,
    *flags: str,
    port: int | None = None,
    env: Mapping[str, str] | None = None,
    launcher: Sequence[str] = (),
) -> Server:
    """Start the process and return at once; the caller stops it."""
    data_dir.parent.mkdir(parents=True, exist_ok=True)
    port = port or free_port()
    log = data_dir.with_name(data_dir.name + ".log")
    command = [*launcher, sys.executable, "-m", "orchid", "serve"]
    command += ["--data-dir", str(data_dir), "--listen", f"127.0.0.1:{port}", *flags]
    started = time.monotonic()
    with log.open("ab") as output:
        process = subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            env={"PYTHONFAULTHANDLER": "1", **os.environ, **(env or {})},  # see Server.abort
            start_new_session=True,
        )
    return Server(process, port, data_dir, log, started)


def wait_until_ready(server: Server, seconds: float = READY_SECONDS) -> Server:
    """Wait for /readyz; raise at once when the process ends, and at the latest after `seconds`."""
    deadline = server.started + seconds
    while not server.is_ready():
        if (code := server.process.poll()) is not None:
            raise ServerFailed(server.with_log(f"ended with exit code {code} before it was ready"))
        if time.monotonic() > deadline:
            server.abort()
            raise ServerFailed(server.with_log(f"was not ready after {seconds} s"))
        time.sleep(POLL_SECONDS)
    took = time.monotonic() - server.started
    return Server(
        server.process, server.port, server.data_dir, server.log, server.started, ready_after=took
    )


def sealing_flags(directory: Path) -> tuple[str, str]:
    """Flags by which servers over etcd encrypt Secrets; all that name one directory share a key."""
    file = directory / "encryption.yaml"
    if not file.exists():
        directory.mkdir(parents=True, exist_ok=True)
        secret = base64.b64encode(bytes(32)).decode()
        file.write_text(
            "apiVersion: apiserver.config.k8s.io/v1\nkind: EncryptionConfiguration\nresources:\n"
            "- resources: [secrets]\n  providers:\n"
            f"  - aesgcm: {{keys: [{{name: tests, secret: {secret}}}]}}\n  - identity: {{}}\n"
        )
        file.chmod(0o600)
    return "--encryption-provider-config", str(file)


def free_port() -> int:
    """Find a port on loopback that nobody listens on."""
    for port in random.SystemRandom().sample(PORTS, 100):
        with socket.socket() as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            try:
                probe.bind(("127.0.0.1", port))
            except OSError:
                continue
            return port
    raise ServerFailed("no free port found on 127.0.0.1")
