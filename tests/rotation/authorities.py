"""Show a rotation of an authority under load: no handshake fails, whatever a client trusts.

    python -m tests.rotation.authorities --handshakes 200 --seconds 20

nginx serves with a certificate of the old key and with one of the new key, and asks for client
certificates. Clients connect all the time: Python's ssl at the given rate, curl, Java with both
sorts of store, `openssl verify -crl_check_all`, and kubectl with the kubeconfig of the first day.
Some trust what they fetched on the first day, some what is published now. Meanwhile the key of
`web` is replaced, that of the platform's authority if it is an object, and the server's own
certificate changes twice; connections to it stay open. Every rejection ends it with exit code 1.
"""

import argparse
import contextlib
import json
import os
import random
import shutil
import signal
import socket
import ssl
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from http.client import HTTPException, HTTPSConnection
from pathlib import Path

from cryptography import x509

from tests.e2e.kubectl import Kubectl, Said
from tests.e2e.person import Person
from tests.e2e.serving import Server, free_port, running_server
from tests.e2e.test_authority_rotation import CONFIGURATION, HOST, KEYS, certified, curl
from tests.rotation.tokens import Unexpected, require, say, summed_up

FLAGS = ("--token-key-publish-time", "2s", "--service-account-jwks-max-age", "1s")
PROGRAMS = ("nginx", "openssl", "curl", "kubectl", "java")
PATIENCE = 180.0
CONNECTIONS = 5  # that stay open
REFRESH = 1.0  # seconds between two fetches of bundle and lists

JAVA = """
import java.io.*; import java.net.Socket; import java.security.KeyStore; import javax.net.ssl.*;
public class Handshake {
  public static void main(String[] words) throws Exception {
    var lines = new BufferedReader(new InputStreamReader(System.in));
    for (String line; (line = lines.readLine()) != null; ) {
      var given = line.split(" ");
      try { shake(Integer.parseInt(given[0]), given[1], given[2], given[3]); System.out.println(); }
      catch (Exception problem) { System.out.println(problem); }
    }
  }
  static void shake(int port, String host, String store, String password) throws Exception {
    var trusted = KeyStore.getInstance("PKCS12");
    try (var file = new FileInputStream(store)) {
      trusted.load(file, password.equals("-") ? null : password.toCharArray());
    }
    var managers = TrustManagerFactory.getInstance("PKIX");
    managers.init(trusted);
    var context = SSLContext.getInstance("TLS");
    context.init(null, managers.getTrustManagers(), null);
    try (var plain = new Socket("127.0.0.1", port);
         var tls = (SSLSocket) context.getSocketFactory().createSocket(plain, host, port, true)) {
      var parameters = tls.getSSLParameters();
      parameters.setEndpointIdentificationAlgorithm("HTTPS");
      tls.setSSLParameters(parameters);
      tls.startHandshake();
    }
  }
}
"""


@dataclass
class Outcomes:
    """How often each client was accepted, and how long handshakes took in each phase."""

    counts: Counter[tuple[str, str, str]] = field(default_factory=Counter)
    reasons: Counter[str] = field(default_factory=Counter)
    times: dict[str, list[float]] = field(default_factory=lambda: defaultdict(list))
    phase: str = "before"
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def add(self, program: str, what: str, problem: str, seconds: float = 0.0) -> None:
        with self._lock:
            self.counts[program, what, "rejected" if problem else "accepted"] += 1
            if problem:
                self.reasons[f"{program}, {what}: {problem[:200]}"] += 1
            if seconds:
                self.times[self.phase].append(seconds)

    @property
    def rejected(self) -> int:
        return sum(number for (*_, outcome), number in self.counts.items() if outcome == "rejected")


