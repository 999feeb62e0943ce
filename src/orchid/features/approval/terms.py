"""The terms of an approval policy: selection and allowed values.

Start with `ApprovalPolicySpec`, used by the kind for policies and by the review that tries one.
compiled.py evaluates it, term_errors.py validates it.

A pattern is a text in which `*` matches any characters, also none and dots. In URIs and mail
addresses it does not match `/`, `@`, `:`, `?`, `#`, `%` and `\\`.
"""

from typing import Annotated, Final

from msgspec import field

from orchid.kernel.wire.struct import Wire, always, describe, proto

LEAVE: Final = "leave"
DENY: Final = "deny"


class Requesters(Wire):
    """The selected requesters. One match suffices."""

    users: Annotated[tuple[str, ...], proto(1), describe("Patterns of user names.")] = ()
    groups: Annotated[tuple[str, ...], proto(2), describe("Patterns of groups.")] = ()
    service_accounts: Annotated[
        tuple[str, ...], proto(3), describe("Patterns of service accounts: `namespace/name`.")
    ] = ()


class Allowances(Wire):
    """Allowed values of a certificate. A missing field allows none; fewer are always allowed."""

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
        tuple[str, ...], proto(12), describe("Patterns of URIs; `*` ends at / @ : ? # % \\.")
    ] = ()
    email_addresses: Annotated[
        tuple[str, ...], proto(13), describe("Patterns of mail addresses; `*` as in uris.")
    ] = ()
    usages: Annotated[tuple[str, ...], proto(14), describe("Usages of the key.")] = ()
    keys: Annotated[
        tuple[str, ...],
        proto(15),
        describe("Patterns of keys, by algorithm and size: ECDSA-P256, RSA-2048, Ed25519, RSA-*."),
    ] = ()
    max_duration: Annotated[str, proto(16), describe("The maximum lifetime, like 720h.")] = ""
    min_duration: Annotated[str, proto(17), describe("The minimum lifetime; optional.")] = ""


class ApprovalRule(Wire):
    """An additional condition, as an expression."""

    expression: Annotated[
        str,
        proto(1),
        describe("A condition in CEL over `request`, `user` and `now`.", required=True),
    ] = always(str)
    message: Annotated[str, proto(2), describe("The message if it does not hold.")] = ""


class ApprovalPolicySpec(Wire):
    """The requests that a policy selects, and the values that it allows."""

    signer_names: Annotated[
        tuple[str, ...], proto(1), describe("Patterns of signers; empty: every signer.")
    ] = ()
    requesters: Annotated[
        Requesters, proto(2), describe("The requesters; empty: all who may use the policy.")
    ] = field(default_factory=Requesters)
    allows: Annotated[Allowances, proto(3), describe("The allowed values.")] = field(
        default_factory=Allowances
    )
    rules: Annotated[
        tuple[ApprovalRule, ...], proto(4), describe("Additional conditions that must all hold.")
    ] = ()
    otherwise: Annotated[
        str,
        proto(5),
        describe(
            "`leave` or `deny`: the effect on a request that this policy selects and no "
            "policy allows."
        ),
    ] = ""
