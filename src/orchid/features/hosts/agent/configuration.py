"""AgentConfiguration: the file that says how a host joins and which credentials it keeps in files.

`read_configuration(path)` returns a checked configuration, or raises `InvalidAgentConfiguration`
with the file, the line, the field and the reason. Reading is strict: a misspelt field is an error.
"""

import grp
import ipaddress
import pwd
import re
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, Final

import msgspec

from orchid.kernel.credentials.files import read_bounded
from orchid.kernel.credentials.refusals import Refusal
from orchid.kernel.credentials.x509.usages import EXTENDED_USAGES, KEY_USAGES
from orchid.kernel.wire.codec import yaml_text
from orchid.kernel.wire.naming import ORCH
from orchid.kernel.wire.text import without_type_names

API_VERSION: Final = f"{ORCH.identity}/v1alpha1"
KIND: Final = "AgentConfiguration"
LARGEST: Final = 1 << 20
MOST_OUTPUTS: Final = 64
KEY_TYPES: Final = ("ECDSA-P256", "ECDSA-P384", "ECDSA-P521", "Ed25519", "RSA-3072", "RSA-4096")
BUNDLE_FORMATS: Final = ("pem", "p12", "crl")
SIGNALS: Final = ("HUP", "USR1", "USR2", "INT", "TERM", "WINCH")
MODES: Final = ("0400", "0440", "0600", "0640", "0660")
SHORTEST_LIFE: Final = 600  # seconds; servers issue nothing shorter

_NAME = re.compile(r"[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?")
_ACCOUNT = re.compile(r"[a-z0-9][-a-z0-9]{0,62}/[a-z0-9][-a-z0-9.]{0,252}")
_DURATION = re.compile(r"(?:\d{1,9}[hms])+", re.ASCII)
_PART = re.compile(r"(\d+)([hms])", re.ASCII)
_UNITS = {"h": 3600, "m": 60, "s": 1}
_WHERE = re.compile(r" - at `\$\.?(.*)`$")
_FIELD = re.compile(r"(\w+): ")
_STEP = re.compile(r"([^.\[\]]+)|\[(\d+)\]")


class InvalidAgentConfiguration(Exception):
    """The configuration cannot be used; the message says where and why."""


class Seconds(int):
    """A duration, written as `90s`, `5m`, `1h30m` or `720h`."""


