"""deploy/kubernetes: valid against the schemas of Kubernetes, and its settings against those of the server.

Not shown here, for want of a cluster and of these schemas: that kustomize builds it (its file is read),
the RabbitmqCluster against its operator's own definition, and that an adapter has the autoscaler's metric.
"""

from pathlib import Path
from typing import Any

import kubernetes_validate
import pytest
import yaml

from legacy_queue import __version__
from legacy_queue.config import load

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
}
AMQP_URL = "amqp://default_user_x:password@legacy-queue-rabbitmq.queue.svc:5672/"  # as the operator makes it


@pytest.mark.parametrize("one", OBJECTS, ids=lambda one: f"{one['kind']}-{one['metadata']['name']}")
def test_a_manifest_is_valid_and_has_no_field_that_kubernetes_does_not_know(one: dict[str, Any]) -> None:
    if one["apiVersion"] == "rabbitmq.com/v1beta1":
        assert (one["kind"], set(one["spec"])) == ("RabbitmqCluster", {"replicas", "persistence"})
        return
    if one["apiVersion"] == "monitoring.coreos.com/v1":
        assert (one["kind"], set(one["spec"])) == ("PodMonitor", {"selector", "podMetricsEndpoints"})
        return
    for version in ("1.34", "1.37"):
        kubernetes_validate.validate(one, version, strict=True)


def test_each_kustomization_names_every_manifest_and_the_image_this_version() -> None:
    for path in FOLDER.rglob("kustomization.yaml"):
        kustomization = yaml.safe_load(path.read_text())
        files = {file.name for file in path.parent.iterdir() if file.is_file()} - {path.name}
        assert set(kustomization["resources"]) == files
    [image] = yaml.safe_load((FOLDER / "kustomization.yaml").read_text())["images"]
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
    amqp_url = container["env"][0]
    [broker] = [one for one in OBJECTS if one["kind"] == "RabbitmqCluster"]
    assert amqp_url["valueFrom"]["secretKeyRef"] == {
        "name": f"{broker['metadata']['name']}-default-user",
        "key": "connection_string",
        "optional": True,  # without the component there is no broker
    }
    [port] = container["ports"]
    assert port == {"name": "http", "containerPort": 8080 if container["name"] == "server" else 8081}
    assert {probe["httpGet"]["path"] for probe in [container["readinessProbe"]]} == {"/ready"}
    image = {"LEGACY_QUEUE_HOST": "0.0.0.0", "LEGACY_QUEUE_DATA_DIR": "/data"}
    loaded, _ = load({}, {**image, **settings, **SECRETS, amqp_url["name"]: AMQP_URL})
    assert loaded.storage == "azure"


def test_every_pod_selector_matches_a_deployment() -> None:
    labels = [one["spec"]["template"]["metadata"]["labels"] for one in DEPLOYMENTS]
    specs = [one["spec"] for one in OBJECTS if "spec" in one]
    selectors = [spec[name] for spec in specs for name in ("selector", "podSelector") if name in spec]
    for selector in selectors:
        wanted = selector.get("matchLabels", selector)
        assert [one for one in labels if wanted.items() <= one.items()], selector
    [scaler] = [one for one in OBJECTS if one["kind"] == "HorizontalPodAutoscaler"]
    assert scaler["spec"]["scaleTargetRef"]["name"] in [one["metadata"]["name"] for one in DEPLOYMENTS]
