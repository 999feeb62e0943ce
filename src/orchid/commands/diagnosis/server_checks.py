"""Checks of a running server: health, version, clock, issuer, secrets, roles, ledger.

`SERVER_CHECKS` lists them. They run as the administrator of the data directory, and are read-only.
A server that was stopped is no fault; the lock of the store shows that.
"""

import contextlib
import datetime
import fcntl
import json
import re
import ssl
import urllib.request
from collections.abc import Iterator
from http import HTTPStatus
from typing import Any, Final

from orchid.assembly.components import default_policy
from orchid.commands.diagnosis.bundle_checks import bundles
from orchid.commands.diagnosis.grant_checks import grants_of_accounts
from orchid.commands.diagnosis.key_checks import stored_keys, url_of
from orchid.commands.server import status
from orchid.features.rights.settings import RightsSettings
from orchid.features.token_keys.files.signing_key_file import signing_key_file
from orchid.features.token_keys.settings import stores_token_keys
from orchid.kernel.base.version import __version__
from orchid.kernel.credentials import keys
from orchid.kernel.settings.checking import Settings
from orchid.kernel.settings.data_directory import DataDirectory
from orchid.kernel.terminal import kubeconfig_file, times
from orchid.kernel.terminal.connection import (
    UNAUTHORIZED,
    CommandRefused,
    ServerConnection,
    path,
)
from orchid.kernel.terminal.findings import Check, Finding, Installation, good, note, wrong
from orchid.kernel.terminal.kubeconfig_file import FoundKubeconfig
from orchid.kernel.terminal.output import Complaint
from orchid.kernel.tlog.checkpoints import Checkpoint

SKEW: Final = datetime.timedelta(seconds=60)
NONE: Final = datetime.timedelta()
SECONDS: Final = 10
LARGEST_DOCUMENT: Final = 1 << 20
MOST_NAMED: Final = 5
LONGEST_WAIT: Final = 60.0  # seconds that an entry of the ledger may wait for its index
LEDGER_METRICS: Final = re.compile(r"^orchid_ledger_(\w+) (\S+)$", re.MULTILINE)
SIGNING_STATES: Final = ("Published", "Active")
CONFIGURATION: Final = "/.well-known/openid-configuration"

Asked = Iterator[Finding]


def answers(here: Installation) -> Asked:
    """The server responds and is ready; or none is running."""
    url = here.settings.url
    if here.server is not None:
        url = here.server.access.server
        ready, failing = status.readiness(here.server)
        if ready:
            yield good(f"{url} is ready")
        else:
            why = ", ".join(failing) or "it does not say why"
            yield wrong(f"{url} is not ready: {why}", "its log says more")
    elif here.refusing is not None:
        url = here.refusing.access.server
        yield wrong(
            f"{url} does not accept {here.files.kubeconfig}, so nothing else could be asked",
            "look at the clock of the server; else the credential has expired, is revoked, or "
            "belongs to another server: a start writes a new one",
        )
    elif is_held(here.files):
        yield wrong(
            f"a server has the store open, but does not answer at {url}",
            "look at its log, and at --listen and --advertise-address",
        )
    elif is_stopped(here.settings, here.files):
        yield note("no server has the store open: only its files were checked")
    else:
        yield note(f"no server answers at {url}: only its files were checked")


def is_stopped(settings: Settings, files: DataDirectory) -> bool:
    """Whether no process has the embedded store open that these settings name."""
    given = settings.given
    is_embedded = given.store == "sqlite" and not given.etcd_servers and files.database.exists()
    return is_embedded and not is_held(files)


def is_held(files: DataDirectory) -> bool:
    """Whether a process has the embedded store open."""
    database = files.database
    lock = database.with_name(database.name + "-lock")
    try:
        with lock.open("rb") as file:
            fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    except OSError:
        return False
    return False


