"""AgentConfiguration: what is accepted, and the message for each mistake."""

import grp
import os
import pwd
from pathlib import Path

import pytest

from orchid.features.hosts.agent.configuration import (
    InvalidAgentConfiguration,
    parse,
    read_configuration,
)

OWNER = pwd.getpwuid(os.getuid()).pw_name
GROUP = grp.getgrgid(os.getgid()).gr_name
FULL = f"""\
apiVersion: identity.orch.io/v1alpha1
kind: AgentConfiguration
join: {{file: /etc/orchid/join.kubeconfig, lifetime: 720h}}
state: /var/lib/orchid-agent
checkEvery: 5m
metricsFile: /var/lib/node-exporter/orchid.prom
outputs:
- name: web
  directory: /etc/nginx/orchid
  certificate:
    signer: example.com/servers
    dnsNames: [web-1.example.com]
    ipAddresses: [192.0.2.1]
    lifetime: 720h
    key: ECDSA-P256
    usages: [digital signature, server auth]
  owner: {OWNER}
  group: {GROUP}
  mode: "0640"
  reload:
  - {{systemd: nginx.service, timeout: 30s}}
  - {{signal: HUP, pidFile: /run/x.pid}}
  - {{command: [/usr/bin/true]}}
- {{name: pod, directory: /p, certificate: {{signer: a/b, as: web/frontend}}}}
- {{name: vault, directory: /v, token: {{account: web/frontend, audience: x, lifetime: 1h}}}}
- {{name: anchors, directory: /a, bundle: {{signer: a/b, formats: [pem, crl], authority: b}}}}
- {{name: api, directory: /k, kubeconfig: {{account: web/frontend}}}}
- {{name: own, directory: /o, kubeconfig: {{}}}}
"""


def test_every_field_is_read() -> None:
    """Durations in seconds, owners as numbers, outputs in their order."""
    found = parse(FULL.encode(), "agent.yaml")

    web = found.outputs[0]
    assert found.check_every == 300
    assert found.join.lifetime == 30 * 86_400
    assert [one.name for one in found.outputs] == ["web", "pod", "vault", "anchors", "api", "own"]
    assert (web.owner_id, web.group_id) == (os.getuid(), os.getgid())
    assert [str(one) for one in web.reload] == [
        "systemd nginx.service",
        "signal HUP",
        "command /usr/bin/true",
    ]


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("dnsNames:", "dnsName:", "line 11: outputs[0].certificate: unknown field `dnsName`"),
        ("join:", "jion:", "line 1: unknown field `jion`"),
        ("checkEvery: 5m", "checkEvery: 5", "line 5: checkEvery: 5 is not a duration like"),
        ("checkEvery: 5m", "checkEvery: 10s", "line 5: checkEvery: 10s is not between"),
        ("timeout: 30s", "timeout: 10m", "reload[0]: timeout: 600s is not between 1s and 300s"),
        ("[/usr/bin/true]", "[nginx]", "needs an absolute path; there is no shell"),
        ("{signal: HUP, ", "{signal: KILL, ", "signal: 'KILL' is none of"),
        ("signal: HUP, pidFile: /run/x.pid", "signal: HUP", "signal and pidFile need each other"),
        ("{systemd: nginx.service,", "{systemd: -M,", "is not the name of a unit"),
        (f"owner: {OWNER}", "owner: nobody-here", "line 17: outputs[0]: owner: this host has no"),
        (f"group: {GROUP}", "group: nobody-here", "this host has no group nobody-here"),
        ('"0640"', '"0644"', "line 19: outputs[0]: mode: '0644' is none of"),
        ("name: vault", "name: web", "the name web is used twice"),
        ("directory: /v", "directory: /p/", "the directory /p is used twice"),
        ("directory: /v", "directory: /var/lib/orchid-agent", "is used twice"),
        ("directory: /v", "directory: v", "directory: 'v' is not an absolute path"),
        ("directory: /v", "directory: /v/../w", "is not an absolute path"),
        ("kubeconfig: {}}", "kubeconfig: {}, token: {}}", "missing field `account`"),
        ("kubeconfig: {}}", "owner: ''}", "exactly one of certificate, token, bundle and kube"),
        ("key: ECDSA-P256", "key: RSA-1024", "key: 'RSA-1024' is none of"),
        ("192.0.2.1", "192.0.2.300", "ipAddresses: '192.0.2.300' is not an address"),
        ("server auth]", "serving]", "usages: 'serving' is none of"),
        ("as: web/frontend", "as: frontend", "as: 'frontend' is not NAMESPACE/NAME"),
        (", as: web/frontend", "", "needs a name: dnsNames, ipAddresses, uris, commonName, or as"),
        ("audience: x", "audience: ''", "audience is empty"),
        (", authority: b", "", "the format crl and the field authority need each other"),
        ("file: /etc/orchid/join.kubeconfig, ", "", "exactly one of file and kubeconfig"),
        ("kind: Agent", "kind: Angel", "line 2: kind: 'AngelConfiguration' is none of"),
        ("state: /var", "state: /x\nstate: /var", 'key "state" already set'),
        ("outputs:", "outputs: [", "line 7"),
        (FULL, "[]", "must be a mapping, not a list"),
        (FULL, "", "must be a mapping, not nothing"),
        ("dnsNames: [", "dnsNames: x #", "must be a list, not text"),
    ],
)
def test_a_mistake_is_reported_with_its_place(old: str, new: str, message: str) -> None:
    """File, line, field and reason; the agent does not start."""
    assert old in FULL

    with pytest.raises(InvalidAgentConfiguration) as refused:
        parse(FULL.replace(old, new).encode(), "agent.yaml")

    assert str(refused.value).startswith("agent.yaml")
    assert message in str(refused.value)


def test_more_outputs_than_an_agent_keeps_are_refused() -> None:
    """A limit for everything that grows."""
    more = "".join(f"- {{name: n{n}, directory: /n/{n}, kubeconfig: {{}}}}\n" for n in range(60))

    with pytest.raises(InvalidAgentConfiguration, match="more than 64"):
        parse((FULL + more).encode(), "agent.yaml")


def test_a_file_that_is_not_there_is_reported(tmp_path: Path) -> None:
    """A missing file, or a directory in its place."""
    with pytest.raises(InvalidAgentConfiguration, match="No such file"):
        read_configuration(tmp_path / "none.yaml")
    with pytest.raises(InvalidAgentConfiguration, match="Is a directory"):
        read_configuration(tmp_path)
