"""Each invariant fails when it is shown what must not be, and is silent otherwise."""

import base64
import json
import random
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization

from tests.adversary.calls import Answer, Proof
from tests.adversary.credentials import Credential
from tests.adversary.invariants import contents, reading
from tests.adversary.invariants.conduct import MOST_FAILURES, Conduct
from tests.adversary.invariants.confidential import Confidential
from tests.adversary.invariants.ended_keys import EndedKeys
from tests.adversary.invariants.inventory import Inventory
from tests.adversary.invariants.lists import GRACE_SECONDS as LIST_SECONDS
from tests.adversary.invariants.lists import PATIENCE_SECONDS as GONE_SECONDS
from tests.adversary.invariants.lists import Lists
from tests.adversary.invariants.marks import Marks
from tests.adversary.invariants.ownership import Ownership
from tests.adversary.invariants.revived import Revived
from tests.adversary.invariants.revocations import Revocations, covers
from tests.adversary.invariants.signers import Signers
from tests.adversary.invariants.successors import PATIENCE_SECONDS, Successors
from tests.adversary.invariants.violation import LATEST_SECONDS, Violation
from tests.adversary.observer import Seen
from tests.adversary.operations import Operation
from tests.adversary.pool import Pair, Pool, digest, pem, subject
from tests.adversary.rights import SIGNERS, Rights, Rule

SIGNER = SIGNERS[0]
LATE = LATEST_SECONDS + 1
SERVER = Pool()  # keys that the server made, as far as the pool of a test knows


def rules(violations: Iterator[Violation]) -> list[str]:
    return [violation.rule for violation in violations]


def answer(status: int = 201, /, **document: Any) -> Answer:
    return Answer(status, json.dumps(document).encode())


def operation(
    act: str, kind: str = "", name: str = "", actor: str = "alice", **more: Any
) -> Operation:
    return Operation(1, actor, act, kind, name, more.pop("namespace", ""), more)


def authority(uid: str, chain: str = "", name: str = "web", **spec: Any) -> Seen:
    document = {
        "metadata": {"name": name, "uid": uid},
        "spec": {"signerName": SIGNER, **spec},
        "status": {"certificate": chain},
    }
    return Seen("certificateauthorities", document)


def signing_key(
    name: str, uid: str, pair: Pair, *, owner: str = "", chain: str = "", **spec: Any
) -> Seen:
    owners = [{"kind": "CertificateAuthority", "uid": owner}] if owner else []
    document = {
        "metadata": {"name": name, "uid": uid, "ownerReferences": owners},
        "spec": {"authority": "web" if owner else "", "state": "Active", **spec},
        "status": {"publicKey": pair.public_pem, "certificate": chain},
    }
    return Seen("signingkeys", document)


def judged(ownership: Ownership, *seen: Seen) -> list[str]:
    early = [rule for each in seen for rule in rules(ownership.saw(each))]
    return early + rules(ownership.due(LATEST_SECONDS + 1))


# -- ownership --------------------------------------------------------------------------------


def test_a_key_that_moves_to_another_authority_is_noticed() -> None:
    """The authority of the same name, created again, owns nothing of the first one."""
    root = SERVER.pair("first").root
    ownership = Ownership(Pool(), Rights({}))
    gone = Seen("certificateauthorities", authority("1", root).object, is_gone=True)

    assert judged(ownership, authority("1", root), gone) == []
    assert judged(ownership, authority("2", root)) == ["key of another"]


def test_a_key_of_a_user_counts_only_where_it_was_imported() -> None:
    """A pair in the Secret that a created authority names is an import, and in any other not."""
    pool = Pool()
    pair, secret = pool.pair("alice's"), {"namespace": "team", "name": "ca"}
    stored = operation("create", "secrets", "ca", namespace="team", pair="alice's")
    ownership = Ownership(pool, Rights({}))
    list(ownership.answered(stored, answer(metadata={"name": "ca"})))

    assert judged(ownership, authority("1", pair.root, secretRef=secret)) == []
    assert judged(ownership, authority("2", pair.root, "mail")) == ["foreign key"]


def test_the_key_of_an_authority_may_be_seen_before_the_authority() -> None:
    """The watches of two kinds have no order; the answer to the creation comes first."""
    pool = Pool()
    pair, secret = pool.pair("alice's"), {"namespace": "team", "name": "ca"}
    stored = operation("create", "secrets", "ca", namespace="team", pair="alice's")
    made = operation("create", "certificateauthorities", "web")
    ownership = Ownership(pool, Rights({}))
    list(ownership.answered(stored, answer(metadata={"name": "ca"})))
    list(ownership.answered(made, answer(metadata={"uid": "1"}, spec={"secretRef": secret})))

    assert judged(ownership, signing_key("web-1", "k", pair, owner="1")) == []
    assert judged(ownership, signing_key("web-1", "k", pair, owner="2")) == ["foreign key"]


