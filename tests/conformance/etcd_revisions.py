"""An etcd whose revisions look as the recordings expect them."""

import asyncio

from orchid.kernel.store.etcd.client import EtcdClient, TLSFiles
from orchid.kernel.store.etcd.messages import TXN, PutRequest, RequestOp, TxnRequest


async def use_up_small_revisions(etcd: str) -> None:
    """Bring etcd to revisions of five digits: the recordings do not know shorter ones in a text."""
    client = EtcdClient([etcd], TLSFiles(), timeout=60)  # 10,000 commits, on any disk
    put = TxnRequest(success=[RequestOp(request_put=PutRequest(key=b"/elsewhere", value=b""))])
    for _ in range(100):
        await asyncio.gather(*(client.call(TXN, put) for _ in range(100)))
    await client.close()
