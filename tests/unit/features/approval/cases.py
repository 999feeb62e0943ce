"""Requests, users and policies for the tests of judging."""

from datetime import timedelta
from typing import Any

import msgspec
from cryptography import x509

from orchid.features.approval.case import REQUEST_SAMPLE, Case, SignerTerms, TermsOf, case_of
from orchid.features.approval.compiled import CompiledPolicy, JudgedPolicy
from orchid.features.approval.terms import ApprovalPolicySpec
from orchid.kernel.expressions.cel import Compiler
from orchid.kernel.expressions.isolated import Evaluator
from orchid.kernel.wire.user import UserInfo
from tests.unit.kernel.credentials import samples

SIGNER = "example.com/web"
USAGES = ("digital signature", "server auth")
DAY_SECONDS = 24 * 3600
WEB = UserInfo(
    username="system:serviceaccount:web:builder",
    uid="u1",
    groups=("system:serviceaccounts", "system:serviceaccounts:web"),
    extra={"env": ("prod",)},
)
ALLOWS: dict[str, Any] = {
    "commonName": "*.web.example.com",
    "dnsNames": ["*.web.example.com"],
    "usages": ["digital signature", "server auth"],
    "keys": ["ECDSA-P256", "Ed25519"],
    "maxDuration": "720h",
}
COMPILER = Compiler()


def no_terms(_signer: str) -> SignerTerms | None:
    """Every signer is somebody else's."""
    return None


def case(
    *hosts: str,
    common_name: str = "",
    organizations: tuple[str, ...] = (),
    more: tuple[x509.GeneralName, ...] = (),
    key: Any = samples.P256,
    request: bytes | None = None,
    usages: tuple[str, ...] = USAGES,
    seconds: int | None = DAY_SECONDS,
    signer: str = SIGNER,
    user: UserInfo = WEB,
    terms_of: TermsOf = no_terms,
) -> Case:
    names = (*(x509.DNSName(host) for host in hosts), *more)
    if request is None:
        request = samples.request(common_name, organizations, alternative_names=names, key=key)
    return case_of(
        request,
        signer_name=signer,
        usages=usages,
        expiration_seconds=seconds,
        user=user,
        now=samples.NOW,
        terms_of=terms_of,
    )


def spec(**given: Any) -> ApprovalPolicySpec:
    """Terms as they are written; without any they are those of the documentation's example."""
    usual = {"signerNames": ["example.com/*"], "allows": ALLOWS}
    return msgspec.convert({**usual, **given}, ApprovalPolicySpec)


def policy(name: str = "web", problem: str = "", **given: Any) -> CompiledPolicy:
    return CompiledPolicy(name, "7", spec(**given), COMPILER, problem)


async def judged(asked: Case, name: str = "web", **given: Any) -> JudgedPolicy:
    evaluator = Evaluator(REQUEST_SAMPLE, seconds=60.0)
    return await policy(name, **given).judge(asked, evaluator)


def signer_terms(profile: Any, longest: timedelta = timedelta(days=30)) -> TermsOf:
    return lambda name: SignerTerms(profile, longest) if name == profile.signer_name else None
