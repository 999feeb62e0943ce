"""Checks without a running server: files, keys, certificates, store, disk, audit.

`FILE_CHECKS` lists them; each is one function from an installation to its findings. They are
read-only.
"""

import contextlib
import datetime
import importlib.util
import shutil
import socket
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Final
from urllib.parse import SplitResult, urlsplit

import apsw

from orchid.assembly.kinds import stored_kinds
from orchid.assembly.setting_files import certificate_files, problems
from orchid.features.authorities.file_signers import unaccepted_clients
from orchid.features.authorities.settings import signing_files, stores_authority
from orchid.features.ledger import status as ledger_status
from orchid.features.ledger.key_files import ledger_key_files
from orchid.features.revoking import revocation_file
from orchid.features.sealing.encryption import InvalidEncryption, read_configuration
from orchid.features.sealing.key_file import sealing_key_file
from orchid.features.sealing.settings import is_unsealed
from orchid.features.sign_in.settings import SignInSettings
from orchid.features.token_keys.files.signing_key_file import signing_key_file
from orchid.features.token_keys.followed_keys import unverified_tokens
from orchid.features.token_keys.settings import stores_token_keys
from orchid.kernel.credentials import keys
from orchid.kernel.credentials.authorities.authority import Authority
from orchid.kernel.credentials.files import UNREADABLE, read_private, refuse_exposed
from orchid.kernel.credentials.refusals import Refusal
from orchid.kernel.http.tls.files import TlsFiles, TlsFilesUnusable
from orchid.kernel.store.encryption import NotOpened, Provider
from orchid.kernel.store.interface import NewerFormat, StoreError
from orchid.kernel.store.migrate import MOVED, moved_text
from orchid.kernel.store.sqlite import file as sqlite_file
from orchid.kernel.store.sqlite import restore as sqlite_restore
from orchid.kernel.terminal import times
from orchid.kernel.terminal.findings import (
    Check,
    Finding,
    Installation,
    good,
    note,
    soon,
    wrong,
)

SOON: Final = datetime.timedelta(days=30)
SKEW: Final = datetime.timedelta(minutes=5)
SECONDS: Final = 3.0
ETCD_PORT: Final = 2379
LITTLE_DISK, NO_DISK = 1 << 30, 64 << 20


def directory(here: Installation) -> Iterator[Finding]:
    """The data directory is accessible only to its owner."""
    try:
        refuse_exposed(here.files.path, here.files.path.stat())
    except Refusal as refusal:
        yield wrong(str(refusal))
    else:
        yield good(f"{here.files.path} is for its owner alone")


def key_files(here: Installation) -> Iterator[Finding]:
    """Every private key exists and is accessible only to its owner."""
    options = here.settings.given
    signing = signing_files(options)
    elsewhere = [*(each.key for each in signing), options.etcd_keyfile]
    files = here.files
    paths = [*ledger_key_files(here.settings), files.serving_key]
    if not stores_authority(here.settings.given) or files.ca_key.exists():
        paths.append(files.ca_key)
    signing_key = signing_key_file(here.settings)
    if not stores_token_keys(here.settings.given) or signing_key.exists():
        paths.append(signing_key)
    paths += [files.kubeconfig, *(Path(path) for path in elsewhere if path)]
    problems = {path: problem for path in paths if (problem := _unreadable(path))}
    for path, problem in problems.items():
        yield wrong(problem, "" if path.exists() else _lost(path, here))
    if not problems:
        yield good(f"{len(paths)} files with keys are for their owner alone")


def _unreadable(path: Path) -> str:
    try:
        read_private(path)
    except Refusal as refusal:
        return str(refusal)
    return ""


def _lost(path: Path, here: Installation) -> str:
    """Advice for a missing file."""
    if path in (here.files.serving_key, here.files.kubeconfig):
        return "the next start creates a new one"
    return "put it back from a copy: the next start creates a new one, which nobody trusts yet"


def _is_reissued(path: Path, here: Installation) -> bool:
    """Whether a missing file is the server's own serving certificate."""
    is_own = not here.settings.given.tls_cert_file and path == here.files.serving_certificate
    return is_own and not path.exists()


def certificates_and_keys(here: Installation) -> Iterator[Finding]:
    """Certificates match their keys."""
    files = here.files
    is_stored = stores_authority(here.settings.given)
    if _unreadable(files.serving_key) or (not is_stored and _unreadable(files.ca_key)):
        return  # already reported
    if _is_reissued(files.serving_certificate, here):
        yield soon(f"{files.serving_certificate} is missing", "the next start creates a new one")
        return
    try:
        if not is_stored:
            Authority.load_files(files.ca_certificate, files.ca_key)
        TlsFiles(files.serving_certificate, files.serving_key, [files.ca_certificate])
    except (Refusal, TlsFilesUnusable) as problem:
        yield wrong(str(problem), "put back the files that belong together, from a backup")
    else:
        which = "the serving certificate fits its key"
        if not is_stored:
            which = "the cluster CA and the serving certificate fit their keys"
        yield good(which)