def test_a_key_is_imported_for_the_authority_of_the_answer() -> None:
    """A watch may have brought no authority of that name yet, or the one before."""
    pool = Pool()
    pair, secret = pool.pair("alice's"), {"namespace": "team", "name": "ca"}
    stored = operation("create", "secrets", "ca", namespace="team", pair="alice's")
    imported = operation("create", "signingkeys", "web-1")
    ownership = Ownership(pool, Rights({}))
    list(ownership.answered(stored, answer(metadata={"name": "ca"})))
    list(ownership.saw(authority("1", SERVER.pair("before").root)))
    key = signing_key("web-1", "k", pair, owner="2", secretRef=secret)
    document = {part: key.object[part] for part in ("metadata", "spec")}
    list(ownership.answered(imported, answer(**document)))

    assert judged(ownership, key) == []
    assert judged(ownership, signing_key("web-1", "l", pair, owner="1")) == ["foreign key"]


def test_a_status_that_is_corrected_in_time_is_no_violation() -> None:
    """A user with the right may write a status; what follows from it counts."""
    pool = Pool()
    ownership = Ownership(pool, Rights({}))

    list(ownership.saw(authority("1", pool.pair("hers").root)))
    list(ownership.saw(authority("1", SERVER.pair("own").root)))

    assert rules(ownership.due(LATEST_SECONDS + 1)) == []


def test_a_foreign_root_above_a_key_of_the_server_is_noticed() -> None:
    """The key is the right one, but the chain of its status ends at a root of a user."""
    pool = Pool()
    own, hers = SERVER.pair("crossed"), pool.pair("hers")
    crossed = pem(hers.certify(own.key.public_key(), subject([("CN", "crossed")]))) + hers.root
    ownership = Ownership(pool, Rights({}))

    assert judged(ownership, signing_key("web-1", "k", own, owner="1", chain=own.root)) == []
    seen = signing_key("web-1", "k", own, owner="1", chain=crossed)
    assert judged(ownership, seen) == ["foreign root"]


def test_a_second_root_by_a_chain_takes_the_right_to_import() -> None:
    """The first chain installs an offline root; another root is a new key."""
    may = Rule(("import",), "identity.orch.io", "signingkeys")
    signs = Rule(("sign", "attest"), "certificates.orch.io", "signers")
    ownership = Ownership(Pool(), Rights({"bob": (may, signs)}))
    list(ownership.saw(authority("1")))

    def installed(actor: str, label: str) -> list[str]:
        done = operation("chain", "signingkeys", "web-1", actor, pair=label)
        key = signing_key("web-1", "k", SERVER.pair("own"), owner="1").object
        return rules(ownership.answered(done, answer(200, **key)))

    assert installed("alice", "offline") == []
    assert installed("bob", "bob's") == []
    assert installed("alice", "alice's") == ["another root by a chain"]


def test_a_chain_belongs_to_the_authority_in_the_answer() -> None:
    """The watch may not have shown that one yet, or still shows an earlier one of its name."""
    pool = Pool()
    ownership, root = Ownership(pool, Rights({})), pool.pair("offline")
    own = SERVER.pair("below offline")
    chain = pem(root.certify(own.key.public_key(), subject([("CN", "own")]))) + root.root
    list(ownership.saw(authority("1")))
    key = signing_key("web-1", "k", own, owner="2", chain=chain)
    done = operation("chain", "signingkeys", "web-1", pair="offline")

    list(ownership.answered(done, answer(200, **key.object)))

    assert judged(ownership, authority("2"), key) == []


def test_a_parent_of_the_same_name_is_not_the_parent() -> None:
    """The uid of the parent at creation counts."""
    first, second, child = (SERVER.pair(label) for label in ("top", "top again", "below"))
    ownership = Ownership(Pool(), Rights({}))
    chain = pem(second.certify(child.key.public_key(), subject([("CN", "below")]))) + second.root
    gone = Seen("certificateauthorities", authority("1", name="top").object, is_gone=True)

    assert judged(ownership, authority("1", first.root, "top")) == []
    assert judged(ownership, authority("2", name="low", parent={"authority": "top"}), gone) == []
    assert judged(ownership, authority("3", second.root, "top")) == []
    assert judged(ownership, authority("2", chain, "low", parent={"authority": "top"})) == [
        "parent of another"
    ]


