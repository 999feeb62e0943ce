"""Recorded exchanges: send the steps of a case to a running server and find every difference.

Start with `differences_in`: it plays one case and gives what was not as recorded, step by step.
Values that change from run to run (times, uids, versions, tokens) are replaced by what they are,
on both sides, so what is left must be equal. README.md beside this file explains a step's fields.
Never judges on the state of the server, only on its answers.
"""

import base64
import copy
import http.client
import json
import re
import secrets
import ssl
import time
import urllib.parse
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
TOKENS = HERE / "tokens.csv"

UUID = re.compile(r"\b[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}\b")
TIME = re.compile(r"\b\d{4}-\d\d-\d\d[T ]\d\d:\d\d:\d\d(\.\d+)?(Z| \+0000 UTC)( m=\+[\d.]+)?")
JWT = re.compile(r"\beyJ[\w-]+\.[\w-]+\.[\w-]+\b")
AGE = re.compile(r"^\d+s$")
VARIABLE = re.compile(r"\$\{([\w:.-]+)\}")
TABLE_COLUMN = {"name", "type", "format", "priority"}
NOT_THERE = (KeyError, IndexError, TypeError, ValueError)
NOT_CAPTURED = "not-captured"  # stands in where an earlier step gave no such value

ANSWER_SECONDS = 15.0
UNTIL_SECONDS = 15.0
ASK_AGAIN_SECONDS = 0.1
ANY_STATE_SECONDS = 2.0

Step = dict[str, Any]
Variables = dict[str, Any]


@dataclass(frozen=True)
class Case:
    """A named list of steps, from one file of cases/."""

    file: str
    name: str
    steps: tuple[Step, ...]


@dataclass(frozen=True)
class Answer:
    status: int
    headers: Mapping[str, str]
    body: Any


class Caller:
    """Sends requests as the users of a token file, each over a connection of its own."""

    def __init__(self, base_url: str, tokens: Mapping[str, str]) -> None:
        self._url = urllib.parse.urlsplit(base_url)
        self.tokens = tokens
        # What the answers say is compared here; whom we trust is tested elsewhere.
        self._tls = ssl._create_unverified_context()  # noqa: S323 -- who answers is not what is tested

    def send(
        self, method: str, path: str, headers: Mapping[str, str], body: bytes | None
    ) -> tuple[int, dict[str, str], bytes]:
        connection = http.client.HTTPSConnection(
            self._url.hostname or "", self._url.port, context=self._tls, timeout=ANSWER_SECONDS
        )
        try:
            connection.request(method, path, body=body, headers=dict(headers))
            response = connection.getresponse()
            found = {name.lower(): value for name, value in response.getheaders()}
            return response.status, found, response.read()
        finally:
            connection.close()


def all_cases() -> Iterator[Case]:
    """Every recorded case, in the order of the files."""
    for path in sorted((HERE / "cases").glob("*.json")):
        for case in json.loads(path.read_text()):
            yield Case(path.stem, case["name"], tuple(case["steps"]))


def tokens_by_user(path: Path = TOKENS) -> dict[str, str]:
    """Read a static token file: token,user,uid,"group,group"."""
    lines = [line for line in path.read_text().splitlines() if line and not line.startswith("#")]
    return {user.strip(): token.strip() for token, user, *_ in (line.split(",") for line in lines)}


def differences_in(case: Case, caller: Caller, *, patience: float = UNTIL_SECONDS) -> list[str]:
    """Play the case and give one line for everything that was not as recorded.

    `patience` is how long a step may ask again. Once the case has failed, nothing is waited for.
    """
    variables = fresh_variables(caller)
    found: list[str] = []
    for step in case.steps:
        try:
            lines = differences_of(step, caller, variables, patience=0 if found else patience)
        except (OSError, http.client.HTTPException) as failure:
            # The later steps may still tell more, so a broken connection is one more difference.
            found.append(f"{step['id']}: no answer: {failure!r}")
            continue
        found += [f"{step['id']}: {line}" for line in lines]
    return found


