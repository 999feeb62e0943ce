"""The hostile corpus through a running server, with somebody who approves whatever is accepted.

Every sample is refused with a 4xx or, if it is a request and a platform signer signs it, the
certificate stays within the signer's profile. The server is the same process at the end, and has
logged no failure of its own. The slowest answers are printed (`-rA`), not judged: how busy the
machine is decides too much.
"""

import base64
import json
import re
import resource
import sys
import time
import unicodedata
from collections.abc import Callable, Iterator
from contextlib import closing
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from cryptography import x509
from cryptography.hazmat.primitives.asymmetric import ec, ed25519, rsa
from cryptography.x509.oid import ExtendedKeyUsageOID, ExtensionOID, NameOID

from tests.data import hostile
from tests.data.hostile import Sample
from tests.e2e.https import Https, Reply
from tests.e2e.issuing import BUNDLES, CLIENT, NODE_CLIENT, NODE_SERVING, REQUESTS, condition_types
from tests.e2e.measured_loop import Measured, kinds, measured, measured_server, report
from tests.e2e.serving import Server, running_server
from tests.linting import unexplained

TOKEN = "admin-token"
CLIENT_USAGES = ["digital signature", "client auth"]
SERVING_USAGES = ["digital signature", "server auth"]
SIGNERS = {CLIENT: CLIENT_USAGES, NODE_CLIENT: CLIENT_USAGES, NODE_SERVING: SERVING_USAGES}
LONGEST = timedelta(days=365)
SHOWN = 8
MOST_MEGABYTES = 400.0

PERMITTED_EXTENSIONS = {
    ExtensionOID.BASIC_CONSTRAINTS,
    ExtensionOID.KEY_USAGE,
    ExtensionOID.EXTENDED_KEY_USAGE,
    ExtensionOID.AUTHORITY_KEY_IDENTIFIER,
    ExtensionOID.SUBJECT_KEY_IDENTIFIER,
    ExtensionOID.SUBJECT_ALTERNATIVE_NAME,
}
HOST = re.compile(r"(?=.{1,253}$)([A-Za-z0-9_]([A-Za-z0-9_-]{0,61}[A-Za-z0-9_])?\.?)+(?<!\.)")
CURVES = ("secp256r1", "secp384r1", "secp521r1")


class Hostile:
    """One connection to the server, and how long each answer took."""

    def __init__(self, server: Server) -> None:
        self.server = server
        self.https = Https(server.port)
        self.took: list[tuple[float, str]] = []

    def send(self, what: str, method: str, target: str, body: Any) -> Reply:
        data = json.dumps(body).encode()  # our own work is not the server's
        start = time.perf_counter()
        reply = self.https.send(method, target, data, token=TOKEN)
        self.took.append((time.perf_counter() - start, what))
        return reply

    def approve(self, name: str) -> Reply:
        said = {"type": "Approved", "status": "True", "reason": "Whatever"}
        body = {"metadata": {"name": name}, "status": {"conditions": [said]}}
        return self.send(f"approval of {name}", "PUT", f"{REQUESTS}/{name}/approval", body)

    def ask(self, name: str, signer: str, usages: list[str], sample: Sample) -> Reply:
        spec = {"request": text(sample.data), "signerName": signer, "usages": usages}
        body = {"metadata": {"name": name}, "spec": spec}
        return self.send(sample.name, "POST", REQUESTS, body)

    def outcomes(self, names: set[str]) -> dict[str, dict[str, Any]]:
        """Wait until every one of these requests is issued or failed."""
        found: dict[str, dict[str, Any]] = {}
        query = "?watch=1&timeoutSeconds=60"
        with closing(self.https.events(REQUESTS + query, token=TOKEN)) as events:
            while names - found.keys():
                seen = next(events)["object"]
                name, status = seen["metadata"]["name"], seen["status"]
                if status.get("certificate") or "Failed" in condition_types(status):
                    found[name] = status
        return found

    def report(self, kind: str) -> None:
        slowest = sorted(self.took, reverse=True)[:SHOWN]
        lines = [f"{kind}: {len(self.took)} answers; the slowest, in ms:"]
        lines += (f"  {seconds * 1000:7.1f}  {what}" for seconds, what in slowest)
        sys.stdout.write("\n".join(lines) + "\n")

    def assert_unharmed(self) -> None:
        """The same process is there, ready, and has logged no failure of its own."""
        assert self.server.process.poll() is None
        assert self.https.send("GET", "/readyz").status == 200
        log = self.server.log_text()
        assert "Traceback" not in log
        assert "panic" not in log.lower()


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    directory = tmp_path_factory.mktemp("hostile")
    tokens = directory / "tokens.csv"
    tokens.write_text(f'{TOKEN},admin,uid-admin,"system:masters"\n')
    flags = ("--token-auth-file", str(tokens), "--log-level", "warning")
    with running_server(directory / "data", *flags) as started:
        yield started