def test_a_page_with_the_root_of_another_authority_is_noticed() -> None:
    """/trust/web.pem has the roots of the authority web, unless a user wrote that bundle."""
    first, second = SERVER.pair("left"), SERVER.pair("right")
    ownership = Ownership(Pool(), Rights({}))
    judged(ownership, authority("1", first.root, "old"), authority("2", second.root, "web"))

    assert rules(ownership.served("web", Answer(200, second.root.encode()))) == []
    served = ownership.served("web", Answer(200, first.root.encode()))
    assert rules(served) == ["root of another"]
    written = operation("create", "publishedbundles", "web")
    list(ownership.answered(written, answer()))
    assert rules(ownership.served("web", Answer(200, first.root.encode()))) == []


def test_a_root_that_was_attested_for_the_signer_may_be_on_its_pages() -> None:
    """The bundle of an authority that is gone, created again; attested for another signer: not."""
    first, second = SERVER.pair("gone"), SERVER.pair("there")
    ownership = Ownership(Pool(), Rights({}))
    judged(ownership, authority("1", first.root, "old"), authority("2", second.root, "web"))

    def served_after(signer: str, status: int) -> list[str]:
        spec = {"signerName": signer, "trustBundle": first.root}
        again = operation("again", "clustertrustbundles", "old")
        list(ownership.answered(again, answer(status, spec=spec)))
        return rules(ownership.served("web", Answer(200, first.root.encode())))

    assert served_after(SIGNERS[1], 201) == ["root of another"]
    assert served_after("", 201) == ["root of another"]
    assert served_after(SIGNER, 403) == ["root of another"]
    assert served_after(SIGNER, 201) == []


def test_a_token_key_that_nobody_imported_is_noticed() -> None:
    """A public key of a user in the JWKS document."""
    pool = Pool()
    ownership = Ownership(pool, Rights({}))
    imported = operation("create", "signingkeys", "tokens-3")
    spec = {"publicKey": pool.pair("hers").public_pem}
    keys = [("kid", pool.pair("hers").digest)]

    assert rules(ownership.served_keys(keys)) == ["foreign key"]
    list(ownership.answered(imported, answer(spec=spec)))
    assert rules(ownership.served_keys(keys)) == []


# -- keys that ended --------------------------------------------------------------------------


def test_a_revoked_key_does_not_come_back() -> None:
    """Under another name and uid, in an object or in the JWKS document."""
    pair, ended = SERVER.pair("stolen"), EndedKeys()
    revoked = operation("create", "credentialrevocations", target={"key": {"name": "web-1"}})
    list(ended.saw(signing_key("web-1", "1", pair)))
    list(ended.answered(revoked, answer()))

    assert rules(ended.saw(signing_key("web-1", "1", pair, state="Retired"))) == []
    assert rules(ended.saw(signing_key("web-3", "3", pair))) == ["revoked key is back"]
    assert rules(ended.served_keys([("kid", pair.digest)])) == ["revoked key is published"]


def test_two_authorities_may_have_had_the_key_that_was_revoked() -> None:
    """The second one had it before the revocation: it has not come back, but ends, too."""
    pair, ended = SERVER.pair("shared"), EndedKeys()
    revoked = operation("create", "credentialrevocations", target={"key": {"name": "web-1"}})
    list(ended.saw(signing_key("web-1", "1", pair)))
    list(ended.saw(signing_key("mail-1", "2", pair)))
    list(ended.answered(revoked, answer()))

    assert rules(ended.saw(signing_key("mail-1", "2", pair, state="Retired"))) == []
    assert rules(ended.saw(signing_key("mail-1", "3", pair))) == ["revoked key is back"]


def test_a_retired_key_comes_back_only_if_somebody_imports_it() -> None:
    """Deleting its object is no reason to sign with it again."""
    pair, ended = SERVER.pair("past"), EndedKeys()
    old = signing_key("web-1", "1", pair, state="Retired")
    list(ended.saw(Seen(old.kind, old.object, is_gone=True)))
    imported = operation("create", "signingkeys")
    spec = {"secretRef": {"namespace": "team", "name": "ca"}}
    list(ended.answered(imported, answer(metadata={"uid": "3"}, spec=spec)))

    assert rules(ended.saw(signing_key("web-3", "3", pair))) == []
    assert rules(ended.saw(signing_key("web-2", "2", pair))) == ["retired key is back"]


# -- revocations ------------------------------------------------------------------------------


class AllDoors:
    """Servers that accept everything."""

    def accepts(self, proof: Proof) -> bool:
        return True

    def still_accepts(self, proof: Proof) -> bool:
        return True

    def reviews(self, token: str) -> bool:
        return True

    def introspects(self, token: str) -> bool:
        return True

    def serves(self, label: str) -> bool:
        return True


