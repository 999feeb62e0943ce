"""Known differences from the reference; docs/differences.md has the reason for each.

`decision_for` returns the sentence for a class of differences, or None if the difference is
unknown. The first server is Orchid, the second the reference. A decision must be narrow: it must
not excuse any other difference.
"""

import re
from collections.abc import Callable
from typing import Any

from tests.comparison.differences import differences
from tests.comparison.found import Found

Answer = dict[str, Any]
Decides = Callable[[Found, Answer, Answer], bool]

OK, SERVER_ERROR, CLIENT_ERRORS = 200, 500, range(400, 500)
BAD_REQUEST, UNAUTHORIZED, FORBIDDEN, NOT_FOUND, NOT_ACCEPTABLE = 400, 401, 403, 404, 406
CONFLICT, INVALID = 409, 422
ON_REQUEST = "cannot impersonate-on:"
UNREADABLE = "ignoreStoreReadErrorWithClusterBreakingPotential"
UNREADABLE_VERB = "unsafe-delete-ignore-read-errors"
REDACTED, UNSHOWN = "<secret contents redacted>", "no value is shown"
STATUS_SENT = re.compile(rb'"status"|^status:', re.MULTILINE)
# Type names and formatting of the language of the reference, Go.
INTERNALS = re.compile(
    r"json: |Go struct|Go value|&\{|&value\.|&user\.|parsing time |yaml: |\[\]string|map\[|"
    r"converting YAML|v1\.[A-Z]|illegal base64|invalid character|strconv\.|error decoding|"
    r"unmarshal|StorageError|\*[a-z]+\.[A-Z]|pkg/|\(<nil>\)|isCompound:|unrecognized type|"
    r"Invalid value: \{\"[A-Z]"
)
QUOTED = "is invalid: patch: Invalid value:"
NAMELESS = "has an element that omits all key fields"
LOOSE_KINDS = ("Pod", "Node")
BUNDLES, LISTS = "clustertrustbundles", "/crl/*"
BLANKS_FIRST = re.compile(rb"[\"']  ")
UNAPPROVED = re.compile(
    r"Forbidden: (a request without approval may not have a certificate"
    r'|a condition of type "Failed" may not be added to a request without approval)'
)
EMPTY = re.compile(rb"\[\]|\{\}")
EMPTY_DATA = re.compile(rb'"?(data|binaryData)"?: ?\{\}')


def message(answer: Answer) -> str:
    body = answer["body"]
    return str(body.get("message", "") if isinstance(body, dict) else body)


def clients_mistake(found: Found, ours: Answer, theirs: Answer) -> bool:
    return theirs["status"] == SERVER_ERROR and ours["status"] in CLIENT_ERRORS


def own_words(found: Found, ours: Answer, theirs: Answer) -> bool:
    same = [{**answer, "body": without_words(answer["body"])} for answer in (ours, theirs)]
    return same[0] == same[1] and bool(INTERNALS.search(message(theirs)))


def without_words(body: Any) -> Any:
    if not isinstance(body, dict):
        return body
    kept = {key: value for key, value in body.items() if key != "message"}
    causes = (kept.get("details") or {}).get("causes")
    if causes:
        places = [cause.get("field") for cause in causes]
        kept["details"] = {**kept["details"], "causes": places}
    return kept


def collection_status(found: Found, ours: Answer, theirs: Answer) -> bool:
    body = ours["body"]
    if found.asked.operation.action != "deletecollection" or not isinstance(body, dict):
        return False
    # There, a list that cannot be encoded as requested is refused after the deletion.
    refused = theirs["status"] == NOT_ACCEPTABLE
    alike = ours["status"] == theirs["status"] and ours["left"] == theirs["left"]
    return body.get("status") == "Success" and (alike or refused)


def never_null(found: Found, ours: Answer, theirs: Answer) -> bool:
    changes = list(differences(ours, theirs))
    return all(
        place.endswith((".items", ".rows")) and one == [] and other is None
        for place, one, other in changes
    )


def secrets_unquoted(found: Found, ours: Answer, theirs: Answer) -> bool:
    text = message(ours)
    return (REDACTED in text or UNSHOWN in text) and REDACTED not in message(theirs)


