"""Errors of ACME requests: problem documents (RFC 7807) with the types of RFC 8555, section 6.7."""

from typing import Any, Final

import msgspec

from orchid.kernel.server.failures import BareRefusal

NAMESPACE: Final = "urn:ietf:params:acme:error:"
PROBLEM_JSON: Final = b"Content-Type: application/problem+json\r\n"
NO_STORE: Final = b"no-store"
NOT_FOUND: Final = 404
# Codes of types that are not 400.
CODES: Final = {
    "accountDoesNotExist": 400,
    "alreadyReplaced": 409,
    "externalAccountRequired": 403,
    "orderNotReady": 403,
    "rateLimited": 429,
    "serverInternal": 500,
    "unauthorized": 403,
}
BAD_REQUEST: Final = 400


class AcmeProblem(BareRefusal):
    """An error with its type, and a sentence for people."""

    def __init__(
        self, type_: str, detail: str, *, code: int = 0, headers: bytes = b"", **members: Any
    ) -> None:
        self.type = type_
        self.detail = detail
        code = code or CODES.get(type_, BAD_REQUEST)
        document = {"type": NAMESPACE + type_, "detail": detail, "status": code, **members}
        body = msgspec.json.encode(document)
        super().__init__(code, PROBLEM_JSON + headers, body, cache=NO_STORE)

    def __str__(self) -> str:
        return f"{self.type}: {self.detail}"


def malformed(detail: str, *, code: int = 0, headers: bytes = b"") -> AcmeProblem:
    return AcmeProblem("malformed", detail, code=code, headers=headers)


def unauthorized(detail: str) -> AcmeProblem:
    return AcmeProblem("unauthorized", detail)


def unknown(what: str) -> AcmeProblem:
    """An object that does not exist, or belongs to another account."""
    return malformed(f"no such {what}", code=NOT_FOUND)


def internal(code: int = 500, headers: bytes = b"") -> AcmeProblem:
    """A failure of the server; the text is in its log."""
    detail = "the server cannot answer now; its log has the reason"
    return AcmeProblem("serverInternal", detail, code=code, headers=headers)