def token(label: str = "token:1") -> Credential:
    return Credential(
        label,
        "system:serviceaccount:team:builder",
        Proof(token=label),
        account=("team", "builder"),
        account_uid="a",
        jti=label,
        key_id="k",
    )


def certificate(user: str = "alice") -> Credential:
    return Credential("certificate:1", user, Proof(), serial="1", sha256="ff", signer=SIGNER)


@pytest.mark.parametrize(
    ("spec", "credential"),
    [
        ({"user": {"username": "alice"}}, certificate()),
        ({"account": {"namespace": "team", "name": "builder"}}, token()),
        ({"account": {"namespace": "team", "name": "builder"}}, certificate(token().user)),
        ({"token": {"jti": "token:1"}}, token()),
        ({"key": {"name": "tokens-1", "keyID": "k"}}, token()),
        ({"authority": {"signerName": SIGNER}}, certificate()),
        ({"certificate": {"sha256": "ff"}}, certificate()),
    ],
)
def test_what_was_revoked_is_not_accepted(spec: dict[str, Any], credential: Credential) -> None:
    """Of each target; a credential that it does not mean, or a later one, may be."""
    revocations = Revocations({credential.label: credential})
    made = operation("create", "credentialrevocations")
    chance = random.Random(0)

    assert list(revocations.probe(AllDoors(), chance, 5)) == []
    revocations.answered(made, answer(metadata={"name": "r"}, spec=spec))
    [violation] = revocations.probe(AllDoors(), chance, 5)

    assert violation.rule.endswith("is accepted")
    assert not covers(spec, Credential("other", "other", Proof(), jti="j", sha256="0", signer="s"))


def test_only_a_hold_or_that_of_a_user_ends_with_its_deletion() -> None:
    """Any other revocation counts for ever, whatever happens to its object."""
    held, final = {"reason": "certificateHold"}, {"reason": "keyCompromise"}
    credential = certificate()
    for more, ends in ((held, True), (final, False)):
        revocations = Revocations({credential.label: credential})
        spec = {"certificate": {"sha256": "ff"}, **more}
        made = operation("create", "credentialrevocations", "r")
        revocations.answered(made, answer(metadata={"name": "r"}, spec=spec))
        revocations.answered(operation("delete", "credentialrevocations", "r"), answer(200))

        assert (revocations.ended == {}) is ends


def test_a_token_that_its_holder_gave_back_has_ended() -> None:
    """An answer 200 of /oauth2/revoke says that it is revoked; 503 says nothing."""
    revocations = Revocations({"token:1": token()})
    given = operation("give-back", of="token:1")

    revocations.answered(given, Answer(503))
    assert revocations.ended == {}
    revocations.answered(given, Answer(200))
    assert revocations.ended.keys() == {"token:1"}


def test_a_token_ends_with_its_account_until_a_restore() -> None:
    """An account of the same name is another one; a restored one is the same."""
    revocations = Revocations({"token:1": token()})
    account = {"metadata": {"name": "builder", "namespace": "team", "uid": "a"}}

    revocations.saw(Seen("serviceaccounts", account, is_gone=True))
    assert revocations.ended.keys() == {"token:1"}
    revocations.restored()
    assert revocations.ended == {}


# -- lists --------------------------------------------------------------------------------------


def revocation_list(number: int, *serials: int) -> Answer:
    now = datetime.now(UTC)
    builder = (
        x509.CertificateRevocationListBuilder()
        .issuer_name(subject([("CN", "web")]))
        .last_update(now)
        .next_update(now + timedelta(days=7))
        .add_extension(x509.CRLNumber(number), critical=False)
    )
    for serial in serials:
        entry = x509.RevokedCertificateBuilder().serial_number(serial).revocation_date(now)
        builder = builder.add_revoked_certificate(entry.build())
    made = builder.sign(SERVER.pair("web").key, hashes.SHA256())

    return Answer(200, made.public_bytes(serialization.Encoding.DER))


def test_a_list_neither_goes_back_nor_loses_entries_nor_ends() -> None:
    """An authority of the same name, with another uid, begins again."""
    lists = Lists()

    assert rules(lists.served("web", revocation_list(5, 1), "a", 0.0)) == []
    assert rules(lists.served("web", revocation_list(6, 1, 2), "a", 0.0)) == []
    assert rules(lists.served("web", revocation_list(4, 1, 2), "a", 0.0)) == ["list went back"]
    assert rules(lists.served("web", revocation_list(7, 2), "a", 0.0)) == ["list lost an entry"]
    assert rules(lists.served("web", Answer(404), "a", 0.0)) == []
    assert rules(lists.served("web", Answer(404), "a", GONE_SECONDS + 1)) == ["list is gone"]
    assert rules(lists.served("web", revocation_list(1), "b", 0.0)) == []


