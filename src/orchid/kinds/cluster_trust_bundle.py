"""ClusterTrustBundle: X.509 trust anchors for the whole cluster, optionally tied to a signer.

Start with `Rules`. A signer's bundles carry its name in their own, so that none can pose as
another's, and belong to it for ever. What a bundle may hold is judged by
credentials/x509/trust_anchors.py; who may write a signer's bundle is an admission question: see
admission/signer_permission.py.
"""

from collections.abc import Iterable, Iterator
from typing import Annotated, Final

from msgspec import field

from orchid.credentials.x509 import trust_anchors
from orchid.engine.kind import Column, Kind, Scope
from orchid.engine.strategy import Strategy
from orchid.engine.tables import NAME as NAME_COLUMN
from orchid.wire.fields import METADATA, FieldError, Path, immutable, invalid, too_long
from orchid.wire.meta import Object, ObjectMeta
from orchid.wire.naming import Naming
from orchid.wire.rules.names import any_name, subdomain_errors
from orchid.wire.signer_names import LONGEST_SHOWN, signer_name_errors
from orchid.wire.struct import Wire, always, describe, proto

NAME: Final = METADATA / "name"
GENERATE_NAME: Final = METADATA / "generateName"
SIGNER: Final = Path() / "spec" / "signerName"
BUNDLE: Final = Path() / "spec" / "trustBundle"

NOT_SHOWN: Final = "<value omitted>"  # a bundle may be a megabyte; a refusal does not repeat it


class ClusterTrustBundleSpec(Wire):
    """Trust anchors, and the signer that they belong to."""

    signer_name: Annotated[
        str, proto(1), describe("The signer whose anchors these are; empty if they belong to none.")
    ] = ""
    trust_bundle: Annotated[
        str, proto(2), describe("The anchors: X.509 certificates in PEM, one after the other.")
    ] = always(str)


class ClusterTrustBundle(Object):
    """Trust anchors that everyone may read."""

    spec: Annotated[ClusterTrustBundleSpec, proto(2), describe("The anchors.", required=True)] = (
        field(default_factory=ClusterTrustBundleSpec)
    )


class Rules(Strategy[ClusterTrustBundle]):
    def name_errors(self, name: str, prefix: bool) -> Iterable[str]:
        # The rule for a name depends on the signer, so `validate` judges both together.
        return any_name(name, prefix)

    def validate(self, new: ClusterTrustBundle) -> Iterator[FieldError]:
        yield from placement_errors(new)
        yield from bundle_errors(new.spec.trust_bundle)

    def validate_update(
        self, new: ClusterTrustBundle, old: ClusterTrustBundle
    ) -> Iterator[FieldError]:
        yield from placement_errors(new)
        # What is stored stays writable even if today's parser is stricter.
        if new.spec.trust_bundle != old.spec.trust_bundle:
            yield from bundle_errors(new.spec.trust_bundle)
        yield from immutable(SIGNER, new.spec.signer_name, old.spec.signer_name)


def declare(names: Naming) -> Kind[ClusterTrustBundle]:
    return Kind(
        type=ClusterTrustBundle,
        group=names.certificates,
        version="v1beta1",
        versions=("v1",),
        known_versions=("v1alpha1",),
        plural="clustertrustbundles",
        scope=Scope.CLUSTER,
        rules=Rules(),
        # Two writers who each replace the other's anchors must notice.
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
    """Judge the name and the signer, which belong together."""
    signer = new.spec.signer_name
    if len(signer) <= LONGEST_SHOWN:
        yield from name_errors(new.metadata, signer)
    if signer:
        yield from signer_name_errors(SIGNER, signer)


def name_errors(meta: ObjectMeta, signer: str) -> Iterator[FieldError]:
    """Judge both the name and what it was generated from. That one is there is asked elsewhere."""
    for path, name, prefix in (
        (GENERATE_NAME, meta.generate_name, True),
        (NAME, meta.name, False),
    ):
        if name:
            for problem in name_problems(name, signer, prefix=prefix):
                yield invalid(path, name, problem)


def name_problems(name: str, signer: str, *, prefix: bool) -> tuple[str, ...]:
    """Say what is wrong with the name of a bundle of this signer, or of no signer."""
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
    """How the names of a signer's bundles begin: `example.com/foo` gives `example.com:foo:`."""
    return signer.replace("/", ":") + ":"


def bundle_errors(text: str) -> Iterator[FieldError]:
    for problem in trust_anchors.problems(text):
        if problem.too_long:
            yield too_long(BUNDLE, trust_anchors.MAX_BUNDLE)
        else:
            yield invalid(BUNDLE, NOT_SHOWN, problem.detail)
