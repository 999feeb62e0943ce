"""The identity of the host at its server: joined once, renewed before it ends, replaced if refused.

`HostIdentity.access()` is the credential of the host now. Without one, or with an expired one, only
`join` helps: it uses the join file that `orchid host new` wrote, creates the Node and removes the
file. With `join: {kubeconfig: FILE}` the identity is that of the file, and nothing is renewed.
"""

import datetime
import logging
from collections import Counter
from pathlib import Path
from typing import Final, NamedTuple

import msgspec

from orchid.features.hosts.agent.calls import Alive, Clocks, IdentityRefused, ServerCalls, calling
from orchid.features.hosts.agent.configuration import Join
from orchid.features.hosts.agent.generations import (
    OutputFile,
    OutputRefused,
    Permissions,
    read_current,
    write_generation,
)
from orchid.features.hosts.agent.held_certificate import (
    HeldCertificate,
    RequestedNames,
    read_held,
    refuse_unfit,
    renewal_time,
)
from orchid.features.hosts.agent.requesting import WantedCertificate, obtain
from orchid.features.hosts.agent.state_directory import StateDirectory
from orchid.features.hosts.agent.trust import has_common_anchor
from orchid.kernel.base.clock import utc
from orchid.kernel.credentials import keys
from orchid.kernel.credentials.secret import SecretValue
from orchid.kernel.credentials.x509 import pem
from orchid.kernel.credentials.x509.certificates import encode
from orchid.kernel.credentials.x509.usages import CLIENT_AUTH, DIGITAL_SIGNATURE
from orchid.kernel.outbound import exec_plugin, kubeconfig
from orchid.kernel.outbound.api_connection import Json, path
from orchid.kernel.outbound.kubeconfig import ServerAccess, UnusableKubeconfig
from orchid.kernel.wire.naming import Naming
from orchid.kernel.wire.user import NODE_PREFIX, NODES

log = logging.getLogger(__name__)

ITEM: Final = "_host"  # no output can have this name
CERTIFICATE, KEY, AUTHORITY, SERVER = "node.crt", "node.key", "ca.crt", "server.json"
KEY_TYPE: Final = "ECDSA-P256"
PLUGIN_SECONDS: Final = 30.0  # nobody answers its questions, and the watchdog waits for 90


class NoIdentity(Exception):
    """The host has no usable credential; the message says what to do."""


class JoinedServer(msgspec.Struct, frozen=True):
    """The server that the host has joined, and its name there."""

    server: str
    host: str
    server_name: str = ""


class JoinAttempt(NamedTuple):
    """Cached answers of a join that waits for its certificate."""

    access: ServerAccess
    host: str
    naming: Naming


