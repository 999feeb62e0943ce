"""Every endpoint by every kind of caller, each answer stated.

Two tables. PAGES gives the status of each page for each group of callers. RIGHTS gives, for each
resource, the verbs that are allowed: c create, d delete, D deletecollection, g get, l list,
p patch, u update, w watch. A verb that is not allowed is a 403; one that is allowed gets the
answer that ANSWERS states, because nothing of that name exists and bodies are empty. An
unauthenticated caller gets 401 except on the pages that are open to all.
"""

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from orchid.kernel.engine.kind import Kind
from tests.api.callers import Caller, authority, front_proxy_settings, introduce
from tests.api.world import Api, api

REFUSED = (
    "bad token", "expired token", "deleted account", "wrong audience", "proxy of another name",
)  # fmt: skip
UNKNOWN = ("none", "proxy without certificate")
KNOWN = ("plain user", "account", "proxy", "viewer", "node", "admin")

#                                       no            wrong         known,
#                                       credential    credential    no rights   admin
PAGES = """
/                                       401           401           403         200
/api                                    401           401           200         200
/api/v1                                 401           401           200         200
/apis                                   401           401           200         200
/apis/certificates.orch.io              401           401           200         200
/apis/certificates.orch.io/v1           401           401           200         200
/openapi/v2                             401           401           200         200
/openapi/v3                             401           401           200         200
/metrics                                401           401           403         200
/nowhere                                401           401           403         404
/api/v1/nothings                        401           401           403         404
/healthz                                200           401           200         200
/livez                                  200           401           200         200
/readyz                                 200           401           200         200
/livez/ping                             403           401           403         200
/version                                200           401           200         200
/.well-known/openid-configuration       200           401           200         200
/openid/v1/jwks                         200           401           200         200
/.well-known/oauth-authorization-server 200           401           200         200
"""

#                                       plain user,
#                                       account,
#                                       proxy         viewer        node        admin
RIGHTS = """
serviceaccounts                         -             glw           -           cdDglpuw
serviceaccounts/token                   -             -             -           c
namespaces                              -             glw           -           cdglpuw
namespaces/finalize                     -             -             -           u
namespaces/status                       -             -             -           gpu
secrets                                 -             -             -           cdDglpuw
configmaps                              -             glw           -           cdDglpuw
pods                                    -             glw           d           cdDglpuw
pods/status                             -             g             pu          gpu
nodes                                   -             -             pu          cdDglpuw
nodes/status                            -             -             pu          gpu
events                                  -             glw           cpu         cdDglpuw
events.events                           -             glw           cpu         cdDglpuw
leases                                  -             -             -           cdDglpuw
certificatesigningrequests              -             -             cglw        cdDglpuw
certificatesigningrequests/approval     -             -             -           gpu
certificatesigningrequests/status       -             -             -           gpu
podcertificaterequests                  -             -             -           cdDglpuw
podcertificaterequests/status           -             -             -           gpu
clustertrustbundles                     glw           glw           glw         cdDglpuw
roles                                   -             -             -           cdDglpuw
clusterroles                            -             -             -           cdDglpuw
rolebindings                            -             -             -           cdDglpuw
clusterrolebindings                     -             -             -           cdDglpuw
approvalpolicies                        -             -             -           cdDglpuw
approvalpolicies/status                 -             -             -           gpu
issuedcertificates                      -             -             -           cdglw
issuedcertificates/status               -             -             -           gu
certificateauthorities                  -             -             -           cdDglpuw
certificateauthorities/status           -             -             -           gpu
credentialrevocations                   c             c             c           cdDglpuw
credentialrevocations/status            -             -             -           gpu
publishedbundles                        -             -             -           cdDglpuw
publishedbundles/status                 -             -             -           gpu
clusters                                -             -             -           cdDglpuw
clusters/status                         -             -             -           gpu
signingkeys                             -             -             -           cdglpuw
signingkeys/status                      -             -             -           gpu
acmeaccounts                            -             -             -           cdDglpuw
acmeorders                              -             -             -           cdDglpuw
acmeorders/status                       -             -             -           gpu
consolesessions                         -             -             -           cdDglpuw
tokenexchangepolicies                   -             -             -           cdDglpuw
tokenexchangepolicies/status            -             -             -           gpu
tokenexchangereviews                    -             -             -           c
tokenreviews                            -             -             c           c
tokenreviewbatches                      -             -             -           c
certificatesearches                     -             -             -           c
selfsubjectreviews                      c             c             c           c
subjectaccessreviews                    -             -             c           c
localsubjectaccessreviews               -             -             c           c
selfsubjectaccessreviews                c             c             c           c
selfsubjectrulesreviews                 c             c             c           c
approvalreviews                         -             -             -           c
"""

