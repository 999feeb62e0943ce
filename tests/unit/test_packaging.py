"""The files of deploy/ keep their promises: checked here without starting anything.

tests/e2e/test_deploy.py runs what can be run.
"""

import json
import re
import subprocess
import sys
import tomllib
from pathlib import Path
from typing import Any

import pytest
import yaml

from orchid.assembly import settings
from orchid.kernel.base.version import __version__
from orchid.kernel.engine.request import Target
from orchid.kernel.server.audit.policy import AuditLevel, load
from orchid.kernel.settings import checking
from orchid.kernel.wire.naming import SETS, Naming
from orchid.kernel.wire.struct import replace

DEPLOY = Path(__file__).resolve().parents[2] / "deploy"
UNIT = DEPLOY / "systemd" / "orchid.service"
MOST_EXPOSED = 1.5
POLICIES = sorted(DEPLOY.rglob("audit-policy.yaml"))


def documents(path: Path) -> list[Any]:
    return [each for each in yaml.safe_load_all(path.read_text()) if each is not None]


def test_install_takes_a_directory_with_a_space() -> None:
    """Every use of PREFIX in a recipe is quoted."""
    makefile = (DEPLOY.parent / "Makefile").read_text()
    recipe = makefile.partition("\ninstall: ")[2].partition("\n\n")[0]

    assert "$(PREFIX)" in recipe
    assert "$(PREFIX)" not in re.sub(r'"[^"]*"', "", recipe)


def test_what_the_readme_leaves_behind_is_not_committed() -> None:
    """Keys, tokens, kubeconfigs and certificates."""
    ignored = (DEPLOY.parent / ".gitignore").read_text().splitlines()

    assert {"/*.key", "/*.crt", "/*.kubeconfig", "/*.token"} <= set(ignored)


# --- systemd -----------------------------------------------------------------------------------


@pytest.mark.system_package("systemd-analyze")
def test_unit_is_exposed_to_little() -> None:
    """systemd's own judgement, from 0 (nothing) to 10."""
    command = ["systemd-analyze", "security", "--offline=true", "--no-pager", str(UNIT)]

    answer = subprocess.run(command, capture_output=True, text=True, check=False, timeout=60)

    judged = re.search(r"exposure level for orchid.service: ([0-9.]+)", answer.stdout)
    assert judged is not None, answer.stderr
    assert float(judged[1]) <= MOST_EXPOSED


@pytest.mark.system_package("systemd-analyze")
@pytest.mark.parametrize(
    "name",
    sorted(one.name for one in UNIT.parent.iterdir() if one.suffix in (".service", ".timer")),
)
def test_unit_has_no_line_that_systemd_does_not_understand(name: str, tmp_path: Path) -> None:
    """Verified with a program that is there, since /opt/orchid is not."""
    for shipped in UNIT.parent.glob("*.service"):
        text = shipped.read_text().replace("/opt/orchid/bin/orchid", sys.executable)
        (tmp_path / shipped.name).write_text(text)
    unit = tmp_path / name
    if not unit.exists():
        unit.write_text((UNIT.parent / name).read_text())

    answer = subprocess.run(
        ["systemd-analyze", "verify", "--man=no", str(unit)],
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )

    assert (
        answer.returncode,
        [line for line in answer.stderr.splitlines() if unit.name in line],
    ) == (0, [])


@pytest.mark.parametrize(
    "line",
    [
        "NoNewPrivileges=yes",
        "ProtectSystem=strict",
        "PrivateTmp=yes",
        "SystemCallFilter=@system-service",
        "StateDirectoryMode=0700",
        "LogsDirectory=orchid",
        "LogsDirectoryMode=0700",
        "UMask=0077",
        "LimitCORE=0",
    ],
)
def test_unit_keeps_its_promises(line: str) -> None:
    """The most important settings are there, whether or not systemd is."""
    assert line in UNIT.read_text().splitlines()


@pytest.mark.parametrize("name", ["orchid-agent.service", "orchid-agent-once.service"])
@pytest.mark.parametrize(
    "line",
    [
        "NoNewPrivileges=yes",
        "ProtectSystem=strict",
        "CapabilityBoundingSet=CAP_CHOWN CAP_DAC_OVERRIDE CAP_FOWNER CAP_KILL",
        "StateDirectoryMode=0700",
        "After=network-online.target time-sync.target",
        "LimitCORE=0",
    ],
)
def test_units_of_the_agent_keep_their_promises(name: str, line: str) -> None:
    """Root with four capabilities, after the clock is set."""
    assert line in (UNIT.parent / name).read_text().splitlines()