@pytest.mark.parametrize(
    ("spec", "may"),
    [
        ({"reason": "certificateHold"}, True),
        ({"user": {"username": "alice"}}, True),
        ({"certificate": {"sha256": "aa"}, "reason": "keyCompromise"}, False),
    ],
)
def test_only_what_was_lifted_may_leave_a_list(spec: dict[str, Any], may: bool) -> None:
    """Also what the list, which is signed later, still has."""
    lists, gone = Lists(), {"metadata": {"name": "r"}, "spec": spec}
    list(lists.served("web", revocation_list(1, 1), "a", 0.0))

    lists.saw(Seen("credentialrevocations", gone, is_gone=True), 0.0)
    list(lists.served("web", revocation_list(2, 1, 2), "a", LIST_SECONDS - 1))

    lost = rules(lists.served("web", revocation_list(3), "a", LIST_SECONDS + 1))
    assert lost == ([] if may else ["list lost an entry"])


# -- the inventory ------------------------------------------------------------------------------


def test_a_cross_certificate_without_a_record_is_noticed() -> None:
    """What the server signed is recorded soon; roots, and what others signed, are not its."""
    first, second, other = (SERVER.pair(label) for label in ("web-1", "web-2", "elsewhere"))
    name = subject([("CN", "web-2")])
    crossed = first.certify(second.key.public_key(), name)
    inventory = Inventory(Pool())
    list(inventory.saw(signing_key("web-1", "1", first, owner="a", chain=first.root), 0.0))

    seen = signing_key("web-2", "2", second, owner="a", chain=second.root)
    seen.object["status"]["crossCertificate"] = pem(crossed)
    list(inventory.saw(seen, 0.0))
    inventory.issued([other.certify(second.key.public_key(), name)], "elsewhere", 0.0)

    assert rules(inventory.due(LATEST_SECONDS - 1)) == []
    assert rules(inventory.due(LATEST_SECONDS + 1)) == ["not in the inventory"]


def test_an_accepted_certificate_without_a_record_is_noticed() -> None:
    """A server that accepts it must be able to say that it exists."""
    inventory = Inventory(Pool())
    spec = {"sha256": "aa"}
    list(inventory.saw(Seen("issuedcertificates", {"metadata": {}, "spec": spec}), 0.0))

    inventory.accepted("certificate:1", "aa", 0.0)
    assert rules(inventory.due(LATEST_SECONDS + 1)) == []
    inventory.accepted("certificate:2", "bb", 0.0)
    assert rules(inventory.due(LATEST_SECONDS + 1)) == ["not in the inventory"]


def test_a_recorded_certificate_is_in_the_inventory() -> None:
    """In any order of the two events."""
    first, second = SERVER.pair("web-1"), SERVER.pair("web-2")
    crossed = first.certify(second.key.public_key(), subject([("CN", "web-2")]))
    spec = {"sha256": crossed.fingerprint(hashes.SHA256()).hex()}
    record = Seen("issuedcertificates", {"metadata": {"name": "r"}, "spec": spec})
    inventory = Inventory(Pool())
    list(inventory.saw(signing_key("web-1", "1", first, owner="a", chain=first.root), 0.0))

    inventory.issued([crossed], "issued", 0.0)
    list(inventory.saw(record, 1.0))

    assert rules(inventory.due(LATEST_SECONDS + 1)) == []


# -- contents -----------------------------------------------------------------------------------


def leaf(*names: x509.GeneralName) -> x509.Certificate:
    now = datetime.now(UTC)
    pair = SERVER.pair("leaf")
    builder = (
        x509.CertificateBuilder()
        .subject_name(subject([("CN", "leaf")]))
        .issuer_name(subject([("CN", "web")]))
        .public_key(pair.key.public_key())
        .serial_number(1)
        .not_valid_before(now)
        .not_valid_after(now + timedelta(days=1))
    )
    if names:
        builder = builder.add_extension(x509.SubjectAlternativeName(names), critical=False)
    return builder.sign(pair.key, hashes.SHA256())


@pytest.mark.parametrize(
    ("name", "is_valid"),
    [
        ("a.web.example.com", True),
        ("xn--nxasmq6b.web.example.com", True),
        ("xn--a.web.example.com", False),
        ("xn--.web.example.com", False),
        ("xn--abc-.web.example.com", False),
    ],
)
def test_a_label_that_decodes_to_no_name_is_noticed(name: str, is_valid: bool) -> None:
    """It decodes to a control character, to nothing, or to what needs no encoding."""
    violations = rules(contents.name_errors(leaf(x509.DNSName(name))))

    assert violations == ([] if is_valid else ["invalid name"])


