"""CertificateSigningRequest: what each endpoint lets through, what it refuses, and what stays."""

import datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st

from orchid.features.certificates.kinds.certificate_signing_request import (
    CertificateSigningRequest,
    CertificateSigningRequestSpec,
    CertificateSigningRequestStatus,
    declare,
)
from orchid.kernel.credentials.x509 import pem, signing_request
from orchid.kernel.credentials.x509.usages import ALL_USAGES
from orchid.kernel.engine.endpoint_fields import blank_unwritten, keep_unwritten, resets
from orchid.kernel.engine.kind import Endpoint
from orchid.kernel.engine.patch import strategic_merge
from orchid.kernel.engine.request import Request, Target
from orchid.kernel.wire.codec.documents import Undecodable, convert, encode, to_builtins
from orchid.kernel.wire.fields import aggregate
from orchid.kernel.wire.meta import ObjectMeta
from orchid.kernel.wire.naming import KUBERNETES, ORCH, Naming
from orchid.kernel.wire.request_conditions import CertificateSigningRequestCondition
from orchid.kernel.wire.struct import replace
from orchid.kernel.wire.user import UserInfo
from tests.data import hostile
from tests.unit.kernel.credentials import samples

KIND = declare(ORCH)
APPROVAL, STATUS = KIND.endpoint("approval"), KIND.endpoint("status")

CREATED = datetime.datetime(2026, 1, 2, 3, 4, 5, 678, tzinfo=datetime.UTC)
THEN = datetime.datetime(2026, 1, 2, 3, 4, 5, tzinfo=datetime.UTC)
LATER = THEN + datetime.timedelta(hours=1)

ASKED = samples.request()
CERTIFICATE = pem.encode(pem.CERTIFICATE, hostile.certificate_der())
OTHER_CERTIFICATE = pem.encode(pem.CERTIFICATE, hostile.certificate_der(hostile.AUTHORITY))
USAGES = ("client auth", "digital signature")

Condition = CertificateSigningRequestCondition
Status = CertificateSigningRequestStatus


def csr(**spec: object) -> CertificateSigningRequest:
    fields = {"request": ASKED, "signer_name": "example.com/custom", "usages": USAGES} | spec
    return CertificateSigningRequest(
        metadata=ObjectMeta(name="csr1"),
        spec=CertificateSigningRequestSpec(**fields),
    )


def condition(type_: str, status: str = "True", **fields: object) -> Condition:
    return Condition(type=type_, status=status, **fields)


def having(*types: str, certificate: bytes = b"") -> CertificateSigningRequest:
    """A stored request with these conditions."""
    conditions = tuple(
        condition(type_, last_update_time=THEN, last_transition_time=THEN) for type_ in types
    )
    return replace(csr(), status=Status(conditions=conditions, certificate=certificate))


def at(now: datetime.datetime = LATER, user: UserInfo | None = None) -> Request:
    return Request(Target("update"), user or UserInfo("signer"), now)


def write(
    endpoint: Endpoint | None,
    old: CertificateSigningRequest,
    new: CertificateSigningRequest,
    now: datetime.datetime = LATER,
) -> tuple[CertificateSigningRequest, list[str]]:
    """The object that would be stored, and the errors that prevent it."""
    rules = endpoint.rules if endpoint else KIND.rules
    new = keep_unwritten(KIND, endpoint, new, old)
    new = rules.prepare_for_update(new, old, at(now))
    errors = [*rules.validate_update(new, old), *rules.validate_transition(new, old)]
    return new, [str(error) for error in errors]


def send(
    endpoint: Endpoint | None,
    old: CertificateSigningRequest,
    *conditions: Condition,
    certificate: bytes | None = None,
) -> tuple[CertificateSigningRequest, list[str]]:
    """PUT the stored object with these conditions instead."""
    kept = old.status.certificate if certificate is None else certificate
    return write(endpoint, old, replace(old, status=Status(conditions, kept)))


