"""Dependencies of the controllers besides the API, built by the assembly."""

from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Protocol, TypeVar, cast

import msgspec

from orchid.kernel.base.clock import Clock
from orchid.kernel.credentials.authorities.authority import Authority
from orchid.kernel.credentials.authorities.hsm import NO_HSM, KeysOfHsm
from orchid.kernel.credentials.authorities.profiles import Profile
from orchid.kernel.credentials.tokens import TokenSigner
from orchid.kernel.wire.naming import Naming

T = TypeVar("T")
S = TypeVar("S", bound=msgspec.Struct)


class SettingsOf(Protocol):
    """The settings of a feature, by the type of their section."""

    def __call__(self, section: type[S], /) -> S: ...


class Signer(msgspec.Struct, frozen=True):
    """A platform signer: its profile, and its current authority."""

    profile: Profile
    authority: Callable[[], Authority]
    list_name: str = "cluster"  # of its authority's revocation list
    crl_url: str = ""  # the URL of that list for certificates; "" for none


class ControllerContext(msgspec.Struct, frozen=True):
    """Dependencies of the controllers besides the API."""

    naming: Naming
    clock: Clock
    settings: SettingsOf
    signers: Mapping[str, Signer]  # those of the platform that have an authority in files
    token_issuer: Callable[[], TokenSigner] | None  # of the tokens of Secrets
    root_ca: Callable[[], str]  # the CA bundle for this server; "" if unknown
    identity: str  # of this process among the candidates for leader
    hsm: KeysOfHsm = NO_HSM  # with keys of authorities
    parts: Mapping[type, object] = MappingProxyType({})  # what features give their controllers

    def part(self, type_: type[T]) -> T | None:
        """The part of a type; None if the settings do not ask for it."""
        return cast("T | None", self.parts.get(type_))