LETTERS = {
    "c": "create", "d": "delete", "D": "deletecollection", "g": "get",
    "l": "list", "p": "patch", "u": "update", "w": "watch",
}  # fmt: skip
# What an allowed verb answers: there is no object `ghost`, and an empty body has no name.
ANSWERS = {
    "create": 422, "delete": 404, "deletecollection": 200, "get": 404,
    "list": 200, "patch": 404, "update": 404, "watch": 200,
}  # fmt: skip
EXCEPTIONS = {
    # Updates that create what is missing.
    ("events", "update"): 201,
    ("events.events", "update"): 422,
    ("leases", "update"): 201,
    ("roles", "update"): 201,
    ("clusterroles", "update"): 201,
    ("rolebindings", "update"): 422,
    ("clusterrolebindings", "update"): 422,
    # The authority of the platform stays.
    ("certificateauthorities", "deletecollection"): 403,
    # Only certificates of clusters are recorded by clients.
    ("issuedcertificates", "create"): 403,
    # A Pod runs as an account, and there is none here.
    ("pods", "create"): 403,
    # Reviews store nothing, so they need no name; but they need something to review.
    ("tokenreviews", "create"): 400,
    ("certificatesearches", "create"): 201,
    ("selfsubjectreviews", "create"): 201,
    ("selfsubjectrulesreviews", "create"): 400,
    ("serviceaccounts/token", "create"): 404,
}
MERGE = {"content-type": "application/merge-patch+json"}


def rows(table: str) -> dict[str, list[str]]:
    split = [line.split() for line in table.strip().splitlines()]
    return {name: cells for name, *cells in split}


def column(caller: str) -> int:
    return {"viewer": 1, "node": 2, "admin": 3}.get(caller, 0)


@pytest.fixture
async def proxied(
    server_files: Path, tmp_path: Path
) -> AsyncIterator[tuple[Api, dict[str, Caller]]]:
    proxies = authority()
    settings = front_proxy_settings(tmp_path, proxies)
    async with api(server_files, **settings) as made:
        yield made, await introduce(made, proxies)


async def ask(server: Api, caller: Caller, method: str, target: str, **more: Any) -> Any:
    headers = {**caller.headers, **more.pop("headers", {})}
    return await server.call(
        method, target, token=caller.token, headers=headers, peer=caller.peer, **more
    )


def collection(kind: Kind[Any]) -> str:
    root = f"/apis/{kind.group}/{kind.version}" if kind.group else f"/api/{kind.version}"
    return f"{root}{'/namespaces/default' if kind.namespaced else ''}/{kind.plural}"


async def answer_to(server: Api, caller: Caller, kind: Kind[Any], sub: str, verb: str) -> Any:
    """Ask for one verb on a resource or subresource, in a way that changes nothing."""
    path = collection(kind)
    item = f"{path}/ghost{f'/{sub}' if sub else ''}"
    if verb in ("list", "watch"):
        return await ask(server, caller, "GET", f"{path}{'?watch=1' if verb == 'watch' else ''}")
    if verb == "create":
        target = item if sub else path
        return await ask(server, caller, "POST", f"{target}?dryRun=All", body={})
    if verb == "get":
        return await ask(server, caller, "GET", item)
    if verb == "update":
        body = {"metadata": {"name": "ghost"}}
        return await ask(server, caller, "PUT", f"{item}?dryRun=All", body=body)
    if verb == "patch":
        return await ask(server, caller, "PATCH", item, body=b"{}", headers=MERGE)
    if verb == "delete":
        return await ask(server, caller, "DELETE", item)
    return await ask(server, caller, "DELETE", f"{path}?dryRun=All")