def problems(new: CertificateSigningRequest) -> list[str]:
    return [str(error) for error in KIND.rules.validate(new)]


# --- create ---------------------------------------------------------------------------------------


def test_a_good_request_is_accepted() -> None:
    """Nothing is wrong with what an honest client sends, for every usage there is."""
    assert problems(csr()) == []
    assert problems(csr(usages=ALL_USAGES, expiration_seconds=600)) == []


def test_the_server_writes_down_who_asked() -> None:
    """User fields in the body are overwritten, also by empty ones."""
    claimed = csr(username="root", uid="0", groups=("system:masters",), extra={"a": ("b",)})
    user = UserInfo("jane", "u1", ("dev",), {"scopes": ("all",)})

    named = KIND.rules.prepare_for_create(claimed, at(user=user)).spec
    nobody = KIND.rules.prepare_for_create(claimed, at(user=UserInfo("x"))).spec

    assert (named.username, named.uid, named.groups, named.extra) == (
        "jane",
        "u1",
        ("dev",),
        {"scopes": ("all",)},
    )
    assert (nobody.uid, nobody.groups, nobody.extra) == ("", (), {})


def test_a_new_request_has_no_status() -> None:
    """Nobody creates a request that is approved already."""
    sent = having("Approved", certificate=CERTIFICATE)

    assert blank_unwritten(KIND, sent).status == Status()


def test_usages_may_be_left_out() -> None:
    """Section 2.6: `usages` is not required; the signer decides."""
    assert problems(csr(usages=())) == []


def test_all_errors_of_a_spec_are_reported_in_order() -> None:
    """An empty spec also reports the missing usages."""
    empty = CertificateSigningRequest(metadata=ObjectMeta(name="x"))

    assert aggregate(KIND.rules.validate(empty)) == (
        "[spec.request: Invalid value: null: PEM block type must be CERTIFICATE REQUEST, "
        "spec.usages: Required value, spec.signerName: Required value]"
    )


def test_a_bad_request_is_shown_in_base64() -> None:
    """Absent, empty and wrong look different."""
    text = "PEM block type must be CERTIFICATE REQUEST"

    assert problems(csr(request=None)) == [f"spec.request: Invalid value: null: {text}"]
    assert problems(csr(request=b"")) == [f'spec.request: Invalid value: "": {text}']
    assert problems(csr(request=b"this is not pem")) == [
        f'spec.request: Invalid value: "dGhpcyBpcyBub3QgcGVt": {text}'
    ]


def test_a_giant_request_is_not_repeated() -> None:
    """An answer never grows to many times what was sent."""
    (found,) = problems(csr(request=b"x" * 100_000))

    assert found.startswith('spec.request: Invalid value: "<value omitted>": PEM block type')


def test_a_request_that_does_not_prove_its_key_is_refused() -> None:
    """The signature of another request does not fit."""
    forged = hostile.request_der(
        signature=hostile.der.encode_bits(b"0\x06\x02\x01\x01\x02\x01\x01")
    )

    (found,) = problems(csr(request=pem.encode(pem.CERTIFICATE_REQUEST, forged)))

    assert found.endswith(": x509: ECDSA verification failure")


def test_a_request_is_parsed_once() -> None:
    """Admission asks about the very bytes that validation has read."""
    KIND.rules.validate(csr())
    first = signing_request.parse_once(ASKED)

    assert signing_request.parse_once(bytes(bytearray(ASKED))) is first


def test_usages_are_known_and_stand_once() -> None:
    """All unknown ones first, then all repeated ones; case counts."""
    found = problems(csr(usages=("Client Auth", "client auth", "client auth", "Client Auth")))

    supported = ", ".join(f'"{usage}"' for usage in ALL_USAGES)
    assert found == [
        f'spec.usages[0]: Unsupported value: "Client Auth": supported values: {supported}',
        f'spec.usages[3]: Unsupported value: "Client Auth": supported values: {supported}',
        'spec.usages[2]: Duplicate value: "client auth"',
        'spec.usages[3]: Duplicate value: "Client Auth"',
    ]
    assert supported.startswith('"any", "cert sign", "client auth"')
    assert len(ALL_USAGES) == 23