@pytest.fixture
def attack(server: Server, request: pytest.FixtureRequest) -> Iterator[Hostile]:
    made = Hostile(server)
    yield made
    made.report(request.node.name)
    made.assert_unharmed()
    made.https.close()


def text(data: bytes) -> str:
    return base64.b64encode(data).decode()


def samples(kind: str) -> Iterator[Sample]:
    return (sample for sample in hostile.corpus() if sample.kind == kind)


def is_refused(reply: Reply) -> bool:
    assert reply.status < 500, reply.body
    return reply.status >= 400


@pytest.mark.filterwarnings("ignore:Attribute's length must be")  # longer than RFC 5280 likes
def test_requests_are_refused_or_signed_within_the_profile(attack: Hostile) -> None:
    """Each goes to every platform signer and is approved by somebody who never says no."""
    asked: dict[str, tuple[str, Sample]] = {}
    for number, sample in enumerate(samples(hostile.REQUEST)):
        for place, (signer, usages) in enumerate(SIGNERS.items()):
            name = f"h{number}-{place}"
            reply = attack.ask(name, signer, usages, sample)
            if reply.status == 422:
                break  # what is no request is none for any signer
            if is_refused(reply):
                continue
            assert attack.approve(name).status == 200
            asked[name] = signer, sample
    outcomes = attack.outcomes(set(asked))

    authority = x509.load_pem_x509_certificate((attack.server.data_dir / "ca.crt").read_bytes())
    issued = 0
    for name, (signer, sample) in asked.items():
        if pem := outcomes[name].get("certificate"):
            (leaf,) = x509.load_pem_x509_certificates(base64.b64decode(pem))
            problems = list(beyond_profile(leaf, signer, authority))
            assert not problems, (sample.name, signer, problems)
            assert not unexplained(leaf), (sample.name, signer, unexplained(leaf))
            issued += 1
    assert issued > 20  # or nothing was tested


def test_certificates_are_refused_or_stored_as_they_are(attack: Hostile) -> None:
    """An external signer may send any bytes as the certificate."""
    good = next(one for one in samples(hostile.REQUEST) if one.name == "request-subject-empty")
    for number, sample in enumerate(samples(hostile.CERTIFICATE)):
        name = f"c{number}"
        assert attack.ask(name, "example.com/hostile", CLIENT_USAGES, good).status == 201
        stored = attack.approve(name).json
        stored["status"]["certificate"] = text(sample.data)

        reply = attack.send(sample.name, "PUT", f"{REQUESTS}/{name}/status", stored)

        if not is_refused(reply):
            assert reply.json["status"].get("certificate", "") == text(sample.data), sample.name


def test_bundles_are_refused_or_stored_as_they_are(attack: Hostile) -> None:
    """Stored certificates can be parsed again."""
    for number, sample in enumerate(samples(hostile.BUNDLE)):
        sent = sample.data.decode("utf-8", "replace")
        body = {"metadata": {"name": f"b{number}"}, "spec": {"trustBundle": sent}}

        reply = attack.send(sample.name, "POST", BUNDLES, body)

        if not is_refused(reply):
            assert reply.json["spec"]["trustBundle"] == sent, sample.name


def test_bodies_at_their_limits_get_a_clear_answer(tmp_path: Path) -> None:
    """Every list and map of every kind, filled; how long each held the event loop is printed."""
    found: list[Measured] = []
    with measured_server(tmp_path) as measuring:
        for kind in kinds():
            found += measured(measuring, kind, sample=True)
        memory = resident_megabytes(measuring.server.pid)
        log = measuring.server.log_text()
    sys.stdout.write("\n".join(report(found, SHOWN)) + f"\n{memory:.0f} MB\n")

    assert {one.status for one in found} <= {200, 201, 400, 403, 404, 409, 413, 422}
    assert {one.status for one in found} >= {200, 201, 400, 422}
    assert "Traceback" not in log
    assert memory < MOST_MEGABYTES


def resident_megabytes(pid: int) -> float:
    pages = int(Path(f"/proc/{pid}/statm").read_text().split()[1])
    return pages * resource.getpagesize() / 1e6


# --- within the profile ---------------------------------------------------------------------------

Check = Callable[[x509.Certificate], bool]


