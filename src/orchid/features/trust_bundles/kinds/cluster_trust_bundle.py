"""ClusterTrustBundle: X.509 trust anchors for the cluster, optionally of one signer.

Start with `Rules`. The name of a signer's bundle begins with the signer name, so that a bundle
cannot claim another signer, and its signer is immutable.
kernel/credentials/x509/trust/trust_anchors.py validates the anchors;
features/certificates/policies/signer_permission.py checks the right to write a signer's bundle.
"""

from collections.abc import Iterable, Iterator
from typing import Annotated, Final

from msgspec import field

from orchid.kernel.credentials.x509.trust import trust_anchors
from orchid.kernel.engine.kind import Column, Kind, Scope
from orchid.kernel.engine.strategy import Strategy
from orchid.kernel.engine.tables import NAME as NAME_COLUMN
from orchid.kernel.wire.fields import METADATA, FieldError, Path, immutable, invalid, too_long
from orchid.kernel.wire.meta import Object, ObjectMeta
from orchid.kernel.wire.naming import Naming
from orchid.kernel.wire.rules.names import any_name, subdomain_errors
from orchid.kernel.wire.rules.signer_names import LONGEST_SHOWN, signer_name_errors
from orchid.kernel.wire.struct import Wire, always, describe, proto

NAME: Final = METADATA / "name"
GENERATE_NAME: Final = METADATA / "generateName"
SIGNER: Final = Path() / "spec" / "signerName"
BUNDLE: Final = Path() / "spec" / "trustBundle"

NOT_SHOWN: Final = "<value omitted>"  # a bundle may be a megabyte; errors do not repeat it


class ClusterTrustBundleSpec(Wire):
    """Trust anchors and, optionally, their signer."""

    signer_name: Annotated[
        str, proto(1), describe("The signer of the anchors; empty for none.")
    ] = ""
    trust_bundle: Annotated[
        str, proto(2), describe("The anchors: concatenated X.509 certificates in PEM.")
    ] = always(str)


class ClusterTrustBundle(Object):
    """Trust anchors that all authenticated users may read."""

    spec: Annotated[ClusterTrustBundleSpec, proto(2), describe("The anchors.", required=True)] = (
        field(default_factory=ClusterTrustBundleSpec)
    )


class Rules(Strategy[ClusterTrustBundle]):
    def name_errors(self, name: str, prefix: bool) -> Iterable[str]:
        # The rule for a name depends on the signer: `validate` checks both together.
        return any_name(name, prefix)

    def validate(self, new: ClusterTrustBundle) -> Iterator[FieldError]:
        yield from placement_errors(new)
        yield from bundle_errors(new.spec.trust_bundle)

    def validate_update(
        self, new: ClusterTrustBundle, old: ClusterTrustBundle
    ) -> Iterator[FieldError]:
        yield from placement_errors(new)
        # Stored values stay writable even if today's parser is stricter.
        if new.spec.trust_bundle != old.spec.trust_bundle:
            yield from bundle_errors(new.spec.trust_bundle)
        yield from immutable(SIGNER, new.spec.signer_name, old.spec.signer_name)


def declare(naming: Naming) -> Kind[ClusterTrustBundle]:
    return Kind(
        type=ClusterTrustBundle,
        group=naming.certificates,
        version="v1beta1",
        versions=("v1",),
        known_versions=("v1alpha1",),
        plural="clustertrustbundles",
        scope=Scope.CLUSTER,
        rules=Rules(),
        # Concurrent writers must not overwrite each other's anchors.
        may_update_unconditionally=False,
        columns=(
            NAME_COLUMN,
            Column(
                "SignerName",
                lambda bundle, now: bundle.spec.signer_name or "<none>",
                description="The signer whose certificates these anchors verify.",
            ),
        ),
        selectable={"spec.signerName": lambda bundle: bundle.spec.signer_name},
    )


def placement_errors(new: ClusterTrustBundle) -> Iterator[FieldError]:
    """Validate the name together with the signer."""
    signer = new.spec.signer_name
    if len(signer) <= LONGEST_SHOWN:
        yield from name_errors(new.metadata, signer)
    if signer:
        yield from signer_name_errors(SIGNER, signer)


def name_errors(meta: ObjectMeta, signer: str) -> Iterator[FieldError]:
    """Validate name and generateName. Presence is checked elsewhere."""
    for path, name, prefix in (
        (GENERATE_NAME, meta.generate_name, True),
        (NAME, meta.name, False),
    ):
        if name:
            for problem in name_problems(name, signer, prefix=prefix):
                yield invalid(path, name, problem)


def name_problems(name: str, signer: str, *, prefix: bool) -> tuple[str, ...]:
    """Problems of a bundle name for this signer, or for no signer."""
    if not signer:
        if ":" in name:
            return ('ClusterTrustBundle without signer name must not have ":" in its name',)
        return subdomain_errors(name, prefix)
    beginning = name_prefix(signer)
    if not name.startswith(beginning):
        return (
            f"ClusterTrustBundle for signerName {signer} must be named with prefix {beginning}",
        )
    return subdomain_errors(name.removeprefix(beginning), prefix)


def name_prefix(signer: str) -> str:
    """Prefix of a signer's bundle names: `example.com/foo` gives `example.com:foo:`."""
    return signer.replace("/", ":") + ":"


def bundle_errors(text: str) -> Iterator[FieldError]:
    for problem in trust_anchors.problems(text):
        if problem.too_long:
            yield too_long(BUNDLE, trust_anchors.MAX_BUNDLE)
        else:
            yield invalid(BUNDLE, NOT_SHOWN, problem.detail)