class Demonstration:
    """A server, nginx with two certificates, and their clients."""

    def __init__(self, server: Server, home: Path, chosen: argparse.Namespace) -> None:
        self.server, self.home, self.chosen = server, home, chosen
        self.outcomes = Outcomes()
        self.admin = Person(home, server.kubeconfig)
        self.first_day = shutil.copy(server.kubeconfig, home / "first-day.kubeconfig")
        self.ports = {"old": free_port(), "new": free_port()}
        self.has_new = False
        self._stop = threading.Event()
        self._threads: list[threading.Thread] = []
        self._fetched: dict[str, Path] = {}  # a directory for each edition; it never changes
        self._random = random.Random(1)
        self._connections = [OpenConnection(server.port, self.outcomes) for _ in range(CONNECTIONS)]

    def run(self) -> None:
        self._prepare()
        with self._nginx(), self._java() as java:
            self._begin(java)
            try:
                self._rotate()
            finally:
                self._stop.set()
                for thread in self._threads:
                    thread.join(60)
                for connection in self._connections:
                    connection.close()
        self._report()

    # -- before ------------------------------------------------------------------------------

    def _prepare(self) -> None:
        usages = ("digital signature", "server auth", "client auth")
        words = [word for usage in usages for word in ("--usage", usage)]
        self.admin.types("ca", "new", "web", "--signer", "example.com/web", *words)
        certified(self.admin, "old")
        for name in ("crt", "key"):
            shutil.copy(self.home / f"old.{name}", self.home / f"new.{name}")
        self._until(lambda: self._fetch("first"), "a bundle and a list")
        self._until(lambda: self._fetch("now"), "a bundle and a list")
        (self.home / "Handshake.java").write_text(JAVA)
        say("an authority, nginx with its certificate, clients with its root")

    def _fetch(self, name: str) -> bool:
        """Fetch the bundle in three forms, and the lists, as clients do; whether all were there."""
        place = Path(tempfile.mkdtemp(prefix=f"{name}-", dir=self.home))
        for path in ("trust/web.pem", "trust/web.p12", "trust/web.nopassword.p12", "crl/web.pem"):
            command = ["curl", "-sSf", "--cacert", str(self.server.data_dir / "ca.crt")]
            file = place / path.replace("/", "-")
            done = subprocess.run(
                [*command, "-o", file, f"{self.server.url}/{path}"], check=False,
                stderr=subprocess.DEVNULL,
            )  # fmt: skip
            if done.returncode:
                return False
        self._fetched[name] = place
        return True

    def _bundle(self, name: str, form: str = "pem") -> str:
        return str(self._fetched[name] / f"trust-web.{form}")

    def _lists(self, name: str) -> str:
        return str(self._fetched[name] / "crl-web.pem")

    def _configure_nginx(self) -> None:
        """Trust what is published now, like any server that fetches it."""
        for source, target in ((self._bundle("now"), "now.pem"), (self._lists("now"), "lists.pem")):
            fresh = self.home / f"{target}.part"
            shutil.copy(source, fresh)
            fresh.replace(self.home / target)

    @contextlib.contextmanager
    def _nginx(self) -> Iterator[None]:
        self._configure_nginx()
        text = CONFIGURATION.format(
            clients="now.pem", old_port=self.ports["old"], new_port=self.ports["new"]
        )
        (self.home / "nginx.conf").write_text(text)
        command = ["nginx", "-e", "error.log", "-p", str(self.home), "-c", self.home / "nginx.conf"]
        subprocess.run(command, check=True, cwd=self.home)
        pid = self.home / "nginx.pid"
        self._until(pid.exists, "nginx")
        try:
            yield
        finally:
            os.kill(int(pid.read_text()), signal.SIGTERM)

    @contextlib.contextmanager
    def _java(self) -> Iterator[subprocess.Popen[str]]:
        process = subprocess.Popen(
            ["java", "Handshake.java"],
            cwd=self.home, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, bufsize=1,
        )  # fmt: skip
        assert process.stdin is not None
        assert process.stdout is not None
        try:
            yield process
        finally:
            process.stdin.close()
            process.terminate()
            process.wait(30)
            process.stdout.close()

    # -- clients -----------------------------------------------------------------------------

    def _begin(self, java: subprocess.Popen[str]) -> None:
        for _ in range(threads := 4):
            self._client(self._shake, threads / self.chosen.handshakes)
        for act in (self._curl, self._openssl, self._kubectl, lambda: self._java_shakes(java)):
            self._client(act, 0.5)
        self._client(self._refresh, REFRESH)
        for connection in self._connections:
            self._client(connection.ask, 0.5)

    def _client(self, act: Callable[[], None], period: float) -> None:
        def run() -> None:
            due = time.monotonic()
            while not self._stop.wait(max(due - time.monotonic(), 0)):
                act()
                due = max(due + period, time.monotonic() - 1)

        thread = threading.Thread(target=run, daemon=True)
        thread.start()
        self._threads.append(thread)

    def _pair(self) -> tuple[str, str, str]:
        """A leaf that serves, the anchors of a client, and its own leaf."""
        leaves = ("old", "new") if self.has_new else ("old",)
        return (
            self._random.choice(leaves),
            self._random.choice(self._anchors()),
            self._random.choice(leaves),
        )

    def _anchors(self) -> tuple[str, ...]:
        return ("first", "eve", "now") if "eve" in self._fetched else ("first", "now")

    def _shake(self) -> None:
        leaf, anchors, own = self._pair()
        begun = time.monotonic()
        problem = ""
        try:
            context = ssl.create_default_context(cafile=self._bundle(anchors))
            context.load_cert_chain(self.home / f"{own}.crt", self.home / f"{own}.key")
            with (
                socket.create_connection(("127.0.0.1", self.ports[leaf]), timeout=20) as plain,
                context.wrap_socket(plain, server_hostname=HOST) as tls,
            ):
                tls.sendall(f"GET / HTTP/1.0\r\nHost: {HOST}\r\n\r\n".encode())
                answer = b"".join(iter(lambda: tls.recv(4096), b""))
            if not answer.endswith(b"SUCCESS"):
                problem = f"nginx says {answer[-200:]!r} of the {own} certificate"
        except OSError as failure:
            problem = repr(failure)
        self.outcomes.add(
            "ssl", f"{leaf} leaf, roots of {anchors}", problem, time.monotonic() - begun
        )

    def _curl(self) -> None:
        leaf, anchors, own = self._pair()
        found = curl(self.home, self.ports[leaf], self._bundle(anchors), own)
        problem = "" if found == "SUCCESS" else f"{found or 'no answer'} for the {own} certificate"
        self.outcomes.add("curl", f"{leaf} leaf, roots of {anchors}", problem)

    def _openssl(self) -> None:
        leaf, anchors, _ = self._pair()
        # The list of a key is published with it: one that was fetched before it signed is enough.
        lists = self._random.choice([one for one in ("eve", "now") if one in self._fetched])
        command = ["openssl", "verify", "-x509_strict", "-crl_check_all"]
        command += ["-CRLfile", self._lists(lists), "-CAfile", self._bundle(anchors)]
        done = subprocess.run(
            [*command, "-untrusted", f"{leaf}.crt", f"{leaf}.crt"],
            cwd=self.home, capture_output=True, text=True, check=False,
        )  # fmt: skip
        problem = done.stderr if done.returncode else ""
        self.outcomes.add("openssl verify", f"{leaf} leaf, roots of {anchors}", problem)

    def _java_shakes(self, java: subprocess.Popen[str]) -> None:
        leaf, anchors, _ = self._pair()
        for store, password in (("p12", "changeit"), ("nopassword.p12", "-")):
            assert java.stdin is not None
            assert java.stdout is not None
            file = self._bundle(anchors, store)
            java.stdin.write(f"{self.ports[leaf]} {HOST} {file} {password}\n")
            line = java.stdout.readline()
            problem = line.strip() if line else "java has ended"
            self.outcomes.add("Java", f"{leaf} leaf, roots of {anchors}", problem)

    def _kubectl(self) -> None:
        said = Kubectl(Path(self.first_day), self.home).run("get", "namespace", "default")
        self.outcomes.add("kubectl", "kubeconfig of the first day", said.err if said.code else "")

    def _refresh(self) -> None:
        """What is published now, for clients and for nginx, which is reloaded with it."""
        before = self._fetched["now"]
        if not self._fetch("now"):
            self.outcomes.add("curl", "fetches bundle and lists", "it could not")
        elif any(
            (before / file.name).read_bytes() != file.read_bytes()
            for file in self._fetched["now"].glob("*.pem")
        ):
            self._configure_nginx()
            self._reload()

    def _reload(self) -> None:
        os.kill(int((self.home / "nginx.pid").read_text()), signal.SIGHUP)

    # -- run 2 -------------------------------------------------------------------------------

    def _rotate(self) -> None:
        time.sleep(self.chosen.seconds)
        self.outcomes.phase = "during"
        self._rotate_authority("web")
        certified(self.admin, "fresh")
        for name in ("crt", "key"):
            (self.home / f"fresh.{name}").replace(self.home / f"new.{name}")
        fresh = x509.load_pem_x509_certificate((self.home / "new.crt").read_bytes())
        self._reload()
        self._until(lambda: served(self.ports["new"]) == fresh.serial_number, "the new leaf")
        self.has_new = True
        say("nginx serves with a certificate of web-2 too")
        time.sleep(self.chosen.seconds)
        names = [row[0] for row in self._kubectl_of_admin("get", "signingkeys").rows]
        if "cluster-1" in names:
            self._rotate_authority("cluster")
        else:
            say("the platform's authority is no object here: its key stays")
        for _ in range(self.chosen.changes):
            self._change_serving_certificate()
        self.outcomes.phase = "after"
        time.sleep(self.chosen.seconds)

    def _kubectl_of_admin(self, *words: str) -> Said:
        return Kubectl(self.server.kubeconfig, self.home)(*words)

    def _rotate_authority(self, name: str) -> None:
        """By command; unless asked to wait, the time of the publication is put back."""
        key = f"{name}-2"
        wait = f"{max(self.chosen.wait, 60)}s"
        self.admin.types("ca", "rotate", name)
        if name == "web":
            self._until(self._has_eve, f"the root and the list of {key}")
        if not self.chosen.wait:
            self._until(lambda: self._put_back(key), f"the publication of {key}")
        self.admin.types("ca", "rotate", name, "--wait", wait)
        self._until(
            lambda: (
                key in self.admin.types("ca", "show", name).stdout.split("Keys")[1].split("\n")[0]
            ),
            f"a signature of {key}",
        )
        say(f"{key} signs")

    def _has_eve(self) -> bool:
        """Fetch what a verifier has that fetches nothing after the activation."""
        return (
            self._fetch("eve")
            and Path(self._bundle("eve")).read_text().count("BEGIN CERTIFICATE") > 1
            and Path(self._lists("eve")).read_text().count("BEGIN X509 CRL") > 1
        )

    def _put_back(self, name: str) -> bool:
        key = json.loads(self._kubectl_of_admin("get", "--raw", f"{KEYS}/{name}").out)
        if "published" not in key["status"]["times"]:
            return False  # not every server has it yet
        since = (datetime.now(UTC) - timedelta(days=2)).strftime("%Y-%m-%dT%H:%M:%SZ")
        key["status"]["times"]["published"] = since
        del key["metadata"]["resourceVersion"]  # the leader may write, too
        words = ("replace", "--raw", f"{KEYS}/{name}/status", "-f", "-")
        return (
            Kubectl(self.server.kubeconfig, self.home).run(*words, stdin=json.dumps(key)).code == 0
        )

    def _change_serving_certificate(self) -> None:
        """A certificate that is gone is issued again while the server runs."""
        before = served(self.server.port)
        (self.server.data_dir / "serving.crt").unlink()
        self._until(lambda: served(self.server.port) != before, "another serving certificate")
        say("the server has another serving certificate")

    def _until(self, holds: Callable[[], bool], what: str) -> None:
        deadline = time.monotonic() + PATIENCE
        while not holds():
            require(time.monotonic() < deadline, f"{what} never came")
            time.sleep(0.2)

    def _report(self) -> None:
        for (program, what, outcome), number in sorted(self.outcomes.counts.items()):
            say(f"{program:15} {what:32} {outcome:9} {number}")
        for phase in ("before", "during", "after"):
            say(f"{phase:7} {summed_up(self.outcomes.times[phase])}")
        for reason, number in self.outcomes.reasons.most_common(10):
            say(f"{number} times {reason}")
        say(f"rejected: {self.outcomes.rejected}")
        require(not self.outcomes.rejected, f"{self.outcomes.rejected} rejected")


