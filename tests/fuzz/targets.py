"""What strangers can send, and what must come of it: an answer, or a refusal of the stated kinds.

A target takes any bytes and returns; whatever else it lets through is a finding. Start with
`TARGETS`. Nothing here follows coverage: run.py does.
"""

from collections.abc import Callable
from contextlib import suppress
from typing import Any

from orchid.access.authorizers import configuration as authorization
from orchid.access.oidc import configuration as authentication
from orchid.assembly import encryption
from orchid.assembly.kinds import stored_kinds
from orchid.credentials import certificates, pem, signing_request
from orchid.credentials.refusals import Refusal, TokenRefused
from orchid.credentials.tokens import KeySet, Verifier
from orchid.engine.patch import json_patch, merge_patch, strategic_merge
from orchid.engine.verbs import continue_token
from orchid.expressions.cel import Compiler
from orchid.server.audit import policy
from orchid.server.sockets.messages import Peer
from orchid.server.sockets.reader import RequestReader
from orchid.server.sockets.websocket import BadFrame, FrameReader
from orchid.wire.codec import documents, protobuf
from orchid.wire.codec.field_validation import Undecodable
from orchid.wire.errors import ApiError
from orchid.wire.naming import ORCH
from orchid.wire.selection import FieldMatcher, LabelMatcher
from tests.unit.engine.patch.shapes import ACCOUNT, account, applied
from tests.unit.wire.protobuf_samples import KINDS

Target = Callable[[bytes], None]

PLAIN_HEAD = b"GET / HTTP/1.1\r\nHost: a\r\n\r\n"
HEAD_WITH_LENGTH = b"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 2\r\nAccept: */*\r\n\r\n{}"
MOST_CUTS = 100  # of one input of the request reader
LONGEST_HELD = 2 + 8 + 4 + 125  # of a frame that is read whole: its head, its mask and its payload

TYPES = [KINDS[name] for name in sorted(KINDS)]
ENCRYPTED = stored_kinds(ORCH)
LIVE = account(metadata={"name": "a", "labels": {"x": "y"}}, secrets=[{"name": "s"}])
VERIFIER: Verifier[Any] = Verifier({"https://issuer.test": KeySet(())}, dict)


def request_reader(data: bytes) -> None:
    """However the bytes are split, the same requests come of them, and the same refusal."""
    every = range(1, len(data), 1 + len(data) // MOST_CUTS)
    halves = [[data[:cut], data[cut:]] for cut in every]
    verdicts = [read(split) for split in ([data], [bytes([byte]) for byte in data], *halves)]
    for before in (PLAIN_HEAD, HEAD_WITH_LENGTH):  # it is known from the second time on
        requests, refusal = read([before, before, data])
        verdicts.append((requests[2:], refusal))
    assert verdicts.count(verdicts[0]) == len(verdicts)


def read(pieces: list[bytes]) -> Any:
    reader = new_reader()
    for piece in pieces:
        reader.feed(piece)
    return told(reader), reader.refusal


def new_reader() -> RequestReader:
    return RequestReader(
        Peer("test"),
        max_header_bytes=4096,
        max_headers=20,
        max_body_bytes=1000,
        request_timeout=1,
    )


def told(reader: RequestReader) -> Any:
    requests = [arrived.request for arrived in reader.ready]
    return [(each.method, each.target, each.headers, each.body) for each in requests]


def websocket_frames(data: bytes) -> None:
    """However the bytes are split, the same frames come of them, and the same refusal."""
    every = range(1, len(data), 1 + len(data) // MOST_CUTS)
    halves = [[data[:cut], data[cut:]] for cut in every]
    verdicts = [frames_of(split) for split in ([data], [bytes([byte]) for byte in data], *halves)]
    assert verdicts.count(verdicts[0]) == len(verdicts)


def frames_of(pieces: list[bytes]) -> Any:
    reader, found = FrameReader(), list[tuple[int, bytes]]()
    try:
        for piece in pieces:
            found += reader.feed(piece)
            assert len(reader._held) < LONGEST_HELD
    except BadFrame:
        return found, True
    return found, False


def json_body(data: bytes) -> None:
    _document(data, yaml=False)


def yaml_body(data: bytes) -> None:
    _document(data, yaml=True)


def _document(data: bytes, *, yaml: bool) -> None:
    """What was understood can be written down, and is then understood again."""
    type_ = TYPES[data[0] % len(TYPES)] if data else TYPES[0]
    decoder = documents.decoder_of(type_)
    with suppress(Undecodable):
        found, _ = decoder.decode(data[1:], yaml=yaml)
        decoder.stored(documents.encode(found))


def protobuf_body(data: bytes) -> None:
    type_ = TYPES[data[0] % len(TYPES)] if data else TYPES[0]
    with suppress(Undecodable):
        documents.encode(protobuf.message_of(type_).decode(data[1:]))
    with suppress(Undecodable):
        protobuf.opened(data)


def pem_text(data: bytes) -> None:
    with suppress(Refusal):
        pem.split(data)
    with suppress(Refusal):
        certificates.parse_blocks(data)
    with suppress(Refusal):
        signing_request.parse(data)


def der(data: bytes) -> None:
    with suppress(Refusal):
        signing_request.parse_der(data)
    with suppress(Refusal):
        certificates.identify(data)
    with suppress(Refusal):
        certificates.read_contents(certificates.parse(data), data)


def token(data: bytes) -> None:
    """Without a key that fits, no token is ever accepted."""
    try:
        VERIFIER.open(data, 0)
    except TokenRefused:
        return
    raise AssertionError("a token was accepted")


def patch(data: bytes) -> None:
    try:
        wanted = documents.plain(data)
    except Undecodable:
        return
    for apply in (json_patch.apply, merge_patch.apply):
        with suppress(ApiError):
            apply(LIVE, wanted)
    with suppress(ApiError):
        strategic_merge.apply(LIVE, wanted, ACCOUNT)
    if isinstance(wanted, dict):
        with suppress(ApiError):
            applied(LIVE, wanted)


def selector(data: bytes) -> None:
    text = data.decode("utf-8", "replace")
    with suppress(ApiError):
        LabelMatcher.parse(text).matches({"a": "b"})
    with suppress(ApiError):
        FieldMatcher.parse(text).matches(lambda field: "a")


def continuation(data: bytes) -> None:
    with suppress(ApiError):
        continue_token.decode(data.decode("latin-1"), ORCH)


def configuration(data: bytes) -> None:
    with suppress(policy.BadPolicy):
        policy.parse(data)
    with suppress(authentication.InvalidConfiguration):
        authentication.read_configuration(data, ORCH)
    with suppress(authorization.InvalidAuthorization):
        authorization.read_configuration(data, Compiler())
    with suppress(encryption.InvalidEncryption):
        encryption.read_configuration(data, ENCRYPTED)


TARGETS: dict[str, Target] = {
    "request_reader": request_reader,
    "websocket_frames": websocket_frames,
    "json_body": json_body,
    "yaml_body": yaml_body,
    "protobuf_body": protobuf_body,
    "pem_text": pem_text,
    "der": der,
    "token": token,
    "patch": patch,
    "selector": selector,
    "continuation": continuation,
    "configuration": configuration,
}