def version(here: Installation) -> Asked:
    """The running server is the installed version."""
    for server in _running(here):
        running = str(server.get("/version").get("gitVersion", ""))
        if running.endswith(f"+orchid.{__version__}"):
            yield good(f"version {__version__} is installed, and runs")
        else:
            yield wrong(
                f"{running} runs, {__version__} is installed",
                "restart the server to finish the upgrade",
            )


def clocks(here: Installation) -> Asked:
    """The server's clock and ours agree, by the Date of any response."""
    server = here.server or here.refusing
    if server is None:
        return
    server.text("/livez")
    if server.date is None:
        yield note("the server does not say what time it is")
        return
    apart = server.date - times.now()
    if abs(apart) < SKEW:
        yield good("the server's clock agrees with this one")
    else:
        side = "behind" if apart < NONE else "ahead of"
        apart_for = times.span(abs(apart).total_seconds())
        yield wrong(f"the server's clock is {apart_for} {side} this one", "set it")


def conditions(here: Installation) -> Asked:
    """No condition of the machine disturbs the server."""
    for server in _running(here):
        reported = status.conditions(server)
        for condition in reported:
            yield wrong(
                f"the server reports {condition}", "its log has the reason: docs/how-to/trouble.md"
            )
        if not reported:
            yield good("clock, disk and files are as the server needs them")


def issuer(here: Installation) -> Asked:
    """The issuer URL publishes the key that verifies our tokens."""
    if here.server is None:
        return
    # as published, whatever our flags say
    address = str(here.server.get(CONFIGURATION).get("issuer"))
    try:
        document = fetched(address.rstrip("/") + CONFIGURATION, here)
        published = fetched(str(document.get("jwks_uri")), here).get("keys", [])
    except (OSError, ValueError) as problem:
        reason = getattr(problem, "reason", problem)  # of a URLError: the failure itself
        if isinstance(reason, OSError):
            reason = reason.strerror or reason
        yield wrong(
            f"the issuer {address} cannot be reached as published: {reason}",
            "verifiers elsewhere need its address; see --service-account-issuer",
        )
        return
    if document.get("issuer") != address:
        yield wrong(f"{address} says that it is {document.get('issuer')}: tokens are refused")
        return
    missing = signing_kids(here.server, here) - {str(key.get("kid")) for key in published}
    if not missing:
        yield good(f"{address} publishes the key that signs tokens")
    elif stores_token_keys(here.settings.given):
        yield wrong(
            f"{address} does not publish {len(missing)} of the token keys",
            "see --service-account-jwks-uri",
        )
    else:
        yield wrong(
            f"{address} does not publish the key that signs tokens",
            "add it to --service-account-key-file of every server, and to what they publish",
        )


def signing_kids(server: ServerConnection, here: Installation) -> set[str]:
    """The ids of the keys that sign tokens, now or next."""
    if not stores_token_keys(here.settings.given):
        return {keys.load_signing_key(signing_key_file(here.settings)).kid}
    stored = server.get(url_of(server)).get("items", [])
    return {
        key["status"]["keyID"]
        for key in stored
        if key["spec"]["state"] in SIGNING_STATES and not key["spec"].get("authority")
    }


def fetched(url: str, here: Installation) -> dict[str, Any]:
    """A public JSON document; the CAs of the system and of the cluster are trusted."""
    if not url.startswith("https://"):
        raise ValueError(f"{url} is not an https URL")
    trust = ssl.create_default_context()
    with contextlib.suppress(OSError):
        trust.load_verify_locations(here.files.ca_certificate)
    with urllib.request.urlopen(url, timeout=SECONDS, context=trust) as answer:  # noqa: S310 -- https, see above
        document = json.loads(answer.read(LARGEST_DOCUMENT))
    if not isinstance(document, dict):
        raise ValueError(f"{url} is not a JSON object")
    return document


