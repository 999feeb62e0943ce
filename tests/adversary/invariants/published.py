"""A token verifies, by PyJWT, with a key that was published, so that everybody can check it.

The keys are those of the JWKS document before and after the token was issued.
"""

from collections.abc import Iterator

import jwt

from tests.adversary.invariants.violation import Violation
from tests.adversary.servers import ISSUER

ALGORITHMS = ["ES256", "ES384", "RS256", "EdDSA"]


class Published:
    """The keys of the last two JWKS documents, by key id."""

    def __init__(self) -> None:
        self._documents: list[dict[str, jwt.PyJWK]] = []

    def served(self, keys: list[jwt.PyJWK]) -> None:
        self._documents = [*self._documents[-1:], {str(key.key_id): key for key in keys}]

    def issued(self, label: str, token: str) -> Iterator[Violation]:
        key_id = jwt.get_unverified_header(token)["kid"]
        key = next((one[key_id] for one in self._documents if key_id in one), None)
        if key is None:
            yield Violation("unpublished key", f"{label} is signed by {key_id}")
            return
        try:
            jwt.decode(token, key, ALGORITHMS, issuer=ISSUER, options={"verify_aud": False})
        except jwt.InvalidTokenError as problem:
            yield Violation("token does not verify", f"{label}: {problem}")