@pytest.mark.parametrize("seconds", [599, 0, -1, -(2**31)])
def test_too_short_a_lifetime_is_refused(seconds: int) -> None:
    """Ten minutes are the least; zero is not the same as absent."""
    assert problems(csr(expiration_seconds=seconds)) == [
        f"spec.expirationSeconds: Invalid value: {seconds}: may not specify a duration less than "
        "600 seconds (10 minutes)"
    ]


def test_a_lifetime_has_32_bits() -> None:
    """One second more than fits does not decode."""
    body = {"spec": {"expirationSeconds": 2**31 - 1}}
    assert convert(body, CertificateSigningRequest).spec.expiration_seconds == 2**31 - 1

    with pytest.raises(Undecodable):
        convert({"spec": {"expirationSeconds": 2**31}}, CertificateSigningRequest)


@pytest.mark.parametrize("naming", [ORCH, KUBERNETES], ids=lambda naming: naming.name)
def test_the_legacy_signer_cannot_be_asked(naming: Naming) -> None:
    """It signs only what older servers took in."""
    rules = declare(naming).rules

    found = [str(error) for error in rules.validate(csr(signer_name=naming.legacy_signer))]

    assert found == [
        f'spec.signerName: Invalid value: "{naming.legacy_signer}": '
        "the legacy signerName is not allowed via this API version"
    ]


def test_a_bad_signer_name_is_refused() -> None:
    """By the rule that requests and trust bundles share."""
    assert problems(csr(signer_name="signer")) == [
        'spec.signerName: Invalid value: "signer": must be a fully qualified domain and path of '
        "the form 'example.com/signer-name'"
    ]


@pytest.mark.parametrize(
    ("name", "problems"),
    [("Bad_Name", []), ("a/b", ["may not contain '/'"]), ("..", ["may not be '..'"])],
)
def test_any_path_segment_is_a_name(name: str, problems: list[str]) -> None:
    """Upper case and underscores are fine here."""
    assert list(KIND.rules.name_errors(name, False)) == problems


# --- what each endpoint lets through --------------------------------------------------------------


def test_the_main_endpoint_changes_metadata_alone() -> None:
    """A nonsensical spec and a status are ignored in silence."""
    old = having("Approved")
    nonsense = CertificateSigningRequest(
        metadata=ObjectMeta(name="csr1", labels={"a": "b"}),
        status=Status((condition("Denied"),), CERTIFICATE),
    )

    stored, errors = write(None, old, nonsense)

    assert errors == []
    assert (stored.spec, stored.status) == (old.spec, old.status)
    assert stored.metadata.labels == {"a": "b"}


def test_approval_does_not_touch_the_certificate_or_the_spec() -> None:
    """The approval endpoint does not accept a certificate."""
    old = having()
    sent = replace(
        csr(signer_name="example.com/other"),
        status=Status((condition("Approved"),), CERTIFICATE),
    )

    stored, errors = write(APPROVAL, old, sent)

    assert errors == []
    assert stored.has("Approved")
    assert stored.status.certificate == b""
    assert stored.spec == old.spec


def test_status_keeps_the_stored_decision_and_the_spec() -> None:
    """The status endpoint does not change the approval."""
    old = having("Approved")
    said = condition("Approved", reason="Because", last_update_time=LATER)
    sent = replace(csr(usages=("any",)), status=Status((said,), CERTIFICATE))

    stored, errors = write(STATUS, old, sent)

    assert errors == []
    assert stored.status == Status(old.status.conditions, CERTIFICATE)
    assert stored.spec == old.spec