def secrets(here: Installation) -> Asked:
    """The server can decrypt the secrets in the store."""
    for server in _running(here):
        try:
            count = server.count(path("api", "v1", "secrets"))
        except CommandRefused as refused:
            yield wrong(
                f"secrets cannot be read: {refused}",
                "start the server with the --encryption-provider-config that they were sealed with",
            )
        else:
            yield good(f"{count} secrets can be read")


def roles(here: Installation) -> Asked:
    """Every bootstrap role and binding exists."""
    options = here.settings.given.of(RightsSettings)
    if options.authorization_config or "RBAC" not in options.authorization_mode:
        return
    naming = here.settings.naming
    policy = default_policy(naming)
    for server in _running(here):
        missing = [
            *_missing(server, "clusterroles", {each.name for each in policy.cluster_roles}),
            *_missing(
                server,
                "clusterrolebindings",
                {each.name for each in policy.cluster_role_bindings},
            ),
        ]
        if missing:
            rest = f" and {len(missing) - MOST_NAMED} more" if len(missing) > MOST_NAMED else ""
            shown = ", ".join(missing[:MOST_NAMED])
            yield wrong(f"missing: {shown}{rest}", "restart the server: it creates them again")
        else:
            yield good("all roles and bindings that a server starts with are there")


def ledger(here: Installation) -> Asked:
    """The ledger is the one that the server signed last, and new entries get into it."""
    for server in _running(here):
        _, text = server.text("/metrics")
        metrics = {name: float(value) for name, value in LEDGER_METRICS.findall(text)}
        waits = metrics.get("oldest_pending_seconds", 0.0)
        if metrics.get("rolled_back"):
            yield wrong(
                "the ledger is not the one that the server knew: rolled back, or rewritten",
                f"it signs nothing until you decide. Was a backup restored? inform all who keep "
                f"checkpoints, then: orchid ledger accept --data-dir {here.files.path}; else ask "
                "who changed the store",
            )
        if waits > LONGEST_WAIT:
            yield wrong(
                f"entries have waited for {times.span(waits)} to get into the ledger",
                "its log says why (ledger.not_written)",
            )
        if not metrics.get("rolled_back") and waits <= LONGEST_WAIT:
            yield good(
                f"the ledger has {_length(server)} entries, and none waits long for its index"
            )


def _length(server: ServerConnection) -> int:
    """The current number of entries of the ledger; the metric is some seconds old."""
    note = server.data("/ledger/checkpoint", absent=HTTPStatus.NOT_FOUND)
    return Checkpoint.claimed(note).size if note else 0


def _missing(server: ServerConnection, plural: str, wanted: set[str]) -> list[str]:
    there = server.items(server.group("rbac.authorization", "v1", plural))
    absent = wanted - {each["metadata"]["name"] for each in there}
    return [f"{plural}/{name}" for name in sorted(absent)]


def _running(here: Installation) -> Iterator[ServerConnection]:
    if here.server is not None:
        yield here.server


def connected(
    settings: Settings, files: DataDirectory
) -> tuple[ServerConnection | None, ServerConnection | None]:
    """A connection as the administrator, if the server of this data directory responds.

    The second one, if it does not accept the credential.
    """
    if is_stopped(settings, files):
        return None, None  # what responds at the same address, belongs to another directory
    try:
        kubeconfig = FoundKubeconfig((files.kubeconfig,), "data directory")
        server = ServerConnection(kubeconfig_file.load(kubeconfig), kubeconfig)
        code, _ = server.text("/livez")
    except Complaint:
        return None, None
    return (None, server) if code == UNAUTHORIZED else (server, None)


SERVER_CHECKS: Final[dict[str, Check]] = {
    "server": answers,
    "version": version,
    "server clock": clocks,
    "conditions": conditions,
    "issuer": issuer,
    "signing keys": stored_keys,
    "secrets": secrets,
    "roles": roles,
    "grants": grants_of_accounts,
    "ledger": ledger,
    "bundles": bundles,
}
