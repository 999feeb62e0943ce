"""An older backup revives no token of a revoked key: the end of run 5."""

import subprocess
import sys
from pathlib import Path

from tests.conformance.exchanges import TOKENS, tokens_by_user
from tests.e2e.https import Https
from tests.e2e.serving import running_server
from tests.e2e.test_token_key_rotation import ACCOUNTS, KEYS, is_accepted, issue, states, until
from tests.rotation.token_load import JWKS, kid_of

ADMIN = tokens_by_user()["admin"]
REVOCATIONS = "/apis/identity.orch.io/v1alpha1/credentialrevocations"
FLAGS = ("--token-auth-file", str(TOKENS), "--service-account-issuer", "https://orchid.test")


def orchid(*words: str) -> None:
    subprocess.run([sys.executable, "-m", "orchid", *words], check=True, capture_output=True)


def test_an_older_backup_revives_no_token_of_a_revoked_key(tmp_path: Path) -> None:
    """After the restore its tokens are refused, it is not published, and its successor signs."""
    data, copy = tmp_path / "data", tmp_path / "copy.db"
    with running_server(data, *FLAGS) as server, Https(server.port) as https:
        https.send("POST", ACCOUNTS, {"metadata": {"name": "builder"}}, token=ADMIN)
        token = issue(https)
        until(lambda: states(https).get("tokens-2") == "Published")
        orchid("backup", str(copy), "--data-dir", str(data))
        spec = {"key": {"name": "tokens-1"}, "reason": "keyCompromise"}
        body = {"metadata": {"name": "stolen"}, "spec": spec}
        revoked = https.send("POST", REVOCATIONS, body, token=ADMIN)
        refused = not is_accepted(https, token)
    orchid("restore", str(copy), "--accept-ledger", "--data-dir", str(data))
    with running_server(data, *FLAGS) as server, Https(server.port) as https:
        still_refused = not is_accepted(https, token)
        new = issue(https)
        published = [one["kid"] for one in https.send("GET", JWKS).json["keys"]]
        successor = https.send("GET", f"{KEYS}/tokens-2", token=ADMIN).json["status"]["keyID"]
        accepted = is_accepted(https, new)

    assert revoked.status == 201, revoked.body
    assert (refused, still_refused, accepted) == (True, True, True)
    assert kid_of(token) not in published
    assert kid_of(new) == published[0] == successor