def differences_of(
    step: Step, caller: Caller, variables: Variables, *, patience: float
) -> list[str]:
    """Play one step and compare. Where any state will do, the newest may take a moment to show."""
    deadline = time.monotonic() + (ANY_STATE_SECONDS if takes_any_state(step) else 0)
    while True:
        lines = [*differences(step, play(step, caller, variables, patience=patience))]
        if not lines or time.monotonic() > deadline:
            return lines


def takes_any_state(step: Step) -> bool:
    """`resourceVersion=0` asks for what the server has, which may not be the newest."""
    return str(step.get("query", {}).get("resourceVersion")) == "0"


def differences(step: Step, answer: Answer) -> Iterator[str]:
    expect = step.get("expect")
    if expect is None:
        return
    if answer.status != expect["status"]:
        yield f"status {answer.status}, expected {expect['status']}"
    if expect.get("headers"):
        yield from compare(expect["headers"], dict(answer.headers), "headers")
    for path in step.get("present", []):
        if is_absent(answer.body, path):
            yield f"body{path}: absent"
    yield from compare(
        what_counts(expect.get("body"), step), what_counts(answer.body, step), "body"
    )


def play(step: Step, caller: Caller, variables: Variables, *, patience: float) -> Answer:
    """Send a step until what it waits for holds, and keep what it captures."""
    deadline = time.monotonic() + patience
    while True:
        status, headers, raw = caller.send(*request_of(step, caller, variables))
        body = parse(headers.get("content-type", ""), raw, watch=bool(step.get("watch")))
        if holds(step, body, variables) or time.monotonic() > deadline:
            break
        time.sleep(ASK_AGAIN_SECONDS)
    for name, path in step.get("capture", {}).items():
        try:
            variables[name] = pointed_at(body, path)
        except NOT_THERE:
            variables[name] = NOT_CAPTURED
    kept = {name: value for name, value in headers.items() if name in ("content-type", "warning")}
    return Answer(status, kept, normalise(body, variables))


def request_of(
    step: Step, caller: Caller, variables: Variables
) -> tuple[str, str, dict[str, str], bytes | None]:
    headers: dict[str, str] = {k: fill(v, variables) for k, v in step.get("headers", {}).items()}
    who = step.get("as", "admin")
    if who and "Authorization" not in headers:
        headers["Authorization"] = "Bearer " + fill(caller.tokens.get(who, who), variables)
    path = fill(step["path"], variables)
    if step.get("query"):
        query = [(name, str(fill(value, variables))) for name, value in step["query"].items()]
        path += "?" + urllib.parse.urlencode(query)
    body: bytes | None = None
    if "raw" in step:
        body = fill(step["raw"], variables).encode()
    elif "body" in step:
        body = json.dumps(fill(step["body"], variables)).encode()
    if body is not None:
        headers.setdefault("Content-Type", "application/json")
    return step["method"], path, {k: v for k, v in headers.items() if v != "<none>"}, body


def fresh_variables(caller: Caller) -> Variables:
    tag = secrets.token_hex(4)
    variables: Variables = {"ns": f"ns-{tag}", "tag": f"x{tag}"}
    for name, text in json.loads((HERE / "fixtures.json").read_text()).items():
        variables[f"fixture:{name}"] = text
        variables[f"b64:{name}"] = base64.b64encode(text.encode()).decode()
    variables.update({f"token:{user}": token for user, token in caller.tokens.items()})
    return variables


def fill(value: Any, variables: Variables) -> Any:
    """Put captured variables and fixtures into a request."""
    if isinstance(value, str):
        whole = VARIABLE.fullmatch(value)
        if whole and not isinstance(variables.get(whole[1]), str | None):
            return variables[whole[1]]
        return VARIABLE.sub(lambda match: str(variables.get(match[1], NOT_CAPTURED)), value)
    if isinstance(value, list):
        return [fill(item, variables) for item in value]
    if isinstance(value, dict):
        return {fill(k, variables): fill(v, variables) for k, v in value.items()}
    return value


def normalise(value: Any, variables: Variables, key: str = "") -> Any:
    """Replace what differs from run to run by what it is."""
    if isinstance(value, dict):
        return normalised_object(value, variables)
    if isinstance(value, list):
        return [normalise(item, variables) for item in value]
    if isinstance(value, str):
        return normalised_text(value, variables, key)
    return value