@pytest.mark.parametrize(
    ("name", "is_allowed"),
    [
        (x509.DNSName("a.web.example.com"), True),
        (x509.DNSName("elsewhere.test"), False),
        (x509.UniformResourceIdentifier("https://a.example.com/x"), True),
        (x509.UniformResourceIdentifier("https://evil.test?.example.com"), False),
        (x509.UniformResourceIdentifier("https://evil.test#.example.com"), False),
        (x509.UniformResourceIdentifier("http://a.example.com/x"), False),
    ],
)
def test_a_name_beyond_the_policy_is_noticed(name: x509.GeneralName, is_allowed: bool) -> None:
    """The host of a URI is the one that a client would connect to."""
    allows = {"dnsNames": ["*.web.example.com"], "uris": ["https://*.example.com/*"]}
    policy = {"metadata": {"name": "servers"}, "spec": {"allows": allows}}

    violations = rules(contents.policy_errors(leaf(name), policy))

    assert violations == ([] if is_allowed else ["beyond the policy"])
    assert rules(contents.policy_errors(leaf(), policy)) == []


# -- signers and marks ---------------------------------------------------------------------------


def issued(uid: str = "u", reason: str = "Adversary") -> dict[str, Any]:
    """A request that was approved, for the first signer."""
    return {
        "metadata": {"name": "req", "uid": uid},
        "spec": {"signerName": SIGNER},
        "status": {"conditions": [{"type": "Approved", "reason": reason}]},
    }


def test_a_certificate_that_nobody_approved_is_noticed() -> None:
    """By a person, or by a policy; a certificate that another signer wrote is its own."""
    pair, signers = SERVER.pair("leaf"), Signers()
    request = x509.load_pem_x509_csr(pair.request([("CN", "leaf")], []).encode())

    def judged_by(document: dict[str, Any]) -> list[str]:
        return rules(signers.issued(document, request, [leaf()], []))

    assert judged_by(issued()) == ["not approved"]
    assert judged_by(issued(reason="ApprovalPolicy")) == []
    signers.answered(operation("approve"), answer(200, metadata={"uid": "u"}))
    assert judged_by(issued()) == []
    signers.answered(operation("sign"), answer(200, metadata={"uid": "other"}))
    assert judged_by(issued("other")) == []


def test_a_certificate_with_another_key_or_more_names_is_noticed() -> None:
    """Than those of the request."""
    other = SERVER.pair("requester").request([("CN", "leaf")], [])
    own = SERVER.pair("leaf").request([("CN", "leaf")], [])
    document = issued(reason="ApprovalPolicy")

    def judged_for(text: str, *names: x509.GeneralName) -> list[str]:
        request = x509.load_pem_x509_csr(text.encode())
        return rules(Signers().issued(document, request, [leaf(*names)], []))

    assert judged_for(own) == []
    assert judged_for(other) == ["another key"]
    assert judged_for(own, x509.DNSName("a.example")) == ["more names"]


def test_a_chain_to_another_signer_is_noticed() -> None:
    """By openssl; authorities that share an imported key are one for verifiers."""
    pair, web, mail = SERVER.pair("leaf"), SERVER.pair("signs-web"), SERVER.pair("signs-mail")
    name = subject([("CN", "leaf")])
    request = x509.load_pem_x509_csr(pair.request([("CN", "leaf")], []).encode())
    made = web.certify(pair.key.public_key(), name, is_authority=False)
    document = issued(reason="ApprovalPolicy")

    def judged_with(*authorities: Seen) -> list[str]:
        objects = [seen.object for seen in authorities]
        return rules(Signers().issued(document, request, [made], objects))

    assert (
        judged_with(authority("1", web.root), authority("2", mail.root, "mail", signerName="b"))
        == []
    )
    assert judged_with(
        authority("1", mail.root), authority("2", web.root, "mail", signerName="b")
    ) == ["chain to another signer"]
    document["spec"]["signerName"] = "orch.io/orch-apiserver-client"
    assert judged_with(authority("1", web.root, "cluster", signerName="")) == []
    assert judged_with(authority("1", web.root)) == ["chain to another signer"]
    document["spec"]["signerName"] = SIGNER
    shared = authority("2", web.root, "mail", signerName="b")
    assert judged_with(authority("1", web.root), shared) == []