def another_order(found: Found, ours: Answer, theirs: Answer) -> bool:
    """Errors about the keys of a map have a random order there."""
    if found.asked.operation.kind not in ("ConfigMap", "Secret"):
        return False
    texts = [sorted(message(answer).strip("]").split(", ")) for answer in (ours, theirs)]
    return texts[0] == texts[1] or sorted(message(ours)) == sorted(message(theirs))


def nobody_is_anonymous(found: Found, ours: Answer, theirs: Answer) -> bool:
    shown = found.asked.request.headers.get("Authorization", "")
    return ours["status"] == UNAUTHORIZED and (shown == "Bearer " or shown.startswith("Basic "))


def bundles_for_all(found: Found, ours: Answer, theirs: Answer) -> bool:
    if found.asked.operation.kind == "SelfSubjectRulesReview":
        mine, other = str(ours["body"]), str(theirs["body"])
        return any(word in mine and word not in other for word in (BUNDLES, LISTS))
    return (
        found.asked.operation.resource == BUNDLES
        and found.asked.request.method == "GET"
        and theirs["status"] == FORBIDDEN
    )


def loose_kinds(found: Found, ours: Answer, theirs: Answer) -> bool:
    return found.asked.operation.kind in LOOSE_KINDS and (
        ours["status"] == theirs["status"]
        or ours["status"] in range(200, 300)
        or "strict decoding error: unknown field" in message(theirs)
        or "quantities must match" in message(theirs)
    )


def status_of_reviews(found: Found, ours: Answer, theirs: Answer) -> bool:
    body = found.asked.request.body or b""
    about = found.asked.operation.group in ("authentication.k8s.io", "authorization.k8s.io")
    return about and bool(STATUS_SENT.search(body)) and ours["status"] == theirs["status"]


def trimmed_tokens(found: Found, ours: Answer, theirs: Answer) -> bool:
    body = found.asked.request.body or b""
    return found.asked.operation.kind == "TokenReview" and bool(BLANKS_FIRST.search(body))


def approved_first(found: Found, ours: Answer, theirs: Answer) -> bool:
    return ours["status"] == INVALID and bool(UNAPPROVED.search(message(ours)))


def usages_optional(found: Found, ours: Answer, theirs: Answer) -> bool:
    return "spec.usages: Required value" in message(theirs)


def query_beside_body(found: Found, ours: Answer, theirs: Answer) -> bool:
    request = found.asked.request
    return request.method == "DELETE" and bool(request.body) and "?" in request.target


def filters_by_version(found: Found, ours: Answer, theirs: Answer) -> bool:
    named = "resourceVersion" in found.asked.request.target
    collection = found.asked.operation.action == "deletecollection"
    return collection and named and theirs["status"] == CONFLICT


def all_errors_at_once(found: Found, ours: Answer, theirs: Answer) -> bool:
    """Theirs has a subset of our errors, or the same in another order."""
    if ours["status"] != theirs["status"] or ours["status"] != INVALID:
        return False
    mine, other = (
        {(cause.get("field"), cause.get("message")) for cause in causes(answer)}
        for answer in (ours, theirs)
    )
    return bool(other) and other <= mine


def causes(answer: Answer) -> list[dict[str, str]]:
    body = answer["body"]
    found: list[dict[str, str]] = (body.get("details") or {}).get("causes") or []
    return found


def born_deleted(found: Found, ours: Answer, theirs: Answer) -> bool:
    changes = [
        place
        for place, _, there in differences(ours, theirs)
        if not (place.endswith(".f:metadata") and there == {"f:deletionTimestamp": {}})
    ]
    last = {place.rpartition(".")[2] for place in changes}
    return b"deletionTimestamp" in (found.asked.request.body or b"") and last <= {
        "deletionTimestamp",
        "f:deletionTimestamp",
    }


def self_link(found: Found, ours: Answer, theirs: Answer) -> bool:
    return all(place.endswith(".selfLink") for place, _, _ in differences(ours, theirs))


def old_etcd(found: Found, ours: Answer, theirs: Answer) -> bool:
    text = str(theirs["body"])
    return "RequestWatchProgress" in text or "Too large resource version" in text