def served(port: int) -> int:
    """The serial number of a server's certificate."""
    pem = ssl.get_server_certificate(("127.0.0.1", port))
    return x509.load_pem_x509_certificate(pem.encode()).serial_number


class OpenConnection:
    """A connection to the server that is never opened again."""

    def __init__(self, port: int, outcomes: Outcomes) -> None:
        tls = ssl._create_unverified_context()  # noqa: S323 -- only that it stays open is tested
        self._connection = HTTPSConnection("127.0.0.1", port, context=tls, timeout=30)
        self._connection.connect()
        self._connection.auto_open = 0
        self._outcomes = outcomes

    def ask(self) -> None:
        problem = ""
        try:
            self._connection.request("GET", "/readyz")
            answer = self._connection.getresponse()
            answer.read()
            problem = "" if answer.status == 200 else f"status {answer.status}"
        except (OSError, HTTPException) as failure:
            problem = repr(failure)
        self._outcomes.add("open connection", "to the server", problem)

    def close(self) -> None:
        self._connection.close()


@contextlib.contextmanager
def demonstration(home: Path, chosen: argparse.Namespace) -> Iterator[Demonstration]:
    with running_server(home / "data", *FLAGS) as server:
        place = home / "clients"
        place.mkdir()
        yield Demonstration(server, place, chosen)


def arguments() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(description="Show a rotation of an authority under load.")
    add: Callable[..., argparse.Action] = parser.add_argument
    add("--handshakes", type=float, default=50, help="per second (default: 50)")
    add("--seconds", type=float, default=10, help="before, between and after (default: 10)")
    add("--changes", type=int, default=2, help="of the serving certificate (default: 2)")
    add("--wait", type=int, default=0, help="seconds to wait for the publication; 0: put it back")
    return parser


def main(words: list[str] | None = None) -> int:
    chosen = arguments().parse_args(words)
    missing = [program for program in PROGRAMS if shutil.which(program) is None]
    if missing:
        sys.stderr.write(
            f"not installed: {', '.join(missing)}; scripts/system-packages does that\n"
        )
        return 2
    with tempfile.TemporaryDirectory() as directory:
        try:
            with demonstration(Path(directory), chosen) as shown:
                shown.run()
        except Unexpected as problem:
            sys.stderr.write(f"not as it should be: {problem}\n")
            return 1
    say("all as it should be")
    return 0


if __name__ == "__main__":
    sys.exit(main())