def test_a_mark_without_a_revocation_is_noticed() -> None:
    """A text like `CN=alice` in another part of the subject is no name of the certificate."""
    pair = SERVER.pair("marked")
    name = subject([("serialNumber", "1,CN=alice"), ("CN", "bob")])
    made = pair.certify(pair.key.public_key(), name, is_authority=False)
    der = base64.b64encode(made.public_bytes(serialization.Encoding.DER)).decode()
    spec = {"sha256": "ff", "signerName": SIGNER, "certificate": der}
    record = {"metadata": {"uid": "r"}, "spec": spec, "status": {"revoked": {"reason": "x"}}}

    def judged_after(username: str) -> list[str]:
        marks, revoked = Marks(), {"user": {"username": username}}
        made = {"metadata": {"uid": "c"}, "spec": revoked}
        marks.saw(Seen("issuedcertificates", record), 0.0)
        assert rules(marks.due(0.0)) == []
        marks.saw(Seen("credentialrevocations", made), 0.0)
        return rules(marks.due(LATE))

    assert judged_after("bob") == []
    assert judged_after("alice") == ["marked without a reason"]


# -- rights ---------------------------------------------------------------------------------------


def test_a_success_without_the_right_is_noticed() -> None:
    """Of the verb, and of the signer of an approval."""
    reads = Rule(("get",), "", "secrets", (), "team")
    approves = Rule(("update",), "certificates.orch.io", "certificatesigningrequests/approval")
    rights = Rights({"alice": (reads, approves)})

    def rules_of(act: str, kind: str, namespace: str = "", status: int = 200) -> list[str]:
        done = operation(act, kind, "x", namespace=namespace)
        document = answer(status, metadata={"name": "x"}, spec={"signerName": SIGNER})
        return rules(reading.judged(rights, "alice", done, document))

    assert rules_of("read", "secrets", "team") == []
    assert rules_of("read", "secrets", "orch-system") == ["without the right"]
    assert rules_of("read", "secrets", "orch-system", 403) == []
    assert rules_of("list", "secrets", "team") == ["without the right"]
    assert rules_of("read", "clustertrustbundles") == []
    assert rules_of("approve", "certificatesigningrequests") == ["without the right"]
    assert rules_of("watch", "secrets", "team") == ["without the right"]
    assert rules_of("patch", "secrets", "team") == ["without the right"]


@pytest.mark.parametrize("act", ["create", "again", "apply", "put"])
def test_a_new_bundle_takes_the_right_to_attest_for_its_signer(act: str) -> None:
    """Also one that was deleted and is created again; a bundle without a signer takes none."""
    writes = Rule(("create", "patch", "update"), "certificates.orch.io", "clustertrustbundles")
    attests = Rule(("attest",), "certificates.orch.io", "signers", (SIGNER,))
    done = operation(act, "clustertrustbundles", "x")

    def rules_of(signer: str, *more: Rule) -> list[str]:
        made = answer(201, metadata={"name": "x"}, spec={"signerName": signer})
        return rules(reading.judged(Rights({"alice": (writes, *more)}), "alice", done, made))

    assert rules_of(SIGNER) == ["without the right"]
    assert rules_of(SIGNERS[1], attests) == ["without the right"]
    assert rules_of(SIGNER, attests) == []
    assert rules_of("") == []


def test_an_apply_that_creates_takes_the_right_to_create() -> None:
    """And to patch; a put takes that to update."""
    patches = Rule(("patch",), "", "secrets")
    rights = Rights({"alice": (patches,)})

    def rules_of(act: str, status: int) -> list[str]:
        done = operation(act, "secrets", "x")
        return rules(reading.judged(rights, "alice", done, answer(status)))

    assert rules_of("apply", 200) == []
    assert rules_of("apply", 201) == ["without the right"]
    assert rules_of("put", 200) == ["without the right"]


def test_a_key_in_an_answer_or_a_log_is_noticed() -> None:
    """Also in an error; who may read the Secret, or has just written it, may see it."""
    pair = SERVER.pair("kept secret")
    data = {"tls.key": base64.b64encode(pair.key_pem.encode()).decode()}
    document = {"metadata": {"name": "ca", "namespace": "team"}, "data": data}
    confidential = Confidential(Rights({"bob": (Rule(("list",), "", "secrets"),)}))
    confidential.saw(Seen("secrets", document))

    def rules_of(user: str, act: str, status: int, *, plain: bool = False) -> list[str]:
        body = pair.key_pem.encode() if plain else json.dumps(document).encode()
        done = operation(act, "secrets", "ca", namespace="team")
        return rules(confidential.answered(user, done, Answer(status, body)))

    assert rules_of("alice", "read", 200) == ["confidential data"]
    assert rules_of("alice", "read", 200, plain=True) == ["confidential data"]
    assert rules_of("alice", "patch", 422) == ["confidential data"]
    assert rules_of("alice", "patch", 200) == []
    assert rules_of("bob", "read", 200) == []
    assert rules(confidential.logged(f"audit {data['tls.key']}")) == ["confidential data"]
    assert rules(confidential.logged("audit ***")) == []


