"""deploy/kubernetes: valid against the schemas of Kubernetes, and its settings against those of the server.

Not shown here, for want of a cluster: that it runs, and that the policies let calls through. Its
kustomization is read here; `kubectl kustomize` built it by hand.
"""

from pathlib import Path
from typing import Any

import kubernetes_validate
import pytest
import yaml

from legacy_queue import __version__
from legacy_queue.config import load

pytestmark = pytest.mark.processes

FOLDER = Path(__file__).parents[1] / "deploy/kubernetes"
OBJECTS: list[dict[str, Any]] = [
    manifest
    for path in sorted(FOLDER.rglob("*.yaml"))
    if path.stem != "kustomization"
    for manifest in yaml.safe_load_all(path.read_text())
]
DEPLOYMENTS = [one for one in OBJECTS if one["kind"] == "Deployment"]
# as docs/how-to/scale-out.md has them made
SECRETS = {
    "LEGACY_QUEUE_CONNECTION_STRING": "AccountName=a;AccountKey=a2V5;EndpointSuffix=core.windows.net",
    "LEGACY_QUEUE_CLIENTS": '{"admin": {"accessToken": "at-least-22-characters", "scopes": ["*"]}}',
    "LEGACY_QUEUE_SIGNING_SECRETS": "a-signing-secret-of-22-characters",
    "LEGACY_QUEUE_AMQP_URL": "amqps://queue:password@rabbitmq.example.com:5671/",
}


@pytest.mark.parametrize("one", OBJECTS, ids=lambda one: f"{one['kind']}-{one['metadata']['name']}")
def test_a_manifest_is_valid_and_has_no_field_that_kubernetes_does_not_know(one: dict[str, Any]) -> None:
    for version in ("1.34", "1.37"):
        kubernetes_validate.validate(one, version, strict=True)


def test_the_kustomization_names_every_manifest_and_the_image_this_version() -> None:
    kustomization = yaml.safe_load((FOLDER / "kustomization.yaml").read_text())
    assert {*kustomization["resources"], "kustomization.yaml"} == {path.name for path in FOLDER.iterdir()}
    [image] = kustomization["images"]
    assert image["newTag"] == __version__


@pytest.mark.parametrize("deployment", DEPLOYMENTS, ids=lambda one: one["metadata"]["name"])
def test_the_settings_of_a_deployment_are_accepted_and_its_secrets_are_references(
    deployment: dict[str, Any],
) -> None:
    pod = deployment["spec"]["template"]["spec"]
    [container] = pod["containers"]
    assert pod["enableServiceLinks"] is False, "the service legacy-queue would set LEGACY_QUEUE_PORT"
    [settings] = [one["data"] for one in OBJECTS if one["kind"] == "ConfigMap"]
    assert not settings.keys() & SECRETS.keys()
    assert container["envFrom"] == [
        {"configMapRef": {"name": "legacy-queue"}},
        {"secretRef": {"name": "legacy-queue"}},
    ]
    [port] = container["ports"]
    assert port == {"name": "http", "containerPort": 8080 if container["name"] == "server" else 8081}
    assert {probe["httpGet"]["path"] for probe in [container["readinessProbe"]]} == {"/ready"}
    image = {"LEGACY_QUEUE_HOST": "0.0.0.0", "LEGACY_QUEUE_DATA_DIR": "/data"}
    own = {variable["name"]: variable["value"] for variable in container.get("env", [])}
    loaded, _ = load({}, {**image, **settings, **SECRETS, **own})
    assert loaded.storage == "azure"
    assert all(network.is_private and network.prefixlen >= 16 for network in loaded.trusted_proxy)
    assert loaded.trusted_proxy


def test_every_pod_selector_matches_a_deployment() -> None:
    labels = [one["spec"]["template"]["metadata"]["labels"] for one in DEPLOYMENTS]
    specs = [one["spec"] for one in OBJECTS if "spec" in one]
    selectors = [spec[name] for spec in specs for name in ("selector", "podSelector") if name in spec]
    for selector in selectors:
        wanted = selector.get("matchLabels", selector)
        assert [one for one in labels if wanted.items() <= one.items()], selector


def test_the_ingress_controller_reaches_servers_prometheus_all_and_nothing_else_any() -> None:
    reached = {}
    for policy in (one["spec"] for one in OBJECTS if one["kind"] == "NetworkPolicy"):
        assert policy["policyTypes"] == ["Ingress"]
        [rule] = policy["ingress"]
        assert rule["ports"] == [{"port": "http"}]
        # a selector that is missing or empty would be every namespace, or every pod
        callers = [
            (
                peer["namespaceSelector"]["matchLabels"]["kubernetes.io/metadata.name"],
                *peer["podSelector"]["matchLabels"].values(),
            )
            for peer in rule["from"]
        ]
        reached[policy["podSelector"]["matchLabels"]["app.kubernetes.io/component"]] = callers
    controller, prometheus = ("ingress-nginx", "ingress-nginx", "controller"), ("monitoring", "prometheus")
    assert reached == {"server": [controller, prometheus], "resolver": [prometheus]}
    components = [one["metadata"]["labels"]["app.kubernetes.io/component"] for one in DEPLOYMENTS]
    assert set(components) == reached.keys()