def beyond_profile(
    leaf: x509.Certificate, signer: str, authority: x509.Certificate
) -> Iterator[str]:
    """Name everything about a certificate that its signer should not have signed."""
    leaf.verify_directly_issued_by(authority)
    for what, holds in {**COMMON, **BY_SIGNER[signer]}.items():
        if not holds(leaf):
            yield what
    if leaf.not_valid_after_utc > authority.not_valid_after_utc:
        yield "outlives its authority"


def values(leaf: x509.Certificate, oid: x509.ObjectIdentifier) -> list[str]:
    return [str(one.value) for one in leaf.subject.get_attributes_for_oid(oid)]


def groups(leaf: x509.Certificate) -> list[str]:
    return values(leaf, NameOID.ORGANIZATION_NAME)


def alternative(leaf: x509.Certificate) -> list[x509.GeneralName]:
    try:
        return list(leaf.extensions.get_extension_for_class(x509.SubjectAlternativeName).value)
    except x509.ExtensionNotFound:
        return []


def is_no_authority(leaf: x509.Certificate) -> bool:
    found = leaf.extensions.get_extension_for_class(x509.BasicConstraints)
    return found.critical and not found.value.ca and found.value.path_length is None


def signs_only(leaf: x509.Certificate) -> bool:
    usage = leaf.extensions.get_extension_for_class(x509.KeyUsage)
    return usage.critical and usage.value == x509.KeyUsage(
        True, False, False, False, False, False, False, False, False
    )


def is_for(purpose: x509.ObjectIdentifier) -> Check:
    def check(leaf: x509.Certificate) -> bool:
        found = leaf.extensions.get_extension_for_class(x509.ExtendedKeyUsage)
        return list(found.value) == [purpose]

    return check


def has_strong_key(leaf: x509.Certificate) -> bool:
    key = leaf.public_key()
    if isinstance(key, rsa.RSAPublicKey):
        return 2048 <= key.key_size <= 8192 and key.public_numbers().e % 2 == 1
    if isinstance(key, ec.EllipticCurvePublicKey):
        return key.curve.name in CURVES
    return isinstance(key, ed25519.Ed25519PublicKey)


def is_printable(leaf: x509.Certificate) -> bool:
    said = [str(attribute.value) for attribute in leaf.subject]
    said += [str(one.value) for one in alternative(leaf)]
    return not any(unicodedata.category(letter) == "Cc" for value in said for letter in value)


def is_no_master(leaf: x509.Certificate) -> bool:
    folded = (unicodedata.normalize("NFKC", name).casefold().strip() for name in groups(leaf))
    plain = ("".join(x for x in name if unicodedata.category(x) != "Cf") for name in folded)
    return "system:masters" not in plain


def has_host_names(leaf: x509.Certificate) -> bool:
    hosts = (one.value for one in alternative(leaf) if isinstance(one, x509.DNSName))
    return all(HOST.fullmatch(host) and not host.replace(".", "").isdigit() for host in hosts)


def is_node(leaf: x509.Certificate) -> bool:
    (user,) = values(leaf, NameOID.COMMON_NAME)
    return groups(leaf) == ["system:nodes"] and user.startswith("system:node:")


COMMON: dict[str, Check] = {
    "version": lambda leaf: leaf.version is x509.Version.v3,
    "serial": lambda leaf: 0 < leaf.serial_number < 2**159,
    "lifetime": lambda leaf: leaf.not_valid_after_utc - leaf.not_valid_before_utc <= LONGEST,
    "extensions": lambda leaf: {one.oid for one in leaf.extensions} <= PERMITTED_EXTENSIONS,
    "CA:false": is_no_authority,
    "key usage": signs_only,
    "key": has_strong_key,
    "control characters": is_printable,
    "length": lambda leaf: all(len(str(one.value)) <= 1024 for one in leaf.subject),
    "host names": has_host_names,
    "system:masters": is_no_master,
}
BY_SIGNER: dict[str, dict[str, Check]] = {
    CLIENT: {"purpose": is_for(ExtendedKeyUsageOID.CLIENT_AUTH)},
    NODE_CLIENT: {
        "purpose": is_for(ExtendedKeyUsageOID.CLIENT_AUTH),
        "subject": is_node,
        "names": lambda leaf: not alternative(leaf),
    },
    NODE_SERVING: {
        "purpose": is_for(ExtendedKeyUsageOID.SERVER_AUTH),
        "subject": is_node,
        "names": lambda leaf: all(
            isinstance(one, x509.DNSName | x509.IPAddress) for one in alternative(leaf)
        ),
    },
}