def normalised_object(value: dict[str, Any], variables: Variables) -> dict[str, Any]:
    out = {normalise(k, variables): normalise(v, variables, k) for k, v in value.items()}
    if out.keys() >= TABLE_COLUMN:
        out.pop("description", None)  # the words of a table column are each server's own
    if isinstance(out.get("managedFields"), list):
        out["managedFields"].sort(key=lambda entry: json.dumps(entry, sort_keys=True))
    return out


def normalised_text(value: str, variables: Variables, key: str) -> str:
    if key == "resourceVersion":
        return value if value in ("", "0") else "<rv>"
    if key == "continue" and value:
        return "<continue>"
    for name, known in variables.items():
        given = name.split(":", maxsplit=1)[0] in ("fixture", "b64", "token")
        if isinstance(known, str) and len(known) >= 5 and not given:
            value = value.replace(known, f"${{{name}}}")
    for pattern, word in ((JWT, "<jwt>"), (UUID, "<uuid>"), (TIME, "<time>")):
        value = pattern.sub(word, value)
    return value


def compare(expected: Any, actual: Any, path: str) -> Iterator[str]:
    if isinstance(expected, dict) and isinstance(actual, dict):
        for key in sorted(expected.keys() | actual.keys()):
            if key not in expected:
                yield f"{path}/{key}: unexpected {shown(actual[key])}"
            elif key not in actual:
                yield f"{path}/{key}: missing, expected {shown(expected[key])}"
            else:
                yield from compare(expected[key], actual[key], f"{path}/{key}")
    elif isinstance(expected, list) and isinstance(actual, list):
        if len(expected) != len(actual):
            yield f"{path}: {len(actual)} items, expected {len(expected)}"
        for index, (one, other) in enumerate(zip(expected, actual, strict=False)):
            yield from compare(one, other, f"{path}/{index}")
    elif "/cells/" in path and AGE.match(str(expected)) and AGE.match(str(actual)):
        return  # how many seconds old an object is depends on how busy the machine is
    elif expected != actual or type(expected) is not type(actual):
        yield f"{path}: {shown(actual)}, expected {shown(expected)}"


def shown(value: Any) -> str:
    return json.dumps(value)[:300]


def what_counts(body: Any, step: Step) -> Any:
    """Keep what the step names in `only`, or all but what it names in `ignore`."""
    if isinstance(body, dict) and "<only>" in body:
        return body["<only>"]
    if step.get("only") is not None:
        return {path: pointed_at_or(body, path, "<absent>") for path in step["only"]}
    body = copy.deepcopy(body)  # the recording is played more than once
    for path in step.get("ignore", []):
        parent, _, leaf = path.rpartition("/")
        holder = pointed_at_or(body, parent, None)
        if isinstance(holder, list) and leaf.isdigit() and int(leaf) < len(holder):
            holder.pop(int(leaf))
        elif isinstance(holder, dict):
            holder.pop(leaf, None)
    return body


def parse(content_type: str, raw: bytes, *, watch: bool) -> Any:
    text = raw.decode("utf-8", "replace")
    try:
        if watch:
            return [json.loads(line) for line in text.splitlines() if line.strip()]
        if "json" in content_type:
            return json.loads(text)
    except ValueError:
        pass  # compared as the text that it is
    return text


def holds(step: Step, body: Any, variables: Variables) -> bool:
    """Whether the step has what it waits for; a step that waits for nothing always has."""
    return all(
        pointed_at_or(body, path, None) == fill(value, variables)
        for path, value in step.get("until", {}).items()
    ) and not any(is_absent(body, path) for path in step.get("present", []))


def is_absent(body: Any, path: str) -> bool:
    return not pointed_at_or(body, path, None)


def pointed_at_or(document: Any, path: str, otherwise: Any) -> Any:
    try:
        return pointed_at(document, path)
    except NOT_THERE:
        return otherwise


def pointed_at(document: Any, path: str) -> Any:
    """Follow a JSON pointer (RFC 6901)."""
    for part in path.strip("/").split("/"):
        if part:
            key = part.replace("~1", "/").replace("~0", "~")
            document = document[int(key)] if isinstance(document, list) else document[key]
    return document
