"""The manifests for Kubernetes: each is YAML, refers to what exists, and asks for no privilege."""

import subprocess

import pytest

from harness import BUILD, SOURCE

yaml = pytest.importorskip("yaml")
FOLDER = SOURCE / "integrations" / "kubernetes" / "manifests"
FILES = sorted(FOLDER.glob("*.yaml"))
OBJECTS = [(file.name, one) for file in FILES for one in yaml.safe_load_all(file.read_text())]


def of_kind(kind):
    return [one for _, one in OBJECTS if one["kind"] == kind]


@pytest.mark.parametrize("name, one", OBJECTS, ids=[f"{name}-{one['kind']}" for name, one in OBJECTS])
def test_each_object_names_its_version_and_kind(name, one):
    assert "/" in one["apiVersion"] or one["apiVersion"] == "v1"
    assert one["kind"] in ("Kustomization", "KubeSchedulerConfiguration") or one["metadata"]["name"]


def test_the_kustomization_lists_files_that_exist():
    (kustomization,) = of_kind("Kustomization")
    assert all((FOLDER / name).exists() for name in kustomization["resources"])


def test_bindings_name_accounts_and_roles_that_exist():
    accounts = {(a["metadata"]["namespace"], a["metadata"]["name"]) for a in of_kind("ServiceAccount")}
    roles = {role["metadata"]["name"]: role for role in of_kind("ClusterRole")}
    for binding in of_kind("ClusterRoleBinding"):
        assert binding["roleRef"]["name"] in roles
        assert all((s["namespace"], s["name"]) in accounts for s in binding["subjects"])
    for role in roles.values():
        assert all("*" not in word for rule in role["rules"] for words in rule.values() for word in words)


def test_the_extenders_pod_has_no_privilege_and_options_that_exist():
    (deployment,) = of_kind("Deployment")
    pod = deployment["spec"]["template"]["spec"]
    assert not any(pod.get(key) for key in ("hostNetwork", "hostPID", "hostIPC", "volumes"))
    (container,) = pod["containers"]
    security = container["securityContext"]
    assert security["runAsNonRoot"] and security["readOnlyRootFilesystem"] and not security["allowPrivilegeEscalation"]
    assert security["capabilities"] == {"drop": ["ALL"]}
    told = subprocess.run([BUILD / "bin" / "tandem-scheduler-extender", "--help"], capture_output=True, text=True).stdout
    assert all(word in told for word in container["args"] if word.startswith("--"))


def test_services_and_the_webhook_meet_the_extenders_port():
    (deployment,), (service,), (webhook,) = (
        of_kind("Deployment"), of_kind("Service"), of_kind("MutatingWebhookConfiguration")
    )  # fmt: skip
    (container,) = deployment["spec"]["template"]["spec"]["containers"]
    port = container["ports"][0]["containerPort"]
    assert f"0.0.0.0:{port}" in container["args"]
    assert service["spec"]["ports"][0]["targetPort"] == port
    assert service["spec"]["selector"].items() <= deployment["spec"]["template"]["metadata"]["labels"].items()
    called = webhook["webhooks"][0]["clientConfig"]["service"]
    assert (called["name"], called["port"], called["path"]) == (service["metadata"]["name"], port, "/mutate")
    (scheduler,) = of_kind("KubeSchedulerConfiguration")
    assert scheduler["extenders"][0]["urlPrefix"].endswith(f":{port}")
