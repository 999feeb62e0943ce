"""The parts of signing keys: the token keys of the server, and the policies of SigningKeys."""

from collections.abc import Iterable, Mapping
from pathlib import Path

from orchid.features.ledger.known_keys import note_keys
from orchid.features.objects.kinds.secret import Secret
from orchid.features.objects.server_leases import ServerLeases
from orchid.features.revocation.revocations import Revocations
from orchid.features.revocation.settings import RevocationSettings
from orchid.features.sealing.settings import is_unsealed
from orchid.features.token_keys.files.file_keys import FileKeyObjects
from orchid.features.token_keys.files.key_import import TokenKeyFiles, TokenKeyImport
from orchid.features.token_keys.files.signing_key_file import signing_key_file
from orchid.features.token_keys.followed_keys import FollowedKeys
from orchid.features.token_keys.kinds.signing_key import SigningKey
from orchid.features.token_keys.long_tokens import LongTokens
from orchid.features.token_keys.past_keys import PastKeys
from orchid.features.token_keys.policies.authority_material import PrivateKeys, SignerReferences
from orchid.features.token_keys.policies.chains import SigningKeyChains
from orchid.features.token_keys.policies.material import SigningKeyMaterial
from orchid.features.token_keys.policies.steps import SigningKeySteps
from orchid.features.token_keys.ports import AcceptedTokens, HsmKeys, KeysOfAuthorities
from orchid.features.token_keys.settings import TokenKeySettings, stores_token_keys
from orchid.features.token_keys.token_keys import FileKeys
from orchid.features.token_keys.token_keys_metrics import KeyMetrics
from orchid.kernel.base.metrics import Metric
from orchid.kernel.context import Context, ServerPart
from orchid.kernel.credentials.refusals import Refusal
from orchid.kernel.engine.interfaces import AdmissionPolicy
from orchid.kernel.feature import Background
from orchid.kernel.settings.errors import BadSettings
from orchid.kernel.wire.references import SecretReference


def _long_tokens(context: Context) -> LongTokens:
    return LongTokens(context.store, context.feed, context.port(Revocations))


def _file_keys(context: Context) -> FileKeyObjects | None:
    """Objects that show the token keys, if those are files."""
    keys = context.port(FollowedKeys).keys
    if not isinstance(keys, FileKeys):
        return None
    return FileKeyObjects(
        keys,
        context.feed,
        context.store,
        clock=context.clock,
        randomness=context.random,
        servers=context.port(ServerLeases).live,
    )


def _key_metrics(context: Context) -> KeyMetrics:
    return KeyMetrics(
        context.feed.of(SigningKey),
        context.port(AcceptedTokens).verifications,
        context.clock.now,
        context.settings.given.of(TokenKeySettings).token_key_rotation.delta,
    )


PARTS = (
    ServerPart(FollowedKeys, FollowedKeys),
    ServerPart(PastKeys, lambda context: PastKeys(context.store)),
    ServerPart(LongTokens, _long_tokens),
    ServerPart(FileKeyObjects, _file_keys),
    ServerPart(KeyMetrics, _key_metrics),
)


def policies(context: Context) -> Iterable[AdmissionPolicy]:
    settings, feed, secrets = context.settings, context.feed, context.feed.of(Secret)
    publish_time = settings.given.of(TokenKeySettings).token_key_publish_time
    revoked, authorities = context.port(Revocations).revoked_keys, context.port(KeysOfAuthorities)

    def secret_data(reference: SecretReference) -> Mapping[str, bytes] | None:
        entry = secrets.get(reference.namespace, reference.name)
        return entry.object.data if entry else None

    private_keys = PrivateKeys(secret_data, context.port(HsmKeys).keys)
    revocation = settings.given.of(RevocationSettings)
    references = SignerReferences(
        home=context.naming.system_namespace, crl_url=str(revocation.crl_url)
    )
    yield SigningKeyMaterial(
        context.naming,
        feed,
        context.authorizer,
        context.random,
        publish_time=str(publish_time),
        authority_keys=authorities.of,
        revoked=revoked,
        past=context.port(PastKeys).name,
        key_problem=context.port(Revocations).key_problem,
        references=references,
        private_keys=private_keys,
        unsealed=authorities.refusal if is_unsealed(settings.given) else "",
    )
    yield SigningKeyChains(
        context.naming,
        feed,
        context.authorizer,
        authority_keys=authorities.of,
        references=references,
        private_keys=private_keys,
    )
    yield SigningKeySteps(
        context.naming,
        feed,
        context.authorizer,
        servers=context.port(ServerLeases).live,
        revoked=revoked,
        conditions=authorities.conditions,
        keys_of=authorities.of,
        publish_time=(str(publish_time), publish_time.seconds),
    )


def metrics(context: Context) -> Iterable[Metric]:
    return context.port(KeyMetrics).all


async def prepare(context: Context) -> None:
    """Import the token keys of files, or record them in the ledger."""
    if stores_token_keys(context.settings.given):
        await _import_keys(context)
    else:
        await note_token_keys(context)


async def note_token_keys(context: Context) -> None:
    """Record added and removed token keys of files in the ledger."""
    verifying = context.port(FollowedKeys).keys.verifying
    keys = {key.kid: {"algorithm": key.algorithm} for key in verifying.keys}
    await note_keys(context.store, "token-key", keys, context.clock.now())


async def _import_keys(context: Context) -> None:
    """Create objects for token keys that are only in files, and the first key if there is none."""
    options = context.settings.given.of(TokenKeySettings)
    files = TokenKeyFiles(
        signing_key_file(context.settings),
        tuple(map(Path, options.service_account_key_file)),
        is_configured=bool(options.service_account_signing_key_file),
        is_shared=bool(context.settings.given.etcd_servers),
    )
    importing = TokenKeyImport(
        context.naming,
        files,
        context.feed,
        context.store,
        context.random,
        clock=context.clock,
        publish_time=str(options.token_key_publish_time),
        unrecorded=context.port(AcceptedTokens).longest,
    )
    try:
        await importing.run()
    except Refusal as refusal:
        raise BadSettings(str(refusal)) from None
    await context.feed.fresh()


def background(context: Context, controls: bool) -> Iterable[Background]:
    keys, tokens = context.port(FollowedKeys), context.port(LongTokens)
    yield Background(run=lambda: keys.follow(lambda: note_token_keys(context)))
    yield Background(run=lambda: tokens.run(context.clock, sweeps=controls), close=tokens.write)
    shown = context.optional(FileKeyObjects)
    if controls and shown is not None:
        yield Background(run=shown.run)