# --- settings ----------------------------------------------------------------------------------


@pytest.mark.parametrize("path", sorted(DEPLOY.rglob("*.toml")), ids=lambda path: path.parent.name)
def test_shipped_settings_can_be_used(path: Path) -> None:
    """As shipped, the server takes them."""
    checking.check(settings.read(path, {}))


def test_every_setting_that_is_commented_out_can_be_used(tmp_path: Path) -> None:
    """With all signs taken away, each line is a setting that exists, with a value that it takes."""
    shipped = (DEPLOY / "systemd" / "orchid.toml").read_text()
    text = re.sub(r"^#(?=[a-z])", "", shipped, flags=re.MULTILINE)
    (tmp_path / "all.toml").write_text(text)

    read = settings.read(tmp_path / "all.toml", {})

    checking.check(read)
    assert len(tomllib.loads(text)) == len(re.findall(r"^#?[a-z-]+ = ", shipped, re.MULTILINE))
    assert read.service_account_issuer == ("https://id.example.org",)
    assert read.naming == "kubernetes"


def test_paths_of_settings_are_those_of_the_unit() -> None:
    """The directories that the unit lets the server write are those of the settings."""
    read = settings.read(DEPLOY / "systemd" / "orchid.toml", {})

    assert read.data_dir == "/var/lib/orchid"
    assert read.audit_log_path.startswith("/var/log/orchid/")
    assert f"{read.audit_log_path} {{" in (DEPLOY / "systemd" / "orchid.logrotate").read_text()


@pytest.mark.parametrize("path", POLICIES, ids=lambda path: path.parent.name)
@pytest.mark.parametrize("naming", SETS.values(), ids=SETS)
def test_audit_policy_records_certificates_and_rights_in_full(path: Path, naming: Naming) -> None:
    """Under either naming; health is not recorded, all else by its metadata."""
    policy = load(path)
    approve = Target(
        "update", "", True, f"certificates.{naming.group_domain}", "v1",
        "certificatesigningrequests", "approval", "", "alice",
    )  # fmt: skip

    assert policy.plan(None, approve).level is AuditLevel.REQUEST_RESPONSE
    assert policy.plan(None, Target("get", "/readyz")).level is AuditLevel.NONE
    assert policy.plan(None, replace(approve, verb="list")).level is AuditLevel.METADATA


def test_audit_policies_are_the_same() -> None:
    """kustomize reads nothing outside its folder, so there are two copies."""
    assert len(POLICIES) == 2
    assert len({path.read_bytes() for path in POLICIES}) == 1


# --- container ---------------------------------------------------------------------------------


def test_container_file_keeps_the_rules() -> None:
    """Not root, a health check, hashes for every package, nothing fetched by name."""
    text = (DEPLOY / "container" / "Containerfile").read_text().replace("\\\n", " ")
    lines = [line for line in text.splitlines() if line and not line.startswith("#")]
    final = lines[max(n for n, line in enumerate(lines) if line.startswith("FROM")) :]
    installs = re.findall(r"pip install ([^&\n]+)", "\n".join(lines))

    assert [line for line in final if line.startswith("USER")] == ["USER 65532:65532"]
    # COPY gives mode 0755 to the directory that it names, and the server refuses that.
    assert "install -d -m 0700 /data/orchid" in text
    assert "COPY --from=build --chown=65532:65532 /data/ /var/lib/" in final
    assert not [line for line in final if line.startswith("RUN")]
    assert any(line.startswith("HEALTHCHECK") for line in final)
    assert len(installs) == 3
    assert all("--require-hashes" in each or "--no-index" in each for each in installs)
    assert not re.search(r"curl|wget|ADD |:latest", "\n".join(lines))


def test_container_file_copies_what_its_ignore_file_lets_in() -> None:
    """Everything else in the checkout, keys of a trial included, stays out of the build."""
    container = DEPLOY / "container"
    let_in = re.findall(
        r"^!(.+)$", (container / "Containerfile.dockerignore").read_text(), re.MULTILINE
    )
    copied = re.findall(
        r"^COPY (?!--from)(.+) \S+$", (container / "Containerfile").read_text(), re.MULTILINE
    )
    sources = {source for each in copied for source in each.split()}

    assert (container / "Containerfile.dockerignore").read_text().startswith("*\n")
    assert all((DEPLOY.parent / source).exists() for source in sources)
    assert {source.split("/")[0] if "requirements" in source else source for source in sources} == {
        *let_in
    }