def test_what_an_endpoint_resets_is_owned_by_nobody() -> None:
    """Conditions written through status are stored, yet not tracked."""
    assert resets(KIND, None) == ("spec", "status")
    assert resets(KIND, APPROVAL) == ("spec", "status.certificate")
    assert resets(KIND, STATUS) == ("spec", "status.conditions")


# --- condition times ------------------------------------------------------------------------------


@pytest.mark.parametrize("endpoint", [APPROVAL, STATUS], ids=["approval", "status"])
def test_times_are_filled_in(endpoint: Endpoint) -> None:
    """A new condition gets whole seconds of now for both."""
    moment = LATER.replace(microsecond=999)
    sent = replace(having(), status=Status((condition("Progress", "False"),)))

    stored, _ = write(endpoint, having(), sent, moment)

    (said,) = stored.status.conditions
    assert (said.last_update_time, said.last_transition_time) == (LATER, LATER)


def test_a_condition_that_says_the_same_has_not_changed() -> None:
    """Its update time moves, its transition time does not; another status moves both."""
    old = replace(
        csr(),
        status=Status((condition("P", "False", last_update_time=THEN, last_transition_time=THEN),)),
    )

    (same,) = send(APPROVAL, old, condition("P", "False"))[0].status.conditions
    (other,) = send(APPROVAL, old, condition("P", "True"))[0].status.conditions

    assert (same.last_update_time, same.last_transition_time) == (LATER, THEN)
    assert (other.last_update_time, other.last_transition_time) == (LATER, LATER)


def test_times_that_were_sent_are_kept() -> None:
    """The server fills gaps; it does not correct."""
    sent = condition("P", last_update_time=THEN, last_transition_time=CREATED)

    (stored,) = send(APPROVAL, having(), sent)[0].status.conditions

    assert (stored.last_update_time, stored.last_transition_time) == (THEN, CREATED)


# --- rules of conditions --------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("conditions", "expected"),
    [
        ((condition("", "True"),), ["status.conditions[0].type: Required value"]),
        ((condition("Approved", ""),), ["status.conditions[0].status: Required value"]),
        (
            (condition("Approved", "False"),),
            ['status.conditions[0].status: Unsupported value: "False": supported values: "True"'],
        ),
        (
            (condition("Own", "Maybe"),),
            [
                'status.conditions[0].status: Unsupported value: "Maybe": '
                'supported values: "False", "True", "Unknown"'
            ],
        ),
        (
            (condition("Denied"), condition("Approved")),
            [
                'status.conditions: Invalid value: "Approved": '
                "Approved and Denied conditions are mutually exclusive"
            ],
        ),
        (
            (condition("Approved"), condition("Denied"), condition("Approved")),
            [
                'status.conditions: Invalid value: "Denied": '
                "Approved and Denied conditions are mutually exclusive",
                'status.conditions: Invalid value: "Approved": '
                "Approved and Denied conditions are mutually exclusive",
                'status.conditions[2].type: Duplicate value: "Approved"',
            ],
        ),
        (
            (condition("Own"), condition("Own", "False")),
            ['status.conditions[1].type: Duplicate value: "Own"'],
        ),
    ],
)
def test_conditions_that_break_a_rule_are_refused(
    conditions: tuple[Condition, ...], expected: list[str]
) -> None:
    """Each by itself, and each beside the others."""
    assert send(APPROVAL, having(), *conditions)[1] == expected


@pytest.mark.parametrize("stored", [("Approved", "Denied"), ("Own", "Own"), ("",)])
def test_stored_faults_may_stay(stored: tuple[str, ...]) -> None:
    """A value that an older server accepted does not make an object unwritable."""
    old = having(*stored)

    assert send(APPROVAL, old, *old.status.conditions)[1] == []
    assert send(STATUS, old, *old.status.conditions)[1] == []


