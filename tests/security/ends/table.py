"""What ends each credential, and on which paths, as data.

`test_ends.py` makes each credential, ends it in each of its ways, and tries each of its paths;
docs/revocation.md shows this table. A new kind or authenticator must be listed here.
"""

from dataclasses import dataclass
from typing import Final


@dataclass(frozen=True)
class Path:
    """A use of a credential, and how soon it is refused after the end."""

    name: str
    soon: str = "next request"


SOON: Final = "ends within a second"
API: Final = Path("API request")
WATCH: Final = Path("open watch", SOON)
REVIEW: Final = Path("TokenReview")
INTROSPECTION: Final = Path("introspection")
EXCHANGE: Final = Path("exchange")
CONSOLE: Final = Path("page of the console")
LIVE: Final = Path("open page of the console", "shows no further change")

# Ends, as they are named in the table
ITSELF: Final = "revocation of it"
USER: Final = "revocation of its user"
ACCOUNT: Final = "revocation of its account"
SIGNER: Final = "revocation of its signer"
ORIGIN: Final = "revocation of the outside token"
PERSON: Final = "revocation of the person"
DELETED: Final = "deletion of its account"
BOUND: Final = "deletion of its object"
POLICY: Final = "deletion of its policy"
SESSION: Final = "deletion of the session"

ENDED: Final = ""


@dataclass(frozen=True)
class Credential:
    """A kind of credential: its paths, and its ends with what happens."""

    name: str
    authenticators: tuple[str, ...]  # modules that accept it
    paths: tuple[Path, ...]
    ends: dict[str, str]  # ENDED on each path, or why it is not affected
    kinds: tuple[str, ...] = ()  # stored objects that it is or depends on


TOKEN: Final = (API, WATCH, REVIEW, INTROSPECTION)
OF_ACCOUNT: Final = {ITSELF: ENDED, ACCOUNT: ENDED, DELETED: ENDED}
SERVICE: Final = ("service_account_token",)
CREDENTIALS: Final = (
    Credential("token of an account", SERVICE, TOKEN, OF_ACCOUNT, ("ServiceAccount",)),
    Credential("token bound to a Pod", SERVICE, TOKEN, {**OF_ACCOUNT, BOUND: ENDED}, ("Pod",)),
    Credential(
        "token bound to a Secret", SERVICE, TOKEN, {**OF_ACCOUNT, BOUND: ENDED}, ("Secret",)
    ),
    Credential(
        "exchanged token",
        SERVICE,
        TOKEN,
        {**OF_ACCOUNT, ORIGIN: ENDED, PERSON: ENDED, POLICY: ENDED},
        ("TokenExchangePolicy",),
    ),
    Credential(
        "client certificate of a user",
        ("client_certificate",),
        (API, WATCH),
        {ITSELF: ENDED, USER: ENDED, SIGNER: ENDED},
        ("IssuedCertificate",),
    ),
    Credential(
        "console session",
        ("authenticator",),
        (CONSOLE, LIVE),
        {SESSION: ENDED, USER: ENDED},
        ("ConsoleSession",),
    ),
)