def metadata_in_watch(found: Found, ours: Answer, theirs: Answer) -> bool:
    form = found.asked.request.headers.get("Accept", "")
    return "watch=" in found.asked.request.target and "as=PartialObjectMetadataList" in form


def namespace_of_parent(found: Found, ours: Answer, theirs: Answer) -> bool:
    missing = theirs["status"] == NOT_FOUND and message(theirs).startswith("namespaces ")
    under = found.asked.operation.resource == "serviceaccounts/token"
    return missing and (ours["status"] == NOT_FOUND or (under and ours["status"] == INVALID))


def bytes_in_a_list(found: Found, ours: Answer, theirs: Answer) -> bool:
    refused = ": expected string, got array" in message(ours)
    return refused and ours["status"] == BAD_REQUEST != theirs["status"]


def version_before_namespace(found: Found, ours: Answer, theirs: Answer) -> bool:
    return "strconv.ParseUint" in message(ours) and (
        theirs["status"] == NOT_FOUND and message(theirs).startswith("namespaces ")
    )


def plain_right(found: Found, ours: Answer, theirs: Answer) -> bool:
    both = ours["status"] == theirs["status"] == FORBIDDEN
    return both and "cannot impersonate resource" in message(ours) and ON_REQUEST in message(theirs)


def unreadable_objects(found: Found, ours: Answer, theirs: Answer) -> bool:
    named = UNREADABLE in message(ours) or UNREADABLE_VERB in message(ours)
    return UNREADABLE in found.asked.request.target and named


def both_bookmarks(found: Found, ours: Answer, theirs: Answer) -> bool:
    places = [place for place, _, _ in differences(ours, theirs)]
    return all(place.endswith(".orch.io/initial-events-end") for place in places)


def goes_at_once(found: Found, ours: Answer, theirs: Answer) -> bool:
    if found.asked.operation.kind != "Namespace" or ours["status"] >= SERVER_ERROR:
        return False
    body = ours["body"] if isinstance(ours["body"], dict) else {}
    unheld = body.get("kind") == "Namespace" and not (body.get("spec") or {}).get("finalizers")
    deleted = found.asked.request.method == "DELETE"
    brief = deleted and body.get("kind") in ("Table", "PartialObjectMetadata")
    return unheld or brief or ours["status"] == NOT_FOUND != theirs["status"]


def nothing_follows(found: Found, ours: Answer, theirs: Answer) -> bool:
    places = [place for place, _, _ in differences(ours, theirs)]
    return places == [".body.metadata.continue"] and "labelSelector" in found.asked.request.target


def empty_is_none(found: Found, ours: Answer, theirs: Answer) -> bool:
    kept = "field is immutable when `immutable` is set"
    body = found.asked.request.body or b""
    fewer = ours["status"] == OK or message(ours).count(kept) < message(theirs).count(kept)
    return fewer and kept in message(theirs) and bool(EMPTY_DATA.search(body))


def empty_within(found: Found, ours: Answer, theirs: Answer) -> bool:
    places = [place for place, _, _ in differences(ours, theirs)]
    return (
        found.asked.operation.kind in ("Role", "ClusterRole")
        and bool(EMPTY.search(found.asked.request.body or b""))
        and all(place.startswith(".body.metadata.managedFields") for place in places)
    )


def policies_forecast(found: Found, ours: Answer, theirs: Answer) -> bool:
    places = [place for place, _, _ in differences(ours, theirs)]
    return places == [".warning"] and "policies would" in ours["warning"]


def too_large_number(found: Found, ours: Answer, theirs: Answer) -> bool:
    patched = found.asked.request.method == "PATCH"
    return patched and "integer out of range" in message(ours)


def emptied_object(found: Found, ours: Answer, theirs: Answer) -> bool:
    refused = "aggregationRule.clusterRoleSelectors: Required value" in message(ours)
    return refused and found.asked.request.method == "PATCH" and theirs["status"] == OK


def base_of_namespace(found: Found, ours: Answer, theirs: Answer) -> bool:
    below = found.asked.operation.resource in ("namespaces/status", "namespaces/finalize")
    return below and "metadata.generateName: Invalid value" in message(ours)