@pytest.mark.parametrize("type_", ["Approved", "Denied"])
@pytest.mark.parametrize("endpoint", [APPROVAL, STATUS], ids=["approval", "status"])
def test_a_decision_is_never_removed(endpoint: Endpoint, type_: str) -> None:
    """Not by anybody, through any endpoint."""
    assert send(endpoint, having(type_))[1] == [
        f'status.conditions: Forbidden: updates may not remove a condition of type "{type_}"'
    ]


def test_a_decision_is_not_swapped() -> None:
    """To drop Denied for Approved is to remove Denied."""
    assert send(APPROVAL, having("Denied"), condition("Approved"))[1] == [
        'status.conditions: Forbidden: updates may not remove a condition of type "Denied"'
    ]


@pytest.mark.parametrize("type_", ["Approved", "Denied"])
def test_status_does_not_decide(type_: str) -> None:
    """A signer cannot approve what it is going to sign."""
    assert send(STATUS, having(), condition(type_))[1] == [
        f'status.conditions: Forbidden: updates may not add a condition of type "{type_}"'
    ]


def test_other_conditions_come_and_go() -> None:
    """A signer may keep its own notes."""
    old = having("Approved", "Own")

    assert send(STATUS, old, old.status.conditions[0])[1] == []


# --- the state table ------------------------------------------------------------------------------

NO_APPROVAL = "status.certificate: Forbidden: a request without approval may not have a certificate"


@pytest.mark.parametrize(
    ("stored", "expected"),
    [
        (("Approved",), []),
        ((), [NO_APPROVAL]),
        (("Own",), [NO_APPROVAL]),
        (
            ("Denied",),
            [
                NO_APPROVAL,
                'status.certificate: Forbidden: a request with a condition of type "Denied" '
                "may not have a certificate",
            ],
        ),
        (
            ("Approved", "Failed"),
            [
                'status.certificate: Forbidden: a request with a condition of type "Failed" '
                "may not have a certificate"
            ],
        ),
    ],
)
def test_only_an_approved_request_is_issued(stored: tuple[str, ...], expected: list[str]) -> None:
    """The certificate comes after Approved, and not after Denied or Failed."""
    old = having(*stored)

    assert send(STATUS, old, *old.status.conditions, certificate=CERTIFICATE)[1] == expected


@pytest.mark.parametrize(
    ("old", "expected"),
    [
        (having("Approved"), []),
        (
            having(),
            [
                'status.conditions: Forbidden: a condition of type "Failed" may not be added to a '
                "request without approval"
            ],
        ),
        (
            having("Approved", certificate=CERTIFICATE),
            [
                'status.conditions: Forbidden: a condition of type "Failed" may not be added to a '
                "request with a certificate"
            ],
        ),
    ],
    ids=["approved", "undecided", "issued"],
)
def test_only_an_approved_request_fails(
    old: CertificateSigningRequest, expected: list[str]
) -> None:
    """Failed is the other outcome, and there is only one."""
    assert send(STATUS, old, *old.status.conditions, condition("Failed"))[1] == expected


@pytest.mark.parametrize("old", [having(), having("Approved"), having("Denied")])
def test_only_the_signer_fails_a_request(old: CertificateSigningRequest) -> None:
    """Section 3: Failed is added by an update or patch of `/status`, so not by an approver."""
    assert send(APPROVAL, old, *old.status.conditions, condition("Failed"))[1] == [
        'status.conditions: Forbidden: updates may not add a condition of type "Failed"'
    ]


def test_an_approver_may_leave_a_failure_as_it_is() -> None:
    """Writing the unchanged object adds no condition."""
    old = having("Approved", "Failed")

    assert send(APPROVAL, old, *old.status.conditions)[1] == []


def test_a_request_is_not_issued_and_failed_at_once() -> None:
    """One write cannot bring both outcomes."""
    old = having("Approved")

    _, errors = send(
        STATUS, old, *old.status.conditions, condition("Failed"), certificate=CERTIFICATE
    )

    assert len(errors) == 1


