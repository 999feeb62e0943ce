"""A certificate with its key, its chain and the bundle of its signer.

    tls.crt   certificate and chain        tls.key   key, PKCS #8
    tls.pem   key, then the chain          ca.crt    the signer's bundle

Requested with the host's identity, or as an account that a Pod places on this host: without names
by a PodCertificateRequest, with names by a CertificateSigningRequest and the account's token.
"""

import contextlib
from collections.abc import Iterator

from orchid.features.hosts.agent.calls import IdentityRefused, ServerCalls, calling
from orchid.features.hosts.agent.configuration import Certificate
from orchid.features.hosts.agent.generations import OutputFile
from orchid.features.hosts.agent.held_certificate import (
    HeldCertificate,
    RequestedNames,
    is_of_type,
    local_renewal_time,
    read_held,
    refuse_unfit,
    refuse_untrusted,
    renewal_time,
)
from orchid.features.hosts.agent.outputs.content import (
    ContentFailed,
    Files,
    Fresh,
    Life,
    Round,
    projected_sources,
)
from orchid.features.hosts.agent.outputs.token import request_token
from orchid.features.hosts.agent.requesting import (
    Placement,
    WantedCertificate,
    obtain,
    placement_of,
)
from orchid.kernel.credentials import keys
from orchid.kernel.credentials.x509 import pem
from orchid.kernel.credentials.x509.certificates import encode
from orchid.kernel.outbound.kubeconfig import ServerAccess

CHAIN, KEY, PAIR, BUNDLE = "tls.crt", "tls.key", "tls.pem", "ca.crt"


class CertificateContent:
    """The content of an output with `certificate`."""

    def __init__(self, wanted: Certificate) -> None:
        self._wanted = wanted
        self._names = RequestedNames(
            wanted.common_name, wanted.dns_names, wanted.ip_addresses, wanted.uris
        )

    def life(self, files: Files) -> Life | None:
        held = self._held(files)
        return Life(held.end, local_renewal_time(held)) if held is not None else None

    def refresh(self, name: str, files: Files, current: Round) -> Fresh:
        signer, held = self._wanted.signer, self._held(files)
        is_pending = current.state.request(name) is not None
        now = current.clocks.now()
        if held is not None and not is_pending and held.end > now:
            renews = renewal_time(current.calls, held)
            if renews > now:
                return Fresh(_files(held, current.bundle(signer)), Life(held.end, renews))
        if held is None and not is_pending:
            current.bundle(signer)  # a certificate that nothing can check is not requested
        new = self._obtain(name, held, current)
        refuse_unfit(new, self._names, current.clocks.now())
        bundle = current.bundle(signer)
        refuse_untrusted(new, bundle)
        return Fresh(_files(new, bundle), Life(new.end, local_renewal_time(new)))

    def _held(self, files: Files) -> HeldCertificate | None:
        """The present certificate; None if it is not the one that the configuration describes."""
        held = read_held(files.get(CHAIN, b""), files.get(KEY, b""))
        if held is None or not is_of_type(held.key, self._wanted.key):
            return None
        return None if self._names.missing_in(held.leaf) else held

    def _obtain(self, name: str, held: HeldCertificate | None, current: Round) -> HeldCertificate:
        settings = self._wanted
        by_pod = bool(settings.account) and not settings.has_names
        request = WantedCertificate(
            item=name,
            host=current.identity.host,
            signer=settings.signer,
            key_type=settings.key,
            names=self._names,
            usages=settings.usages,
            seconds=settings.lifetime,
            placement=self._placement(current) if by_pod else None,
        )
        reused = held.key if held is not None and settings.reuse_key else None
        with self._caller(current, by_pod=by_pod) as calls:
            try:
                return obtain(calls, current.state, request, reused)
            except IdentityRefused:
                if calls is current.calls:
                    raise
                raise ContentFailed(
                    f"the server does not accept the token of {settings.account}"
                ) from None

    @contextlib.contextmanager
    def _caller(self, current: Round, *, by_pod: bool) -> Iterator[ServerCalls]:
        """The host itself, or the account by its token."""
        if by_pod or not self._wanted.account:
            yield current.calls
            return
        access = current.calls.access
        as_account = ServerAccess(
            server=access.server,
            user=self._wanted.account,
            authority=access.authority,
            server_name=access.server_name,
            given_token=request_token(current, self._wanted.account, "", 0),
        )
        host_calls = current.calls
        with calling(
            as_account, current.clocks, host_calls.counts, host_calls.naming, host_calls.alive
        ) as calls:
            yield calls

    def _placement(self, current: Round) -> Placement:
        account, signer = self._wanted.account, self._wanted.signer
        for pod in current.pods(account):
            for source in projected_sources(pod):
                if (source.get("podCertificate") or {}).get("signerName") == signer:
                    return placement_of(current.calls, pod, current.identity.host)
        host = current.identity.host
        raise ContentFailed(
            f"no Pod places {account} on {host} for {signer}; "
            f"run: orchid host place {host} {account} --signer {signer}"
        )


def _files(held: HeldCertificate, bundle: bytes) -> list[OutputFile]:
    chain = b"".join(pem.encode(pem.CERTIFICATE, encode(certificate)) for certificate in held.chain)
    key = keys.encode_private(held.key).encode()
    return [
        OutputFile(CHAIN, chain),
        OutputFile(KEY, key, is_secret=True),
        OutputFile(PAIR, key + chain, is_secret=True),
        OutputFile(BUNDLE, bundle),
    ]