class HostIdentity:
    """The identity in the state directory, or in a kubeconfig of somebody else."""

    def __init__(
        self,
        join: Join,
        state: StateDirectory,
        clocks: Clocks,
        counts: Counter[str],
        alive: Alive = lambda: None,
    ) -> None:
        """`alive` is called before each request of a join."""
        self._join, self._state = join, state
        self.clocks, self._counts = clocks, counts
        self._alive = alive
        self._is_node_created = False
        self._other_host = self._other_server = ""  # of join.kubeconfig
        self._attempt: JoinAttempt | None = None
        self.naming: Naming | None = None  # of the server, once it has answered
        self._load()

    def _load(self) -> None:
        files = {} if self._join.kubeconfig else read_current(self._state.identity)
        self.held = read_held(files.get(CERTIFICATE, b""), files.get(KEY, b""))
        self._authority = files.get(AUTHORITY, b"")
        try:
            self._server = msgspec.json.decode(files.get(SERVER, b""), type=JoinedServer)
        except msgspec.MsgspecError:
            self._server = JoinedServer("", "")
            self.held = None

    @property
    def host(self) -> str:
        """The name of the host; empty if the identity is not that of a node."""
        return self._other_host or self._server.host

    @property
    def server(self) -> str:
        return self._other_server or self._server.server

    @property
    def join_file(self) -> Path | None:
        file = Path(self._join.file) if self._join.file else None
        return file if file is not None and file.exists() else None

    @property
    def certificate_pem(self) -> bytes:
        assert self.held is not None
        return b"".join(pem.encode(pem.CERTIFICATE, encode(one)) for one in self.held.chain)

    def is_usable(self) -> bool:
        """Whether there is a credential that has not expired."""
        if self._join.kubeconfig:
            return True
        return self.held is not None and self.held.end > self.clocks.now()

    def access(self) -> ServerAccess:
        """The current credential of the host."""
        if self._join.kubeconfig:
            return self._other_access()
        if self.held is None:
            raise NoIdentity(f"this host has not joined; {self.advice()}")
        if not self.is_usable():
            end, now = utc(self.held.end), utc(self.clocks.now())
            raise NoIdentity(
                f"the certificate of this host has expired: it ended at {end}, and it is "
                f"{now}. If that is right, {self.advice()}"
            )
        return ServerAccess(
            server=self._server.server,
            user=self._server.host,
            authority=self._authority,
            server_name=self._server.server_name,
            certificate=self.certificate_pem,
            key=SecretValue(keys.encode_private(self.held.key)),
        )

    def advice(self) -> str:
        """Advice to the operator of a host without an identity."""
        host = self._server.host or "HOST"
        return f"write a join file to {self._join.file}: orchid host new {host} --replace"

    def _other_access(self) -> ServerAccess:
        file = Path(self._join.kubeconfig)
        try:
            access = kubeconfig.read([file], plugins=True)
            self._other_server = access.server
            self._alive()
            return exec_plugin.logged_in(access, self.clocks.local(), PLUGIN_SECONDS)
        except UnusableKubeconfig as problem:
            raise NoIdentity(str(problem)) from None

    # -- joining -----------------------------------------------------------------------------

    def join(self, file: Path) -> None:
        """Get the first certificate with a join file; Waiting if it is not approved yet."""
        try:
            access = kubeconfig.read([file])
        except UnusableKubeconfig as problem:
            raise NoIdentity(str(problem)) from None
        attempt = self._attempt if self._attempt and self._attempt.access == access else None
        naming = attempt.naming if attempt else None
        with calling(access, self.clocks, self._counts, naming, self._alive) as calls:
            try:
                host = attempt.host if attempt else _bound_host(calls)
                if not host:
                    raise NoIdentity(f"{file} is bound to no host; write one with: orchid host new")
                self._attempt = JoinAttempt(access, host, calls.naming)
                held = self._obtain(calls, host)
            except IdentityRefused:
                raise NoIdentity(
                    f"the server does not accept the token in {file}: it may have expired; "
                    "write a new one with: orchid host new"
                ) from None
            refuse_unfit(held, _names(host), self.clocks.now())
        server = JoinedServer(access.server, host, access.server_name)
        self._write(held, access.authority, server)
        self._attempt, self.naming = None, calls.naming
        log.info("joined as %s until %s", host, utc(held.end))

    def finish_join(self, calls: ServerCalls) -> None:
        """Create the Node, once, and remove a join file that is no longer needed."""
        is_first = self.naming is None
        self.naming = calls.naming
        if self._join.kubeconfig:
            self._other_host = _node_name(calls) if is_first else self._other_host
            return
        file = self.join_file
        if self._is_node_created and file is None:
            return
        body = {"apiVersion": "v1", "kind": "Node", "metadata": {"name": self.host}}
        nodes = path("api", "v1", "nodes")
        # A host with a join file has joined just now: its Node is most likely missing.
        if file is not None or calls.find(f"{nodes}/{self.host}") is None:
            calls.create(nodes, body)
        self._is_node_created = True
        if file is not None:
            try:
                file.unlink(missing_ok=True)
            except OSError as error:
                log.warning("cannot remove the join file %s: %s", file, error.strerror)
            else:
                log.info("removed the join file %s", file)

    # -- renewal -----------------------------------------------------------------------------

    def renewal_time(self, calls: ServerCalls) -> datetime.datetime | None:
        """When to renew; None if this identity is not ours to renew."""
        return renewal_time(calls, self.held) if self.held is not None else None

    def renew(self, calls: ServerCalls) -> None:
        """Get the next certificate with the current one."""
        held = self._obtain(calls, self.host)
        refuse_unfit(held, _names(self.host), self.clocks.now())
        self._write(held, self._authority, self._server)
        log.info("renewed the certificate of %s until %s", self.host, utc(held.end))

    def follow_authority(self, bundle: bytes) -> None:
        """Replace the CAs of the server by its bundle, if the two overlap."""
        if self.held is None or not self._authority:
            return
        if bundle and bundle != self._authority and has_common_anchor(bundle, self._authority):
            self._write(self.held, bundle, self._server)
            log.info("the server has a new bundle of authorities")

    def _obtain(self, calls: ServerCalls, host: str) -> HeldCertificate:
        # A denial is not stored: a new join file is tried after a restart.
        return obtain(calls, self._state, self._wanted(calls, host), keeps_denial=False)

    def _wanted(self, calls: ServerCalls, host: str) -> WantedCertificate:
        return WantedCertificate(
            item=ITEM,
            host=host,
            signer=calls.naming.node_client_signer,
            key_type=KEY_TYPE,
            names=_names(host),
            groups=(NODES,),
            usages=(DIGITAL_SIGNATURE, CLIENT_AUTH),
            seconds=self._join.lifetime,
        )

    def _write(self, held: HeldCertificate, authority: bytes, server: JoinedServer) -> None:
        chain = b"".join(
            pem.encode(pem.CERTIFICATE, encode(certificate)) for certificate in held.chain
        )
        files = [
            OutputFile(CERTIFICATE, chain),
            OutputFile(KEY, keys.encode_private(held.key).encode(), is_secret=True),
            OutputFile(SERVER, msgspec.json.encode(server)),
        ]
        if authority:
            files.append(OutputFile(AUTHORITY, authority))
        write_generation(self._state.identity, files, Permissions(), self.clocks.local())
        self._state.drop_request(ITEM)
        self._load()
        if self.held is None:
            raise OutputRefused(f"cannot read {self._state.identity} after writing it")


def _names(host: str) -> RequestedNames:
    return RequestedNames(common_name=f"{NODE_PREFIX}{host}")


def _bound_host(calls: ServerCalls) -> str:
    """The host that the token of a join file is bound to."""
    extra = _own_user(calls).get("extra") or {}
    values = extra.get(calls.naming.bound_node_name) or [""]
    return str(values[0])


def _node_name(calls: ServerCalls) -> str:
    user = str(_own_user(calls).get("username", ""))
    return user.removeprefix(NODE_PREFIX) if user.startswith(NODE_PREFIX) else ""


def _own_user(calls: ServerCalls) -> Json:
    url = calls.group("authentication", "v1", "selfsubjectreviews")
    body = {"apiVersion": f"{calls.naming.authentication}/v1", "kind": "SelfSubjectReview"}
    found = (calls.post(url, body).get("status") or {}).get("userInfo")
    return found if isinstance(found, dict) else {}