def one_precondition(found: Found, ours: Answer, theirs: Answer) -> bool:
    texts = "precondition" in message(ours), "Precondition failed" in message(theirs)
    about = found.asked.operation.kind == "Namespace" and found.asked.request.method == "DELETE"
    return about and ours["status"] == theirs["status"] == CONFLICT and all(texts)


def quoted_object(found: Found, ours: Answer, theirs: Answer) -> bool:
    same = [{**answer, "body": without_words(answer["body"])} for answer in (ours, theirs)]
    letters = [sorted(message(answer)) for answer in (ours, theirs)]
    return same[0] == same[1] and letters[0] == letters[1] and QUOTED in message(ours)


def nameless_element(found: Found, ours: Answer, theirs: Answer) -> bool:
    return (ours["status"], theirs["status"]) == (OK, SERVER_ERROR) and NAMELESS in message(theirs)


def owners_of_deletable(found: Found, ours: Answer, theirs: Answer) -> bool:
    refusals = ("cannot set an ownerRef on", "cannot set blockOwnerDeletion if")
    return ours["status"] == FORBIDDEN and any(text in message(ours) for text in refusals)


ANSWERS_STATUS = "deletecollection returns a Status"
# Decided in the contract.
DECISIONS: dict[str, Decides] = {
    "a client error gets a 4xx; there, some get a bare 500": clients_mistake,
    "messages do not contain Go internals": own_words,
    ANSWERS_STATUS: collection_status,
    "deletecollection uses resourceVersion as a filter, not as a precondition": filters_by_version,
    "an empty list is [], never null": never_null,
    f"{UNREADABLE} works; there, its feature gate is off": unreadable_objects,
    "the bookmark after the initial events has the annotations of both namings": both_bookmarks,
    "refused impersonation without any constrained right reports the verb impersonate": plain_right,
    "values that may contain a credential are not quoted in errors": secrets_unquoted,
    "errors about the keys of a map are sorted; there, in random order": another_order,
    "a request without credentials gets 401": nobody_is_anonymous,
    "every authenticated user may read trust bundles and revocation lists": bundles_for_all,
    "Pod and Node accept any field; only fields about identity are validated": loose_kinds,
    "a status in the body of a review is dropped": status_of_reviews,
    "a token in a TokenReview is trimmed": trimmed_tokens,
    "spec.usages is optional": usages_optional,
    "a certificate and the condition Failed require an approval": approved_first,
    "a DELETE uses its query parameters and its body": query_beside_body,
    "a dry run of a certificate request returns the decision of the policies as a warning": (
        policies_forecast
    ),
    "changing ownerReferences needs the right to delete the object": owners_of_deletable,
}

# Not decided, but known, with the reason.
LISTED: dict[str, Decides] = {
    "all errors are reported together; there, some only after others are fixed": all_errors_at_once,
    "a deletionTimestamp in a PUT or apply that creates an object is dropped": born_deleted,
    "a namespace without finalizers is deleted by one DELETE; there, by two": goes_at_once,
    "no continue token if no matching object follows": nothing_follows,
    "empty data equals absent data, so it is no change of immutable data": empty_is_none,
    "an empty list or map in a rule or selector equals an absent one, also for field ownership": (
        empty_within
    ),
    "a number out of range in a patch is refused; there, it is changed": too_large_number,
    "an object emptied by an apply is validated; there, it is removed": emptied_object,
    "the generateName of a Namespace is validated by its subresources too": base_of_namespace,
    "a failed precondition of a Namespace has the same message as for other kinds": (
        one_precondition
    ),
    "a selfLink in the body is always dropped": self_link,
    "watches fail there because its etcd is too old": old_etcd,
    "a watch as PartialObjectMetadataList returns metadata; there, an empty stream": (
        metadata_in_watch
    ),
    "a subresource looks up its object first, then the namespace": namespace_of_parent,
    "an invalid resourceVersion is reported before a missing namespace": version_before_namespace,
    "keys of objects quoted in errors are sorted": quoted_object,
    "byte fields accept only base64 strings; there, also lists of numbers": bytes_in_a_list,
    "an apply over stored elements without their key succeeds; there, 500": nameless_element,
}


def decision_for(found: Found) -> str | None:
    ours, theirs = found.answers
    known = {**DECISIONS, **LISTED}
    return next((text for text, fits in known.items() if fits(found, ours, theirs)), None)
