"""What has the name of an authority belongs to that authority, and to no earlier one of its name.

Keys, lists and the bundle of an authority have its name. An authority may be deleted without them,
or somebody may create them before it: then they are of another owner, with that owner's private key
or with other roots. So a name under which there is anything is refused for a new authority; and a
bundle with the name of an authority is owned by it, and has its signers as sources. Later a user
who may update bundles decides what they publish. The keys of an authority also have revocation
lists of their names, so no authority has the name of a key that another one may get.
"""

from collections.abc import Callable
from typing import Any, Final

from orchid.features.authorities.kinds.certificate_authority import CertificateAuthority
from orchid.features.token_keys.kinds.signing_key import SigningKey
from orchid.features.trust_bundles.kinds.published_bundle import BundleSource, PublishedBundle
from orchid.kernel.engine.cache.feed import Feed
from orchid.kernel.engine.interfaces import AdmissionPolicy
from orchid.kernel.engine.kind import Kind
from orchid.kernel.engine.request import Request
from orchid.kernel.wire.errors import Invalid
from orchid.kernel.wire.fields import METADATA, invalid
from orchid.kernel.wire.references import belongs_to
from orchid.kernel.wire.rules.key_names import is_key_name

MOST_NAMED: Final = 5  # keys in a message
OF_AUTHORITY: Final = (
    "an authority has this name: its bundle is owned by it, and has its signers as sources"
)


class AuthorityNames(AdmissionPolicy):
    reviews = (CertificateAuthority, PublishedBundle)

    def __init__(self, feed: Feed, keys_named: Callable[[str], list[SigningKey]]) -> None:
        """`keys_named`: all keys that name an authority, of any owner."""
        self._feed = feed
        self._authorities = feed.of(CertificateAuthority)
        self._bundles = feed.of(PublishedBundle)
        self._keys = feed.of(SigningKey)
        self._keys_named = keys_named

    async def review(self, request: Request, kind: Kind[Any], new: Any, old: Any) -> None:
        if new is None or old is not None:
            return
        await self._feed.fresh()
        text = self._left(new.name) if isinstance(new, CertificateAuthority) else self._taken(new)
        if text:
            problem = invalid(METADATA / "name", new.name, text)
            raise Invalid(kind.about_kind(new.name), [problem])

    def _left(self, name: str) -> str:
        """What there is under the name of a new authority."""
        if self._keys.get("", name) is not None:
            return "a SigningKey has this name"  # and a revocation list of this name
        for other in (entry.object.name for entry in self._authorities.entries.values()):
            if is_key_name(name, other):
                return f"keys of the authority {other} have such names"
            if is_key_name(other, name):
                return f"its keys have such names as the authority {other}"
        if keys := self._keys_named(name):
            return f"an earlier authority of this name left keys, delete them: {_listed(keys)}"
        if self._bundles.get("", name) is not None:
            return "a PublishedBundle has this name; delete it first"
        return ""

    def _taken(self, new: PublishedBundle) -> str:
        """Why a new bundle may not have its name."""
        entry = self._authorities.get("", new.name)
        return "" if entry is None or _is_bundle_of(new, entry.object) else OF_AUTHORITY


def _is_bundle_of(new: PublishedBundle, authority: CertificateAuthority) -> bool:
    # The bundles of the platform have no owner.
    own = {BundleSource(signer_name=signer) for signer in authority.signers}
    return (authority.is_platform or belongs_to(new, authority)) and own.issuperset(
        new.spec.sources
    )


def _listed(keys: list[SigningKey]) -> str:
    names = sorted(key.name for key in keys)
    more = len(names) - MOST_NAMED
    return ", ".join(names[:MOST_NAMED]) + (f" and {more} more" if more > 0 else "")