def test_the_state_is_judged_after_permissions() -> None:
    """Without the right to sign, the error does not reveal the state of the request."""
    old = having()
    sent = replace(old, status=Status(certificate=CERTIFICATE))

    assert list(STATUS.rules.validate_update(sent, old)) == []
    assert list(STATUS.rules.validate_transition(sent, old)) != []


def test_failed_stays() -> None:
    """An outcome is no more removed than a decision."""
    old = having("Approved", "Failed")

    assert send(STATUS, old, old.status.conditions[0])[1] == [
        'status.conditions: Forbidden: updates may not remove a condition of type "Failed"'
    ]


@pytest.mark.parametrize("certificate", [OTHER_CERTIFICATE, b""], ids=["another", "none"])
def test_an_issued_certificate_stays(certificate: bytes) -> None:
    """Neither replaced nor taken away."""
    old = having("Approved", certificate=CERTIFICATE)

    assert send(STATUS, old, *old.status.conditions, certificate=certificate)[1] == [
        "status.certificate: Forbidden: updates may not modify existing certificate content"
    ]


def test_a_stored_certificate_is_not_parsed_again() -> None:
    """A certificate that an older parser accepted stays, and the object stays writable."""
    old = having("Approved", certificate=b"odd")

    assert send(STATUS, old, *old.status.conditions)[1] == []


@pytest.mark.parametrize(
    ("certificate", "problem"),
    [
        (b"no PEM", "must contain at least one CERTIFICATE PEM block"),
        (
            pem.encode("X", b""),
            'only CERTIFICATE PEM blocks are allowed, found "X"',
        ),
        (
            CERTIFICATE.replace(b"-----\n", b"-----\nA: b\n\n", 1),
            "no PEM block headers are permitted",
        ),
        (
            pem.encode(pem.CERTIFICATE, b""),
            "found CERTIFICATE PEM block containing 0 certificates",
        ),
        (pem.encode(pem.CERTIFICATE, b"0\x00"), "x509: malformed tbs certificate"),
        (b"x" * (1 << 21), "PEM text of more than 1048576 bytes"),
    ],
)
def test_a_certificate_has_the_right_form(certificate: bytes, problem: str) -> None:
    """Its content is the signer's; that it is one is ours."""
    old = having("Approved")

    assert send(STATUS, old, *old.status.conditions, certificate=certificate)[1] == [
        f'status.certificate: Invalid value: "<certificate data>": {problem}'
    ]


def test_a_certificate_may_have_text_and_a_chain() -> None:
    """Explanations and intermediates are welcome."""
    old = having("Approved")
    chain = b"the leaf\n" + CERTIFICATE + b"its issuer\n" + OTHER_CERTIFICATE

    assert send(STATUS, old, *old.status.conditions, certificate=chain)[1] == []


KNOWN_TYPES = st.sampled_from(["Approved", "Denied", "Failed", "Own"])


@st.composite
def writes(draw: st.DrawFn) -> tuple[Endpoint | None, Status]:
    types = draw(st.lists(KNOWN_TYPES, max_size=4))
    certificate = draw(st.sampled_from([b"", CERTIFICATE, OTHER_CERTIFICATE]))
    endpoint = draw(st.sampled_from([None, APPROVAL, STATUS]))
    return endpoint, Status(tuple(condition(type_) for type_ in types), certificate)


@given(st.lists(writes(), max_size=12))
def test_no_way_leads_to_a_state_that_is_not_in_the_table(
    steps: list[tuple[Endpoint | None, Status]],
) -> None:
    """Whatever is written in whatever order: decided once, one outcome, and only after approval."""
    stored = having()
    for endpoint, status in steps:
        new, errors = write(endpoint, stored, replace(stored, status=status))
        if errors:
            continue

        for type_ in ("Approved", "Denied", "Failed"):
            assert new.has(type_) or not stored.has(type_)
        assert not (new.has("Approved") and new.has("Denied"))
        assert new.has("Approved") or not (new.has("Failed") or new.is_issued)
        assert not (new.has("Failed") and new.is_issued)
        assert not stored.is_issued or new.status.certificate == stored.status.certificate
        stored = new