def test_images_have_the_version_of_the_package() -> None:
    """A release changes all of them."""
    compose = (DEPLOY / "compose" / "compose.yaml").read_text()
    kustomization = documents(DEPLOY / "kubernetes" / "kustomization.yaml")[0]

    assert set(re.findall(r"orchid:(\d\S+)", compose)) == {__version__}
    assert kustomization["images"] == [{"name": "orchid", "newTag": __version__}]


# --- compose -----------------------------------------------------------------------------------


def test_compose_runs_three_confined_servers() -> None:
    """Each with its own data, behind a balancer; etcd can be reached by them alone."""
    whole = documents(DEPLOY / "compose" / "compose.yaml")[0]
    services = whole["services"]
    servers = {name: each for name, each in services.items() if name.startswith("orchid-")}

    assert len(servers) == 3
    for name, server in servers.items():
        assert server["read_only"]
        assert server["cap_drop"] == ["ALL"]
        assert server["user"] == "65532:65532"
        assert f"{name}:/var/lib/orchid" in server["volumes"]
    assert whole["networks"]["store"] == {"internal": True}
    assert services["etcd"]["networks"] == ["store"]
    assert services["balancer"]["networks"] == ["front"]
    assert all("ports" not in each for name, each in services.items() if name != "balancer")


def test_balancer_knows_every_server() -> None:
    """The names in its configuration are those of the compose file."""
    services = documents(DEPLOY / "compose" / "compose.yaml")[0]["services"]
    known = re.findall(
        r"^    server (\S+) \1:6443$", (DEPLOY / "compose" / "haproxy.cfg").read_text(), re.M
    )

    assert known == [name for name in services if name.startswith("orchid-")]


# --- Kubernetes --------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def manifests() -> dict[str, Any]:
    folder = DEPLOY / "kubernetes"
    named = documents(folder / "kustomization.yaml")[0]["resources"]
    return {each["kind"]: each for name in named for each in documents(folder / name)}


def test_pods_are_confined(manifests: dict[str, Any]) -> None:
    """As the Pod Security profile `restricted` asks, and with a root that cannot be written."""
    pod = manifests["Deployment"]["spec"]["template"]["spec"]

    assert pod["securityContext"]["runAsNonRoot"] is True
    assert pod["securityContext"]["seccompProfile"] == {"type": "RuntimeDefault"}
    assert pod["automountServiceAccountToken"] is False
    for container in pod["initContainers"] + pod["containers"]:
        assert container["securityContext"] == {
            "allowPrivilegeEscalation": False,
            "readOnlyRootFilesystem": True,
            "capabilities": {"drop": ["ALL"]},
        }
        assert "memory" in container["resources"]["limits"]
    labels = manifests["Namespace"]["metadata"]["labels"]
    assert labels["pod-security.kubernetes.io/enforce"] == "restricted"


def test_manifests_fit_each_other(manifests: dict[str, Any]) -> None:
    """Service, budget and network policy select the Pods; mounts have their volumes."""
    template = manifests["Deployment"]["spec"]["template"]
    labels = template["metadata"]["labels"]
    volumes = {volume["name"] for volume in template["spec"]["volumes"]}
    containers = template["spec"]["initContainers"] + template["spec"]["containers"]
    mounted = {mount["name"] for each in containers for mount in each["volumeMounts"]}

    assert manifests["Service"]["spec"]["selector"] == labels
    assert manifests["PodDisruptionBudget"]["spec"]["selector"]["matchLabels"] == labels
    assert manifests["NetworkPolicy"]["spec"]["podSelector"]["matchLabels"] == labels
    assert manifests["NetworkPolicy"]["spec"]["policyTypes"] == ["Ingress", "Egress"]
    assert mounted == volumes
    assert template["spec"]["serviceAccountName"] == manifests["ServiceAccount"]["metadata"]["name"]


def test_settings_in_the_cluster_fit_the_manifests(manifests: dict[str, Any]) -> None:
    """Files are where they are mounted, and the stop is done before the Pod is killed."""
    read = checking.check(settings.read(DEPLOY / "kubernetes" / "orchid.toml", {}))
    pod = manifests["Deployment"]["spec"]["template"]["spec"]
    mounts = [mount["mountPath"] for mount in pod["containers"][0]["volumeMounts"]]
    given = read.given
    files = [given.etcd_cafile, given.etcd_certfile, given.etcd_keyfile, given.audit_policy_file]

    assert all(any(file.startswith(f"{place}/") for place in mounts) for file in files)
    assert read.shutdown_grace < pod["terminationGracePeriodSeconds"]
    service = manifests["Service"]["metadata"]["name"]
    assert given.advertise_address.startswith(f"{service}.")
    assert read.port == manifests["Service"]["spec"]["ports"][0]["port"]