def test_a_value_of_two_secrets_is_for_the_readers_of_either() -> None:
    """A token key that was imported from a Secret is copied into another one."""
    reads = Rule(("watch",), "", "secrets", namespace="team")
    confidential = Confidential(Rights({"bob": (reads,)}))
    data = {"tls.key": base64.b64encode(SERVER.pair("ca").key_pem.encode()).decode()}
    for namespace in ("team", "orch-system"):
        meta = {"name": "ca", "namespace": namespace}
        confidential.saw(Seen("secrets", {"metadata": meta, "data": data}))

    shown = Answer(200, json.dumps(data).encode())
    watched = operation("watch", "secrets", namespace="team")
    assert rules(confidential.answered("bob", watched, shown)) == []
    assert rules(confidential.answered("alice", watched, shown)) == ["confidential data"]


# -- conduct, restores and successors -------------------------------------------------------


def test_a_5xx_a_traceback_and_a_held_loop_are_noticed() -> None:
    """503 is an answer of a server that stops; an idle process was not scheduled."""
    conduct = Conduct()
    read = operation("read", "secrets")
    lines = {
        "12:00:00 error   request.failed audit_id=1": ["traceback"],
        "12:00:00 warning loop.held seconds=2.5 by=json.loads < orchid.x": ["loop was held"],
        "12:00:00 warning loop.held seconds=0.2 by=json.loads < orchid.x": [],
        "12:00:00 warning loop.held seconds=2.5 by=json.dumps < orchid.x": [],
        "12:00:00 debug   loop.held seconds=2.5 by=idle (process not scheduled)": [],
        "12:00:00 info    leader.elected identity=a": [],
    }

    assert rules(conduct.answered(read, Answer(500))) == ["5xx"]
    assert rules(conduct.answered(read, Answer(503))) == []
    list(conduct.logged("12:00:00 warning loop.held seconds=2.5 by=json.loads < orchid.y"))
    for line, expected in lines.items():
        assert rules(conduct.logged(line)) == expected


def test_a_controller_that_fails_for_ever_is_noticed() -> None:
    """Some failures end by themselves; many in a row of one object do not."""
    line = '12:00:00 warning controller.failed controller=c object=web why="no" again_after=1'
    conduct = Conduct()

    assert rules(conduct.logged("\n".join([line] * (MOST_FAILURES - 1)))) == []
    assert rules(conduct.logged(line)) == ["controller fails"]
    refused = '12:00:00 warning controller.failed controller=garbagecollector why="r is forbidden"'
    assert rules(conduct.logged("\n".join([refused] * MOST_FAILURES))) == []
    other = refused.replace("forbidden", "unknown")
    assert rules(conduct.logged("\n".join([other] * MOST_FAILURES))) == ["controller fails"]


def test_a_restore_that_names_what_it_revives_is_silent() -> None:
    """Deleted objects that decide about credentials, by uid."""
    policy = {"metadata": {"name": "servers", "uid": "p"}}
    live = {("approvalpolicies", "", "servers"): policy}
    for printed, expected in (("", ["back without a word"]), ("servers", [])):
        revived = Revived()
        revived.saw(Seen("approvalpolicies", policy, is_gone=True))

        assert rules(revived.restored(printed, live)) == expected
        assert rules(revived.restored(printed, live)) == []  # it is there now


def test_a_missing_next_token_key_is_noticed() -> None:
    """After a while: the controller needs some time."""
    successors = Successors()
    active = {"spec": {"state": "Active"}}
    published = {"spec": {"state": "Published"}}
    other = {"spec": {"state": "Published", "authority": "web"}}

    assert rules(successors.due([active, published], 0.0)) == []
    assert rules(successors.due([active, other], 1.0)) == []
    assert rules(successors.due([active, other], 2.0 + PATIENCE_SECONDS)) == ["no next token key"]


def test_keys_of_the_pool_are_known_by_their_digest() -> None:
    """A label means one key, and a key of nobody has no label."""
    pool = Pool()
    pair = pool.pair("hers")

    assert pool.pair("hers") is pair
    assert pool.label_of(digest(pair.key.public_key())) == "hers"
    assert pool.label_of(SERVER.pair("own").digest) == ""