class _Section(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A part of the file. A ValueError in `__post_init__` gets the path of the part."""


class Join(_Section, frozen=True):
    """The first proof of the identity of the host."""

    file: str = ""
    kubeconfig: str = ""
    lifetime: Seconds = Seconds(720 * 3600)

    def __post_init__(self) -> None:
        if bool(self.file) == bool(self.kubeconfig):
            raise ValueError("needs exactly one of file and kubeconfig")
        _require_absolute("file", self.file)
        _require_absolute("kubeconfig", self.kubeconfig)
        _require_between("lifetime", self.lifetime, 3600, 366 * 86_400)


class Certificate(_Section, frozen=True, rename="camel"):
    """A certificate and its key."""

    signer: str
    dns_names: tuple[str, ...] = ()
    ip_addresses: tuple[str, ...] = ()
    uris: tuple[str, ...] = ()
    common_name: str = ""
    usages: tuple[str, ...] = ()
    lifetime: Seconds = Seconds(0)  # 0: the default of the signer
    key: str = KEY_TYPES[0]
    reuse_key: bool = False
    account: str = msgspec.field(name="as", default="")

    @property
    def has_names(self) -> bool:
        return bool(self.dns_names or self.ip_addresses or self.uris or self.common_name)

    def __post_init__(self) -> None:
        _require_signer(self.signer)
        _require_one_of("key", self.key, KEY_TYPES)
        if self.lifetime:
            _require_between("lifetime", self.lifetime, SHORTEST_LIFE, 3660 * 86_400)
        for usage in self.usages:
            _require_one_of("usages", usage, (*KEY_USAGES, *EXTENDED_USAGES))
        for name in self.dns_names:
            if not name or not name.isascii() or " " in name or len(name) > 253:  # noqa: PLR2004 -- the longest DNS name
                raise ValueError(f"dnsNames: {name!r} is not a DNS name")
        for address in self.ip_addresses:
            try:
                ipaddress.ip_address(address)
            except ValueError:
                raise ValueError(f"ipAddresses: {address!r} is not an address") from None
        if self.account:
            _require_account("as", self.account)
        elif not self.has_names:
            raise ValueError("needs a name: dnsNames, ipAddresses, uris, commonName, or as")
        if self.account and self.usages and not self.has_names:
            raise ValueError("usages need a name; without one, the signer chooses them")


class Token(_Section, frozen=True):
    """A token of an account for one audience."""

    account: str
    audience: str
    lifetime: Seconds = Seconds(3600)

    def __post_init__(self) -> None:
        _require_account("account", self.account)
        _require_between("lifetime", self.lifetime, SHORTEST_LIFE, 366 * 86_400)
        if not self.audience:
            raise ValueError("audience is empty; for this server, use an output kubeconfig")


class Bundle(_Section, frozen=True):
    """The trust anchors of a signer, and its revocation list."""

    signer: str
    formats: tuple[str, ...] = ("pem",)
    password: str = ""  # of the PKCS #12 file; its content is public
    authority: str = ""

    def __post_init__(self) -> None:
        _require_signer(self.signer)
        for form in self.formats:
            _require_one_of("formats", form, BUNDLE_FORMATS)
        if "pem" not in self.formats and "p12" not in self.formats:
            raise ValueError("formats needs pem or p12")
        if bool(self.authority) != ("crl" in self.formats):
            raise ValueError("the format crl and the field authority need each other")


class Kubeconfig(_Section, frozen=True):
    """A kubeconfig for an account, or for the host itself."""

    account: str = ""

    def __post_init__(self) -> None:
        if self.account:
            _require_account("account", self.account)


class Reload(_Section, frozen=True, rename="camel"):
    """An action after a change of files."""

    systemd: str = ""
    signal: str = ""
    pid_file: str = ""
    command: tuple[str, ...] = ()
    timeout: Seconds = Seconds(30)

    def __post_init__(self) -> None:
        if sum(map(bool, (self.systemd, self.signal, self.command))) != 1:
            raise ValueError("needs exactly one of systemd, signal and command")
        if bool(self.signal) != bool(self.pid_file):
            raise ValueError("signal and pidFile need each other")
        if self.signal:
            _require_one_of("signal", self.signal, SIGNALS)
            _require_absolute("pidFile", self.pid_file)
        if self.command and not self.command[0].startswith("/"):
            raise ValueError("command: the program needs an absolute path; there is no shell")
        if self.systemd.startswith("-") or "/" in self.systemd:
            raise ValueError(f"systemd: {self.systemd!r} is not the name of a unit")
        _require_between("timeout", self.timeout, 1, 300)

    def __str__(self) -> str:
        if self.systemd:
            return f"systemd {self.systemd}"
        return f"signal {self.signal}" if self.signal else f"command {self.command[0]}"


class Output(_Section, frozen=True):
    """One directory of files that change together."""

    name: str
    directory: str
    certificate: Certificate | None = None
    token: Token | None = None
    bundle: Bundle | None = None
    kubeconfig: Kubeconfig | None = None
    owner: str = ""
    group: str = ""
    mode: str = "0600"
    reload: tuple[Reload, ...] = ()

    @property
    def owner_id(self) -> int:
        return _user_id(self.owner)

    @property
    def group_id(self) -> int:
        return _group_id(self.group)

    def __post_init__(self) -> None:
        if not _NAME.fullmatch(self.name):
            raise ValueError(f"name: {self.name!r} is not a DNS label")
        _require_absolute("directory", self.directory)
        if not self.directory:
            raise ValueError("directory is empty")
        contents = (self.certificate, self.token, self.bundle, self.kubeconfig)
        if sum(content is not None for content in contents) != 1:
            raise ValueError("needs exactly one of certificate, token, bundle and kubeconfig")
        _require_one_of("mode", self.mode, MODES)
        _user_id(self.owner)
        _group_id(self.group)


class AgentConfiguration(_Section, frozen=True, rename="camel"):
    """The whole file."""

    api_version: str
    kind: str
    join: Join
    state: str = "/var/lib/orchid-agent"
    check_every: Seconds = Seconds(300)
    metrics_file: str = ""
    outputs: tuple[Output, ...] = ()

    def __post_init__(self) -> None:
        _require_one_of("apiVersion", self.api_version, (API_VERSION,))
        _require_one_of("kind", self.kind, (KIND,))
        _require_absolute("state", self.state)
        _require_absolute("metricsFile", self.metrics_file)
        _require_between("checkEvery", self.check_every, 60, 3600)
        if len(self.outputs) > MOST_OUTPUTS:
            raise ValueError(f"outputs: more than {MOST_OUTPUTS}")
        _require_distinct("name", [output.name for output in self.outputs])
        directories = [str(Path(output.directory)) for output in self.outputs]
        _require_distinct("directory", [*directories, str(Path(self.state))])


def read_configuration(path: Path) -> AgentConfiguration:
    """Read and check a file."""
    try:
        data = read_bounded(path, LARGEST)
    except Refusal as refusal:
        raise InvalidAgentConfiguration(str(refusal)) from None
    return parse(data, str(path))


def parse(data: bytes, where: str) -> AgentConfiguration:
    """Check the content of a file; `where` is its name in messages."""
    try:
        value, duplicates = yaml_text.load_only(data)
    except yaml_text.YamlError as error:
        raise InvalidAgentConfiguration(f"{where}: {error}") from None
    if duplicates:
        raise InvalidAgentConfiguration(f"{where}: {duplicates[0]}")
    try:
        return msgspec.convert(value, AgentConfiguration, dec_hook=_decode)
    except msgspec.ValidationError as error:
        text = str(error).replace("Object contains unknown field", "unknown field")
        text = text.replace("Object missing required field", "missing field")
        match = _WHERE.search(text)
        field = match[1] if match else ""
        reason = without_type_names(text[: match.start()] if match else text)
        inside = _FIELD.match(reason)
        line = _line(data, f"{field}.{inside[1]}" if inside else field)
        raise InvalidAgentConfiguration(
            f"{where}{f', line {line}' if line else ''}: {f'{field}: ' if field else ''}{reason}"
        ) from None


def _decode(type_: type, value: Any) -> Seconds:
    if type_ is not Seconds:
        raise TypeError(f"a field of type {type_} has no decoder")
    if not isinstance(value, str) or not _DURATION.fullmatch(value):
        raise ValueError(f"{value!r} is not a duration like 90s, 5m or 720h")
    return Seconds(sum(int(count) * _UNITS[unit] for count, unit in _PART.findall(value)))


def _line(data: bytes, field: str) -> int:
    """The line of a field; 0 if it has none."""
    import yaml  # noqa: PLC0415 -- only for a message

    try:
        node = yaml.compose(data, Loader=yaml.SafeLoader)
    except yaml.YAMLError:
        return 0
    for word, index in _STEP.findall(field):
        below = next(_below(node, word, index), None)
        if below is None:
            break
        node = below
    return node.start_mark.line + 1 if node is not None else 0


def _below(node: Any, word: str, index: str) -> Iterator[Any]:
    if index:
        yield from node.value[int(index) : int(index) + 1]
        return
    yield from (value for key, value in node.value if key.value == word)


# --- rules ------------------------------------------------------------------------------------


def _require_one_of(field: str, value: str, choices: Sequence[str]) -> None:
    if value not in choices:
        raise ValueError(f"{field}: {value!r} is none of: {', '.join(choices)}")


def _require_absolute(field: str, value: str) -> None:
    if value and (not value.startswith("/") or "\0" in value or ".." in Path(value).parts):
        raise ValueError(f"{field}: {value!r} is not an absolute path")


def _require_between(field: str, value: int, least: int, most: int) -> None:
    if not least <= value <= most:
        raise ValueError(f"{field}: {value}s is not between {least}s and {most}s")


def _require_distinct(field: str, values: Sequence[str]) -> None:
    for value in values:
        if values.count(value) > 1:
            raise ValueError(f"outputs: the {field} {value} is used twice")


def _require_signer(value: str) -> None:
    domain, _, rest = value.partition("/")
    if not domain or not rest or len(value) > 571:  # noqa: PLR2004 -- the longest signer name
        raise ValueError(f"signer: {value!r} is not a name like example.com/servers")


def _require_account(field: str, value: str) -> None:
    if not _ACCOUNT.fullmatch(value):
        raise ValueError(f"{field}: {value!r} is not NAMESPACE/NAME")


def _user_id(name: str) -> int:
    """-1 leaves the owner as it is."""
    try:
        return -1 if not name else int(name) if name.isdecimal() else pwd.getpwnam(name).pw_uid
    except KeyError:
        raise ValueError(f"owner: this host has no user {name}") from None


def _group_id(name: str) -> int:
    try:
        return -1 if not name else int(name) if name.isdecimal() else grp.getgrnam(name).gr_gid
    except KeyError:
        raise ValueError(f"group: this host has no group {name}") from None