@pytest.mark.parametrize(
    ("folder", "copied_by"), [("compose", "compose.yaml"), ("kubernetes", "deployment.yaml")]
)
def test_servers_over_etcd_encrypt_secrets_with_a_key_that_they_share(
    folder: str, copied_by: str
) -> None:
    """The key is copied with the other shared files, and the settings name the copy."""
    given = settings.read(DEPLOY / folder / "orchid.toml", {})
    copied = re.search(r"for file in (.*); do", (DEPLOY / folder / copied_by).read_text())

    assert given.etcd_servers
    assert given.encryption_provider_config == f"{given.data_dir}/encryption.yaml"
    assert copied is not None
    assert "encryption.yaml" in copied[1].split()
    assert "--from-file identity/encryption.yaml" in (DEPLOY / "README.md").read_text()


@pytest.mark.system_package("kubectl")
def test_kustomize_joins_the_manifests() -> None:
    """kubectl's own kustomize takes the folder, and every object lands in the namespace."""
    made = subprocess.run(
        ["kubectl", "kustomize", str(DEPLOY / "kubernetes")],
        capture_output=True,
        text=True,
        check=True,
        timeout=60,
    )

    objects = list(yaml.safe_load_all(made.stdout))
    deployment = next(each for each in objects if each["kind"] == "Deployment")
    assert {each["kind"] for each in objects} == {
        "Namespace", "ServiceAccount", "ConfigMap", "Service", "Deployment", "PodDisruptionBudget",
        "NetworkPolicy",
    }  # fmt: skip
    assert {each["metadata"].get("namespace") for each in objects[1:]} == {"orchid"}
    assert (
        deployment["spec"]["template"]["spec"]["containers"][0]["image"] == f"orchid:{__version__}"
    )


# --- monitoring --------------------------------------------------------------------------------


@pytest.mark.system_package("promtool")
@pytest.mark.parametrize("how", [("check", "alerts.yaml"), ("test", "alerts-test.yaml")])
def test_promtool_takes_the_rules(how: tuple[str, str]) -> None:
    """The rules are well formed, and speak and are silent as alerts-test.yaml says."""
    verb, name = how

    answer = subprocess.run(
        ["promtool", verb, "rules", name],
        cwd=DEPLOY / "monitoring",
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
    )

    assert answer.returncode == 0, answer.stdout + answer.stderr


def test_every_alert_is_seen_to_speak_and_to_be_silent() -> None:
    """No alert without both; each has a severity, a summary and advice."""
    rules = documents(DEPLOY / "monitoring" / "alerts.yaml")[0]["groups"][0]["rules"]
    tests = documents(DEPLOY / "monitoring" / "alerts-test.yaml")[0]["tests"]
    silent = {each["alertname"] for test in tests for each in test.get("alert_rule_test", ())}
    expected = [
        sample["labels"]
        for test in tests
        for question in test.get("promql_expr_test", ())
        for sample in question["exp_samples"]
    ]
    speaking = set(re.findall(r'alertname="(\w+)"', " ".join(expected)))

    assert silent == speaking == {rule["alert"] for rule in rules}
    for rule in rules:
        assert rule["labels"]["severity"] in ("critical", "warning")
        assert set(rule["annotations"]) == {"summary", "description"}


def test_dashboard_is_laid_out() -> None:
    """Panels have numbers of their own, an explanation, and a place that no other has."""
    board = json.loads((DEPLOY / "monitoring" / "dashboard.json").read_text())
    panels = board["panels"]
    taken = [
        (x, y)
        for place in (panel["gridPos"] for panel in panels)
        for x in range(place["x"], place["x"] + place["w"])
        for y in range(place["y"], place["y"] + place["h"])
    ]

    assert len({panel["id"] for panel in panels}) == len(panels)
    assert len(set(taken)) == len(taken)
    assert max(x for x, _ in taken) < 24
    assert all(panel["description"] for panel in panels if panel["type"] != "row")


# --- all of it ---------------------------------------------------------------------------------


def test_every_file_is_reached_from_the_readme() -> None:
    """Each folder has its place in deploy/README.md, and each YAML file can be read."""
    readme = (DEPLOY / "README.md").read_text()
    linked = re.findall(r"\]\(([^)#]+)\)", readme)

    assert all((DEPLOY / link).exists() for link in linked)
    assert {path.name for path in DEPLOY.iterdir() if path.is_dir()} <= set(linked)
    assert all(documents(path) for path in DEPLOY.rglob("*.yaml"))
