"""The API server of a cluster that somebody else took over: it answers whatever a test says."""

import asyncio
import base64
import json
import ssl
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any
from urllib.parse import parse_qs, urlsplit

from orchid.features.clusters.kinds.cluster import (
    INVENTORIED,
    Cluster,
    ClusterInventory,
    ClusterSpec,
)
from orchid.features.objects.kinds.secret import Secret
from orchid.features.rights.kinds.role import Role
from orchid.features.rights.kinds.role_binding import RoleBinding, RoleRef, Subject
from orchid.kernel.credentials.x509 import pem
from orchid.kernel.wire.conditions import Condition
from orchid.kernel.wire.meta import ObjectMeta
from orchid.kernel.wire.naming import ORCH
from orchid.kernel.wire.policy_rules import rule
from orchid.kernel.wire.references import owner_reference
from orchid.kernel.wire.struct import replace
from tests.unit.features.beside import Beside
from tests.unit.kernel.credentials import unusual
from tests.unit.kernel.credentials.samples import P256
from tests.unit.kernel.outbound.loopback import CA, PEM

HOME = ORCH.system_namespace
SUBJECT = "system:serviceaccount:kube-system:reader"


def authority(**parts: Any) -> str:
    """The client authority of the cluster, in PEM."""
    subject = unusual.name(unusual.text("ca"))
    data = unusual.certificate(unusual.AUTHORITY, subject=subject, signer=P256, **parts)
    return pem.encode(pem.CERTIFICATE, data).decode()


AUTHORITY = authority()


def issued(name: str, *extensions: bytes, **parts: Any) -> bytes:
    """A certificate of the authority of the cluster."""
    subject = unusual.name(unusual.text(name))
    return unusual.certificate(
        unusual.CLIENT, *extensions, **{"subject": subject, "signer": P256, **parts}
    )


def request(certificate: bytes, name: str = "laptop") -> dict[str, Any]:
    """A certificate request of the cluster, and the certificate that it got."""
    text = base64.b64encode(pem.encode(pem.CERTIFICATE, certificate)).decode()
    return {
        "metadata": {"name": name, "uid": name, "creationTimestamp": "2026-01-01T00:00:00Z"},
        "spec": {"signerName": "kubernetes.io/kube-apiserver-client", "username": "alice"},
        "status": {"certificate": text},
    }


def page(*items: Any, after: str = "") -> bytes:
    meta = {"resourceVersion": "1", "continue": after}
    return json.dumps({"kind": "List", "metadata": meta, "items": items}).encode()


def token(iat: Any, exp: Any, sub: str = SUBJECT) -> str:
    """Claims as text, since JSON of Python has no 1e400."""
    claims = f'{{"sub": {json.dumps(sub)}, "iat": {iat}, "exp": {exp}}}'.encode()
    return f"e30.{base64.urlsafe_b64encode(claims).decode().rstrip('=')}.c2ln"


class ForeignServer:
    """An API server over TLS; its answers are attributes."""

    def __init__(self) -> None:
        self.pages: Callable[[dict[str, list[str]]], bytes] = lambda _: page()
        self.status = "200 OK"
        self.watch = b""  # sent to every watch, which stays open
        self.issued = ""  # the answer to a request for a token
        self.limits: list[int] = []  # of the pages that were asked for
        self.asked_tokens = 0
        self.port = 0
        self._watching: set[asyncio.StreamWriter] = set()

    def end_watches(self) -> None:
        """So that everything is listed again."""
        for writer in self._watching:
            writer.close()

    def kubeconfig(self, credential: str = "plain") -> bytes:
        authority = base64.b64encode(PEM.encode()).decode()
        server = {
            "server": f"https://127.0.0.1:{self.port}",
            "certificate-authority-data": authority,
        }
        return json.dumps(
            {
                "current-context": "c",
                "contexts": [{"name": "c", "context": {"cluster": "c", "user": "u"}}],
                "clusters": [{"name": "c", "cluster": server}],
                "users": [{"name": "u", "user": {"token": credential}}],
            }
        ).encode()

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            head = (await reader.readuntil(b"\r\n\r\n")).decode()
            method, target, _ = head.split(" ", 2)
            query = parse_qs(urlsplit(target).query)
            if method == "POST":
                self.asked_tokens += 1
                body = json.dumps({"status": {"token": self.issued}}).encode()
                writer.write(_head("201 Created", body) + body)
            elif "watch" in query:
                self._watching.add(writer)
                writer.write(b"HTTP/1.1 200 OK\r\nConnection: close\r\n\r\n" + self.watch)
                await reader.read()
            else:
                self.limits.append(int(query["limit"][0]))
                body = self.pages(query)
                writer.write(_head(self.status, body) + body)
            await writer.drain()
        except (ConnectionError, ssl.SSLError, asyncio.IncompleteReadError):
            pass
        finally:
            self._watching.discard(writer)
            writer.close()


def _head(status: str, body: bytes) -> bytes:
    return f"HTTP/1.1 {status}\r\nContent-Length: {len(body)}\r\n\r\n".encode()


@asynccontextmanager
async def foreign_server() -> AsyncIterator[ForeignServer]:
    server = ForeignServer()
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    CA.issue_cert("127.0.0.1").configure_cert(context)
    listening = await asyncio.start_server(server.serve, "127.0.0.1", 0, ssl=context)
    server.port = listening.sockets[0].getsockname()[1]
    try:
        yield server
    finally:
        listening.close()


async def registered(
    world: Beside, name: str, kubeconfig: bytes, authorities: str = AUTHORITY
) -> None:
    """The Cluster, its Secret and the Role for it, as `orchid cluster add` makes them.

    The inventory comes last, so that the controller never misses the Secret.
    """
    spec = ClusterSpec(issuer=f"https://{name}.example", client_authorities=authorities)
    cluster = await world.admin.create(Cluster(metadata=ObjectMeta(name=name), spec=spec))
    meta = ObjectMeta(name=f"cluster-{name}", namespace=HOME)
    owned = replace(meta, owner_references=(owner_reference(cluster, f"{ORCH.identity}/v1beta1"),))
    await world.admin.create(Secret(metadata=owned, data={"kubeconfig": kubeconfig}))
    permitted = rule(("get", "update"), "", ("secrets",), meta.name)
    await world.admin.create(Role(metadata=meta, rules=(permitted,)))
    subject = Subject(kind="ServiceAccount", name="cluster-inventory", namespace=HOME)
    reference = RoleRef(api_group=ORCH.rbac, kind="Role", name=meta.name)
    binding = RoleBinding(metadata=meta, subjects=(subject,), role_ref=reference)
    await world.admin.create(binding)
    inventory = ClusterInventory(secret_name=meta.name)
    await world.admin.update(replace(cluster, spec=replace(spec, inventory=inventory)))


async def inventoried(world: Beside, name: str, status: str = "") -> Condition:
    """The condition of a cluster, once it has one, or one with this status."""

    async def look() -> Condition | None:
        conditions = (await world.admin.get(Cluster, name)).status.conditions
        fitting = (one for one in conditions if one.type == INVENTORIED)
        return next((one for one in fitting if status in ("", one.status)), None)

    return await world.until(look)
