"""A worker program without a server: sends its process id to each connection.

    python small_worker.py MODE SOCKET

serve: a normal worker. deaf: ignores SIGTERM. mute: sends no sign of life once it serves.
unfit: says that a setting is wrong. crash: ends at once. slow: takes seconds to say its first word.
"""

import asyncio
import os
import signal
import socket
import sys
import time

from orchid.kernel.workers.messages import UnfitMessage
from orchid.kernel.workers.remote_store import RemoteStore

SLOW_SECONDS = 3.0


async def main(mode: str, link: int) -> int:
    if mode == "crash":
        return 7
    if mode == "slow":
        await asyncio.sleep(SLOW_SECONDS)
    store = await RemoteStore.connect(socket.socket(fileno=link), time.monotonic)
    if mode == "unfit":
        store.link.send(UnfitMessage("--listen: not like this"))
        await store.close()
        return 2
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    loop.add_signal_handler(signal.SIGTERM, (lambda: None) if mode == "deaf" else stop.set)
    beating = loop.create_task(store.beat())
    await store.ready()
    if mode == "mute":
        beating.cancel()
    for number in store.begin.sockets:
        bound = socket.socket(fileno=number)
        bound.setblocking(False)
        bound.listen()
        loop.add_reader(bound, send_pid, bound)
    stopping = loop.create_task(stop.wait())
    await asyncio.wait([stopping, store.link.lost], return_when=asyncio.FIRST_COMPLETED)
    return 0


def send_pid(bound: socket.socket) -> None:
    try:
        client, _ = bound.accept()
    except BlockingIOError:
        return  # another worker was faster
    with client:
        client.sendall(b"%d" % os.getpid())


if __name__ == "__main__":
    sys.exit(asyncio.run(main(sys.argv[1], int(sys.argv[2]))))
