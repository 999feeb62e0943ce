"""Input from strangers, and its required outcome: an answer, or a refusal of the stated kinds.

One target is none of a stranger's: the messages between a worker and its parent.

A target takes any bytes and returns; whatever else it lets through is a finding. Start with
`TARGETS`. Nothing here follows coverage: run.py does.
"""

import asyncio
import logging
import socket
import time
from collections.abc import Callable
from contextlib import suppress
from typing import Any

from orchid.assembly.kinds import stored_kinds
from orchid.features.rights.authorizers import configuration as authorization
from orchid.features.sealing import encryption
from orchid.features.sign_in.oidc import configuration as authentication
from orchid.kernel.credentials.refusals import Refusal, TokenRefused
from orchid.kernel.credentials.tokens import KeySet, Verifier
from orchid.kernel.credentials.x509 import certificates, pem, signing_request
from orchid.kernel.engine.patch import json_patch, merge_patch, strategic_merge
from orchid.kernel.engine.verbs import continue_token
from orchid.kernel.expressions.cel import Compiler
from orchid.kernel.http.messages import Peer
from orchid.kernel.http.reading.reader import RequestReader
from orchid.kernel.http.websocket import BadFrame, FrameReader
from orchid.kernel.server.audit import policy
from orchid.kernel.store.etcd import frames
from orchid.kernel.store.memory import MemoryStore
from orchid.kernel.wire.codec import documents, protobuf
from orchid.kernel.wire.codec.field_validation import Undecodable
from orchid.kernel.wire.errors import ApiError
from orchid.kernel.wire.naming import ORCH
from orchid.kernel.wire.selectors.selection import FieldMatcher, LabelMatcher
from orchid.kernel.workers.counter import SharedCounter
from orchid.kernel.workers.framing import LARGEST, Astray, Reader
from orchid.kernel.workers.messages import from_parent, from_worker, packed
from orchid.kernel.workers.remote_store import ParentLink
from orchid.kernel.workers.store_server import LARGEST_REQUEST, Session, StoreServer
from tests.unit.features.rights import rights
from tests.unit.kernel.access import verdicts
from tests.unit.kernel.engine.patch.shapes import ACCOUNT, account, applied
from tests.unit.kernel.http.reading.framing import readings
from tests.unit.kernel.wire.codec import spellings
from tests.unit.kernel.wire.protobuf_samples import KINDS

Target = Callable[[bytes], None]

PLAIN_HEAD = b"GET / HTTP/1.1\r\nHost: a\r\n\r\n"
HEAD_WITH_LENGTH = b"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 2\r\nAccept: */*\r\n\r\n{}"
MOST_CUTS = 100  # of one input of the request reader
LONGEST_HELD = 2 + 8 + 4 + 125  # of a frame that is read whole: its head, its mask and its payload

LONGEST_FRAME = 1024  # between a worker and its parent

TYPES = [KINDS[name] for name in sorted(KINDS)]
ENCRYPTED = stored_kinds(ORCH)
LIVE = account(metadata={"name": "a", "labels": {"x": "y"}}, secrets=[{"name": "s"}])
VERIFIER: Verifier[Any] = Verifier({"https://issuer.test": KeySet(())}, dict)