def endpoints(server: Api) -> list[tuple[str, Kind[Any], str, tuple[str, ...]]]:
    """Every resource and subresource with its verbs, from the catalog itself."""
    found = []
    for kind in server.server.catalog.kinds:
        group = f".{kind.group.partition('.')[0]}" if kind.is_renamed else ""
        found.append((f"{kind.plural}{group}", kind, "", kind.verbs))
        for endpoint in kind.endpoints:
            name = f"{kind.plural}/{endpoint.name}"
            found.append((name, kind, endpoint.name, endpoint.verbs))
    return found


async def test_the_tables_leave_nothing_out(server: Api) -> None:
    """Every resource that is served has a row, and the admin's column is all its verbs."""
    rights = rows(RIGHTS)
    served = {name: sorted(verbs) for name, _, _, verbs in endpoints(server)}

    missing = sorted(served.keys() - rights.keys())
    assert not missing, f"give {missing} a row in RIGHTS of tests/api/test_matrix.py"
    assert served == {
        name: sorted(LETTERS[letter] for letter in cells[3]) for name, cells in rights.items()
    }


@pytest.mark.parametrize("caller", KNOWN)
async def test_known_callers_get_their_rights(
    proxied: tuple[Api, dict[str, Caller]], caller: str
) -> None:
    """Each resource answers each verb as the table says."""
    server, callers = proxied
    expected, found = {}, {}
    for name, kind, sub, verbs in endpoints(server):
        allowed = {LETTERS[c] for c in rows(RIGHTS)[name][column(caller)] if c != "-"}
        for verb in verbs:
            answer = await answer_to(server, callers[caller], kind, sub, verb)
            found[name, verb] = answer.status
            granted = EXCEPTIONS.get((name, verb), ANSWERS[verb])
            expected[name, verb] = granted if verb in allowed else 403
            if answer.status == 403:
                assert answer.json["reason"] == "Forbidden"
                if " cannot " in answer.json["message"]:  # or what they sent is refused
                    assert answer.header("x-content-type-options") == "nosniff"

    assert found == expected


@pytest.mark.parametrize("caller", [*UNKNOWN, *REFUSED])
async def test_unknown_callers_get_nothing(
    proxied: tuple[Api, dict[str, Caller]], caller: str
) -> None:
    """Without a good credential every resource and verb answers the same bare 401."""
    server, callers = proxied
    for _, kind, sub, verbs in endpoints(server):
        for verb in verbs:
            answer = await answer_to(server, callers[caller], kind, sub, verb)
            assert answer.status == 401
            assert answer.header("www-authenticate") is None
            assert answer.json == {
                "kind": "Status",
                "apiVersion": "v1",
                "metadata": {},
                "status": "Failure",
                "message": "Unauthorized",
                "reason": "Unauthorized",
                "code": 401,
            }


@pytest.mark.parametrize("caller", [*UNKNOWN, *REFUSED, *KNOWN])
async def test_pages(proxied: tuple[Api, dict[str, Caller]], caller: str) -> None:
    """Some pages are open to all, but a wrong credential is never taken for none."""
    server, callers = proxied
    place = 0 if caller in UNKNOWN else 1 if caller in REFUSED else 3 if caller == "admin" else 2
    found = {path: (await ask(server, callers[caller], "GET", path)).status for path in rows(PAGES)}

    assert found == {path: int(cells[place]) for path, cells in rows(PAGES).items()}


async def test_a_front_proxy_speaks_for_whom_it_names(
    proxied: tuple[Api, dict[str, Caller]],
) -> None:
    """Behind the right certificate, the headers are the identity; groups count too."""
    server, callers = proxied
    proxy = callers["proxy"]
    review = "/apis/authentication.orch.io/v1/selfsubjectreviews"
    user = await ask(server, proxy, "POST", review, body={})
    master = Caller(
        headers={"x-remote-user": "root", "x-remote-group": "system:masters"},
        certificate=proxy.certificate,
    )
    forged = Caller(headers=master.headers)

    assert user.json["status"]["userInfo"]["username"] == "bob"
    assert (await ask(server, master, "GET", "/metrics")).status == 200
    assert (await ask(server, forged, "GET", "/metrics")).status == 401