def certificate_ends(here: Installation) -> Iterator[Finding]:
    """No certificate of the server has expired, or expires within 30 days."""
    for file in certificate_files(here.settings, here.files):
        if _is_reissued(file.path, here):
            continue  # already reported
        try:
            end = file.end()
        except Refusal as refusal:
            yield wrong(f"the {file.purpose} certificate cannot be read: {refusal}")
            continue
        text = f"the {file.purpose} certificate ends {times.until(end)}"
        if end <= here.now:
            yield wrong(text.replace("ends", "ended"), _renewal(file.path, here))
        elif end - here.now < SOON:
            yield soon(text, _renewal(file.path, here))
        else:
            yield good(text)


def _renewal(path: Path, here: Installation) -> str:
    if path == here.settings.data_dir / "serving.crt":
        return "restart the server: it creates a new one"
    return f"replace {path} and its key; docs/rotation.md says how"


def client_authority(here: Installation) -> Iterator[Finding]:
    """The server accepts the client certificates that it signs; other authorities may be meant."""
    if not here.settings.given.of(SignInSettings).client_ca_file:
        return
    try:
        problem = unaccepted_clients(here.settings, here.files)
    except (Refusal, ValueError):
        return  # reported by the other checks
    yield (
        note(problem)
        if problem
        else good("client certificates that this server signs are accepted by it")
    )


def token_keys(here: Installation) -> Iterator[Finding]:
    """The key that signs tokens also verifies them."""
    if stores_token_keys(here.settings.given):
        yield good("token keys are stored as SigningKey objects")
        return
    if _unreadable(signing_key_file(here.settings)):
        return  # already reported
    try:
        problem = unverified_tokens(here.settings)
        algorithm = keys.load_signing_key(signing_key_file(here.settings)).algorithm
    except Refusal as refusal:
        yield wrong(f"token keys: {refusal}")
        return
    yield (
        wrong(problem)
        if problem
        else good(f"tokens are signed with {algorithm}, and verified with the same key")
    )


def clock(here: Installation) -> Iterator[Finding]:
    """No file in the data directory is from the future."""
    written = []
    for path in here.files.path.iterdir():
        with contextlib.suppress(FileNotFoundError):  # a temporary file of the server
            written.append(path.stat().st_mtime)
    newest = max(written, default=0.0)
    moment = datetime.datetime.fromtimestamp(newest, datetime.UTC)
    if moment - here.now > SKEW:
        ahead = times.span((moment - here.now).total_seconds())
        yield wrong(
            f"files in {here.files.path} were written {ahead} after what this clock says is now",
            "set the clock; tokens and certificates depend on it",
        )
    else:
        yield good("the clock is not behind the files")


def store(here: Installation) -> Iterator[Finding]:
    """The embedded store is intact, every page and every key; etcd is reachable."""
    options, path = here.settings.given, here.files.database
    if options.etcd_servers:
        if importlib.util.find_spec("hpack") is None:
            yield wrong(
                "--etcd-servers needs two more packages", "pip install 'orchid-identity[etcd]'"
            )
        else:
            yield from _etcd(options.etcd_servers)
    elif options.store != "sqlite":
        yield note("objects are kept in memory, and are lost at a stop")
    elif not path.exists():
        yield note(f"there is no {path} yet: it is created at the first start")
    else:
        yield from _database(path)


def _etcd(endpoints: Sequence[str]) -> Iterator[Finding]:
    """A majority of the members is reachable; etcd checks its own data."""
    silent = [endpoint for endpoint in endpoints if not _listens(endpoint)]
    text = f"{len(endpoints) - len(silent)} of {len(endpoints)} etcd endpoints can be reached"
    advice = f"look at {', '.join(silent)}: without a majority nothing can be written"
    if not silent:
        yield good(text)
    elif 2 * len(silent) < len(endpoints):
        yield soon(text, advice)
    else:
        yield wrong(text, advice)
    if plain := [_url(each).netloc.rpartition("@")[2] for each in endpoints if _is_plain(each)]:
        yield wrong(
            f"etcd at {', '.join(plain)} is used without TLS: others in the network can read and "
            "change every object",
            "use https:// with --etcd-cafile, --etcd-certfile and --etcd-keyfile",
        )


def _url(endpoint: str) -> SplitResult:
    return urlsplit(endpoint if "://" in endpoint else f"http://{endpoint}")


def _is_plain(endpoint: str) -> bool:
    """Whether an endpoint is without TLS, on another machine."""
    url = _url(endpoint)
    is_local = url.hostname in ("localhost", "::1") or (url.hostname or "").startswith("127.")
    return url.scheme != "https" and not is_local


def _listens(endpoint: str) -> bool:
    url = _url(endpoint)
    try:
        socket.create_connection((url.hostname or "", url.port or ETCD_PORT), SECONDS).close()
    except (OSError, ValueError):
        return False
    return True