def request_reader(data: bytes) -> None:
    """However the bytes are split, the same requests come of them, and the same refusal."""
    every = range(1, len(data), 1 + len(data) // MOST_CUTS)
    halves = [[data[:cut], data[cut:]] for cut in every]
    verdicts = [read(split) for split in ([data], [bytes([byte]) for byte in data], *halves)]
    for before in (PLAIN_HEAD, HEAD_WITH_LENGTH):  # it is cached from the second time on
        requests, refusal = read([before, before, data])
        verdicts.append((requests[2:], refusal))
    assert verdicts.count(verdicts[0]) == len(verdicts)


def cached_heads(data: bytes) -> None:
    """A reader that caches heads and one that does not read the same, however often a head comes.

    The bytes are headers and a body behind a request line, three times; and a whole stream, twice.
    """
    request = b"POST /a HTTP/1.1\r\nHost: h\r\n" + data
    every = range(1, len(request), 1 + len(request) // MOST_CUTS)
    cuts = [[request, request, request[:cut], request[cut:]] for cut in every]
    for pieces in ([request] * 4, [request * 3], [data, data, data], *cuts):
        assert readings(pieces, cached=True) == readings(pieces, cached=False)


def read(pieces: list[bytes]) -> Any:
    reader = new_reader()
    for piece in pieces:
        reader.feed(piece)
    requests = [arrived.request for arrived in reader.ready]
    seen = [(each.method, each.target, each.headers, each.body) for each in requests]
    return seen, reader.refusal


def new_reader() -> RequestReader:
    return RequestReader(
        Peer("test"),
        max_header_bytes=4096,
        max_headers=20,
        max_body_bytes=1000,
        request_timeout=1,
    )


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


def worker_frames(data: bytes) -> None:
    """However the bytes are split, both ends take the same messages and give up at the same one.

    They hold no more than they were given, and nothing but `Astray` ends a stream.
    """
    every = range(1, len(data), 1 + len(data) // MOST_CUTS)
    halves = [[data[:cut], data[cut:]] for cut in every]
    for decode in (from_worker, from_parent):
        splits = ([data], [bytes([byte]) for byte in data], *halves)
        verdicts = [messages_of(split, decode) for split in splits]
        assert verdicts.count(verdicts[0]) == len(verdicts)
    logging.disable()  # every stream that goes astray has a line in the log
    try:
        asyncio.run(_both_ends(data))
    finally:
        logging.disable(logging.NOTSET)


def messages_of(
    pieces: list[bytes], decode: Callable[[Any], Any], longest: int = LONGEST_FRAME
) -> Any:
    reader, found, given = Reader(longest), list[bytes](), 0
    try:
        for piece in pieces:
            given += len(piece)
            for frame in reader.feed(piece):
                found.append(packed(decode(frame)))
            assert reader.unfinished <= min(given, longest + 4)
    except Astray:
        return found, True
    return found, False


async def _both_ends(data: bytes) -> None:
    """A stream that goes astray is cut off, by the parent as by a worker."""
    store = MemoryStore()
    server = StoreServer(store, FakeCounter())
    await server.start()
    session, to_worker = Session(server, lambda report: None), CutOff()
    session.connection_made(to_worker)
    session.data_received(data)
    with socket.socket() as unused:
        link = ParentLink(unused, list[Any]().append, list[Any]().append, time.monotonic)
    to_parent = CutOff()
    link.connection_made(to_parent)
    link.data_received(data)
    await asyncio.sleep(0)
    for end, transport, decode, longest in (
        (session, to_worker, from_worker, LARGEST_REQUEST),
        (link, to_parent, from_parent, LARGEST),
    ):
        assert transport.cut or not messages_of([data], decode, longest)[1]
        end.connection_lost(None)
    await store.close()


class FakeCounter(SharedCounter):
    """A counter that nobody shares."""

    value = 0

    def __init__(self) -> None:
        """Take no memory from the system for it."""


class CutOff(asyncio.Transport):
    """A connection that notes whether it was cut off; what is written to it is lost."""

    cut = False

    def abort(self) -> None:
        self.cut = True

    def is_closing(self) -> bool:
        return self.cut

    def write(self, data: bytes | bytearray | memoryview) -> None:
        """Lose it."""

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        """Nothing is buffered."""


def json_body(data: bytes) -> None:
    _document(data, yaml=False)


def strict_types(data: bytes) -> None:
    """A body that fits the strict type is the same after the full validation."""
    decoder = documents.decoder_of(TYPES[data[0] % len(TYPES)] if data else TYPES[0])
    assert spellings.read(decoder, data[1:]) == spellings.read_thoroughly(decoder, data[1:])


def yaml_body(data: bytes) -> None:
    _document(data, yaml=True)


def _document(data: bytes, *, yaml: bool) -> None:
    """A decoded document can be encoded, and then decoded again."""
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
        certificates.read_contents(certificates.read(data))


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


def etcd_frames(data: bytes) -> None:
    """Frames are the same however the bytes are cut, and headers are read or refused."""

    def read(*portions: bytes) -> list[frames.Frame] | None:
        reader = frames.Http2Reader()
        try:
            return [frame for portion in portions for frame in reader.feed(portion)]
        except frames.ProtocolError:
            return None

    whole = read(data)
    assert read(*(data[at : at + 1] for at in range(len(data)))) == whole
    headers = frames.HeaderReader()
    for frame in whole or ():
        with suppress(frames.ProtocolError):
            headers.read(frame.payload)


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
    "cached_verdicts": verdicts.compare,
    "rights": rights.compare,
    "request_reader": request_reader,
    "cached_heads": cached_heads,
    "websocket_frames": websocket_frames,
    "worker_frames": worker_frames,
    "json_body": json_body,
    "strict_types": strict_types,
    "yaml_body": yaml_body,
    "protobuf_body": protobuf_body,
    "pem_text": pem_text,
    "der": der,
    "token": token,
    "patch": patch,
    "selector": selector,
    "continuation": continuation,
    "etcd_frames": etcd_frames,
    "configuration": configuration,
}