# --- what others see ------------------------------------------------------------------------------


def test_controllers_say_what_came_of_a_request() -> None:
    """The helpers make a new object and leave the old one as it was."""
    old = having()

    approved = old.with_condition("Approved", "ByTest", "fine")
    twice = approved.with_condition("Approved", "Again")
    issued = approved.with_certificate(CERTIFICATE)

    assert old == having()
    assert approved.is_approved
    assert approved.is_decided
    assert not approved.is_issued
    assert issued.is_issued
    assert [c.reason for c in twice.status.conditions] == ["Again"]
    assert not having("Approved", "Denied").is_approved


@pytest.mark.parametrize(
    ("stored", "text"),
    [
        (having(), "Pending"),
        (having("Approved"), "Approved"),
        (having("Denied"), "Denied"),
        (having("Approved", "Denied"), "Denied"),
        (having("Approved", "Failed"), "Approved,Failed"),
        (having("Approved", certificate=CERTIFICATE), "Approved,Issued"),
        (having(certificate=CERTIFICATE), "Pending,Issued"),
    ],
)
def test_the_table_says_where_a_request_stands(
    stored: CertificateSigningRequest, text: str
) -> None:
    """By the types of its conditions alone."""
    assert KIND.columns[-1].cell(stored, LATER) == text


def test_the_table_has_the_columns_that_clients_know() -> None:
    """All of them text; what is absent says so."""
    plain = csr(username="jane").with_meta(creation_timestamp=THEN)
    empty = CertificateSigningRequest()

    assert [column.name for column in KIND.columns] == [
        "Name",
        "Age",
        "SignerName",
        "Requestor",
        "RequestedDuration",
        "Condition",
    ]
    cells = [column.cell(replace_lifetime(plain, 86400), LATER) for column in KIND.columns]
    assert cells == ["csr1", "60m", "example.com/custom", "jane", "24h", "Pending"]
    nothing = [column.cell(empty, LATER) for column in KIND.columns]
    assert nothing == ["", "<unknown>", "<none>", "", "<none>", "Pending"]


def replace_lifetime(old: CertificateSigningRequest, seconds: int) -> CertificateSigningRequest:
    return replace(old, spec=replace(old.spec, expiration_seconds=seconds))


def test_empty_fields_that_clients_expect_are_written() -> None:
    """A request of null, a signer, a status, and both times of a condition."""
    empty = CertificateSigningRequest()
    untimed = Status((Condition(type="A", status="True"),))

    assert encode(empty) == (b'{"metadata":{},"spec":{"request":null,"signerName":""},"status":{}}')
    assert encode(untimed) == (
        b'{"conditions":[{"type":"A","status":"True",'
        b'"lastUpdateTime":null,"lastTransitionTime":null}]}'
    )


def test_a_merged_condition_stands_after_those_that_are_there() -> None:
    """Conditions merge by type, and the decision stays where it was."""
    live = to_builtins(having("Approved"))
    patch = {"status": {"conditions": [{"type": "Failed", "status": "True"}]}}

    merged = strategic_merge.apply(live, patch, KIND.schema)

    types = [said["type"] for said in merged["status"]["conditions"]]
    assert types == ["Approved", "Failed"]


def test_the_declaration_says_what_clients_rely_on() -> None:
    """Group, scope, short name, selectors and endpoints."""
    assert KIND.api_version == "certificates.orch.io/v1"
    assert declare(KUBERNETES).api_version == "certificates.k8s.io/v1"
    assert (KIND.short_names, KIND.namespaced) == (("csr",), False)
    assert KIND.selectable["spec.signerName"](csr()) == "example.com/custom"
    assert [endpoint.name for endpoint in KIND.endpoints] == ["approval", "status"]
    assert not APPROVAL.has_table
    assert STATUS.has_table
