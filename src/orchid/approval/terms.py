"""The terms of an approval policy, as they travel: whom it selects, what it allows.

Start with `ApprovalPolicySpec`. Both the kind that stores policies and the review that tries one
carry these. What they mean is in compiled.py, what is wrong with them in term_errors.py.

A pattern is a text in which `*` matches any characters, also none and dots. In URIs and
mail addresses it does not match `/`, `@` and `:`.
"""

from typing import Annotated, Final

from msgspec import field

from orchid.wire.struct import Wire, always, describe, proto

LEAVE: Final = "leave"
DENY: Final = "deny"


class Requesters(Wire):
    """Who asks. One match is enough."""

    users: Annotated[tuple[str, ...], proto(1), describe("Patterns of user names.")] = ()
    groups: Annotated[tuple[str, ...], proto(2), describe("Patterns of groups.")] = ()
    service_accounts: Annotated[
        tuple[str, ...], proto(3), describe("Patterns of service accounts: `namespace/name`.")
    ] = ()


class Allowances(Wire):
    """What a certificate may say. What is left out is not allowed; it may always say less."""

    common_name: Annotated[str, proto(1), describe("A pattern for the common name.")] = ""
    organizations: Annotated[tuple[str, ...], proto(2), describe("Patterns of organizations.")] = ()
    organizational_units: Annotated[
        tuple[str, ...], proto(3), describe("Patterns of organizational units.")
    ] = ()
    countries: Annotated[tuple[str, ...], proto(4), describe("Patterns of countries.")] = ()
    provinces: Annotated[tuple[str, ...], proto(5), describe("Patterns of provinces.")] = ()
    localities: Annotated[tuple[str, ...], proto(6), describe("Patterns of localities.")] = ()
    street_addresses: Annotated[
        tuple[str, ...], proto(7), describe("Patterns of street addresses.")
    ] = ()
    postal_codes: Annotated[tuple[str, ...], proto(8), describe("Patterns of postal codes.")] = ()
    serial_number: Annotated[
        str, proto(9), describe("A pattern for the serial number in the subject.")
    ] = ""
    dns_names: Annotated[
        tuple[str, ...], proto(10), describe("Patterns of DNS names, in any case.")
    ] = ()
    ip_addresses: Annotated[
        tuple[str, ...], proto(11), describe("Addresses, patterns of them, or `10.0.0.0/8`.")
    ] = ()
    uris: Annotated[
        tuple[str, ...], proto(12), describe("Patterns of URIs; `*` ends at /, @ and :.")
    ] = ()
    email_addresses: Annotated[
        tuple[str, ...], proto(13), describe("Patterns of mail addresses; `*` ends at /, @ and :.")
    ] = ()
    usages: Annotated[tuple[str, ...], proto(14), describe("Usages of the key.")] = ()
    keys: Annotated[
        tuple[str, ...],
        proto(15),
        describe("Patterns of keys, by sort and size: ECDSA-P256, RSA-2048, Ed25519, RSA-*."),
    ] = ()
    max_duration: Annotated[str, proto(16), describe("The longest life, like 720h.")] = ""
    min_duration: Annotated[
        str, proto(17), describe("The shortest life; none if it is left out.")
    ] = ""


class ApprovalRule(Wire):
    """One condition more, as an expression."""

    expression: Annotated[
        str,
        proto(1),
        describe("A condition in CEL over `request`, `user` and `now`.", required=True),
    ] = always(str)
    message: Annotated[str, proto(2), describe("What to say if it does not hold.")] = ""


class ApprovalPolicySpec(Wire):
    """Which requests a policy selects, and which of those it allows."""

    signer_names: Annotated[
        tuple[str, ...], proto(1), describe("Patterns of signers; none: of every signer.")
    ] = ()
    requesters: Annotated[
        Requesters, proto(2), describe("Who asks; none: whoever may use the policy.")
    ] = field(default_factory=Requesters)
    allows: Annotated[Allowances, proto(3), describe("What a certificate may say.")] = field(
        default_factory=Allowances
    )
    rules: Annotated[
        tuple[ApprovalRule, ...], proto(4), describe("Conditions that must all hold besides.")
    ] = ()
    otherwise: Annotated[
        str,
        proto(5),
        describe(
            "`leave` or `deny`: what becomes of a request that this policy selects and that no "
            "policy allows."
        ),
    ] = ""
