"""Operations of ACME clients, and of those who share a name with them."""

from tests.adversary.acme import ACCOUNT_UID
from tests.adversary.drawing.authorities import Authorities
from tests.adversary.drawing.requests import DNS, USAGES
from tests.adversary.drawing.tokens import Tokens
from tests.adversary.operations import Operation
from tests.adversary.rights import ACCOUNTS, TEAM, account_user

KEYS = ("acme-1", "acme-2")
SECONDS = (600, 86_400)


class AcmeClients(Authorities, Tokens):
    """Accounts, orders and their requests; some requests are made through the API."""

    def _external_key(self) -> Operation | None:
        name, account = self._chance.choice(KEYS), self._chance.choice(ACCOUNTS)
        if not self._live.named("serviceaccounts", account, TEAM):
            return self._account()
        if self._live.named("secrets", name, TEAM):
            actor = self._actor("delete", "secrets", name, TEAM)
            return self._operation(actor, "delete", "secrets", name, namespace=TEAM)
        actor = self._actor("create", "secrets", "", TEAM)
        return self._operation(actor, "create", "secrets", name, namespace=TEAM, account=account)

    def _register(self) -> Operation | None:
        served = [
            one["metadata"]["name"]
            for one in self._live.of("certificateauthorities")
            if "acme" in one["spec"]
        ]
        accounts = {one["metadata"]["uid"] for one in self._live.of("serviceaccounts")}
        keys = [
            one["metadata"]["name"]
            for one in self._live.of("secrets")
            if one["metadata"].get("annotations", {}).get(ACCOUNT_UID) in accounts
        ]
        if not served or not keys:
            return self._external_key() if served else self._create_authority()
        return self._operation(
            "a client",
            "register",
            authority=self._chance.choice(served),
            key=self._chance.choice(keys),
            pair=f"key of op {self._number + 1}",
        )

    def _order(self) -> Operation | None:
        clients = [
            label
            for label, client in self._attack.clients.items()
            if self._live.named("acmeaccounts", client.kid.rpartition("/")[2], TEAM)
        ]
        if not clients:
            return self._register()
        names = [self._chance.choice(DNS[:2])]
        return self._operation(self._chance.choice(clients[-3:]), "order", names=names)

    def _finalize(self) -> Operation | None:
        label = self._chosen_order()
        if not label:
            return self._order()
        actor, pair = self._attack.orders[label].client, f"key of op {self._number + 1}"
        return self._operation(actor, "finalize", order=label, pair=pair)

    def _fetch(self) -> Operation | None:
        label = self._chosen_order()
        if not label:
            return None
        return self._operation(self._attack.orders[label].client, "fetch", order=label)

    def _request_of_order(self) -> Operation | None:
        """The name that an order needs, with its DNS names, and with terms of somebody else."""
        label = self._chosen_order()
        if not label:
            return None
        order = self._attack.orders[label]
        client = self._attack.credentials[order.client]
        tokens = self._labels_of(account_user(client.account[1]))
        kind, authority = "certificatesigningrequests", self._attack.clients[order.client].authority
        found = self._live.named("certificateauthorities", authority)
        if found is None:
            return None
        actor = f"thief with {self._chance.choice(tokens)}" if tokens else ""
        options = {
            "signer": found["spec"]["signerName"],
            "subject": [],
            "names": [["DNS", name] for name in order.names],
            "usages": self._chance.choice(USAGES),
            "pair": f"key of op {self._number + 1}",
        }
        if self._chance.random() < 0.5:
            options["seconds"] = self._chance.choice(SECONDS)
        name = f"@request-of-order:{label}"
        return self._operation(
            actor or self._actor("create", kind), "create", kind, name, **options
        )

    def _chosen_order(self) -> str:
        orders = [
            label
            for label, order in self._attack.orders.items()
            if self._live.named("acmeorders", order.url.rpartition("/")[2], TEAM)
        ]
        return self._chance.choice(orders[-4:]) if orders else ""