def _database(path: Path) -> Iterator[Finding]:
    try:
        sqlite_file.check_sqlite(apsw.sqlite_lib_version())
        contents = sqlite_restore.inspect(path)
        moved = sqlite_restore.value_of(path, MOVED)
    except NewerFormat as problem:
        yield wrong(str(problem), "install that version: docs/compatibility.md")
    except StoreError as problem:
        yield wrong(str(problem), "stop the server and put a backup back: orchid restore")
    else:
        if moved is not None:
            yield wrong(f"{path}: {moved_text(moved)}")
            return
        count, newest, author = contents.records, contents.newest, contents.author
        yield good(f"{path} is whole: {count} objects at revision {newest}, written by {author}")


def disk(here: Installation) -> Iterator[Finding]:
    """There is enough free disk space."""
    directories = {here.files.path}
    if here.settings.given.audit_log_path not in ("", "-"):
        directories.add(Path(here.settings.given.audit_log_path).parent)
    for folder in sorted(directories):
        if not folder.is_dir():
            yield wrong(f"there is no directory {folder}")
            continue
        free = shutil.disk_usage(folder).free
        text = f"{free >> 20} MiB are free where {folder} is"
        advice = "make room: a full disk refuses writes, and the audit record has gaps"
        if free < NO_DISK:
            yield wrong(text, advice)
        else:
            yield soon(text, advice) if free < LITTLE_DISK else good(text)


def audit(here: Installation) -> Iterator[Finding]:
    """Requests are audited, with a valid policy."""
    options = here.settings.given
    if not options.audit_log_path:
        yield note("audit logging is off (--audit-log-path is not set)")
    else:
        yield good(f"requests are recorded in {options.audit_log_path}")


def setting_files(here: Installation) -> Iterator[Finding]:
    """Every file that a setting names can be used."""
    texts = list(problems(here.settings))
    yield from (wrong(text) for text in texts)
    if not texts:
        yield good("the files that settings name can be used")


def side_files(here: Installation) -> Iterator[Finding]:
    """The files beside the store can be read, and none was set aside because it could not."""
    directory = here.settings.data_dir
    revoked, kept = directory / revocation_file.FILE, directory / ledger_status.FILE
    unreadable = [f"{path} could not be read" for path in sorted(directory.glob(f"*{UNREADABLE}*"))]
    try:
        _, count = revocation_file.read_counted(revoked)
        unreadable += [f"{revoked} has {count} lines that cannot be read"] if count else []
    except (revocation_file.FileTooLarge, OSError) as problem:
        unreadable.append(f"{revoked} cannot be read: {problem}")
    if kept.exists() and ledger_status.read_kept(kept) is None:
        unreadable.append(f"{kept} cannot be read")
    for text in unreadable:
        yield wrong(
            text, "put its content back from a copy, or find out what is lost; then remove it"
        )
    if not unreadable:
        yield good("the files beside the store can be read")


def encryption(here: Installation) -> Iterator[Finding]:
    """Secrets, and with them the keys of authorities, are encrypted in the store."""
    file = sealing_key_file(here.settings)
    if is_unsealed(here.settings.given):
        yield wrong(
            "Secrets and keys of authorities are not encrypted in etcd",
            "start every server with the same --encryption-provider-config (`orchid init` creates "
            "one), then run `orchid rewrite`",
        )
    elif problem := _unreadable(file):
        yield wrong(problem, "put it back from a copy: without it, Secrets cannot be read")
    elif count := _unopened(here):
        yield wrong(
            f"{count} values in {here.files.database} are sealed with keys that "
            f"{file} does not have",
            "put back the file with their keys, from a copy",
        )
    else:
        yield good(f"Secrets are encrypted as {file} says")


def _unopened(here: Installation) -> int:
    """The number of values in the embedded store that no key of the file opens."""
    kinds = stored_kinds(here.settings.naming)
    try:
        configuration = read_configuration(read_private(sealing_key_file(here.settings)), kinds)
    except InvalidEncryption:
        return 0  # reported by the check of the sealing keys
    count = 0
    for prefix, providers in configuration.items():
        for key, value in sqlite_restore.values_if_readable(here.files.database, prefix).items():
            count += not any(_opens(provider, key, value) for provider in providers)
    return count


def _opens(provider: Provider, key: str, value: bytes) -> bool:
    try:
        provider.open(value, key)
    except NotOpened:
        return False
    return value.startswith(provider.mark)


FILE_CHECKS: Final[dict[str, Check]] = {
    "settings": setting_files,
    "directory": directory,
    "keys": key_files,
    "pairs": certificates_and_keys,
    "expiry": certificate_ends,
    "client CA": client_authority,
    "token keys": token_keys,
    "clock": clock,
    "store": store,
    "files": side_files,
    "encryption": encryption,
    "disk": disk,
    "audit": audit,
}
