"""The manifests for Kubernetes: each is YAML, refers to what exists, and asks for no privilege."""

import json
import re
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


# ---- The chart

CHART = FOLDER.parent / "chart"
DEFAULTS = yaml.safe_load((CHART / "values.yaml").read_text())


def rendered(name, **changes):
    """The objects of a template, by the few words of Go's text/template that the chart has."""
    words = {"Values": {**DEFAULTS, **changes}, "Release": {"Namespace": "kube-system"}}

    def value(path):
        found = words
        for key in path.strip(".").split("."):
            found = found[key]
        return found

    lines, shown = [], [True]
    for line in (CHART / "templates" / name).read_text().splitlines():
        if condition := re.fullmatch(r" *{{- if (\S+) }}", line):
            shown.append(bool(value(condition[1])))
        elif re.fullmatch(r" *{{- end }}", line):
            shown.pop()
        elif all(shown):
            line = re.sub(r"{{ (\S+) \| quote }}", lambda m: json.dumps(str(value(m[1]))), line)
            lines.append(re.sub(r"{{ (\S+) }}", lambda m: str(value(m[1])), line))
    assert shown == [True] and not any("{{" in line for line in lines)
    return [one for one in yaml.safe_load_all("\n".join(lines)) if one is not None]


@pytest.mark.parametrize("name", ["extender.yaml", "node-access.yaml"])
def test_the_chart_makes_the_objects_of_the_manifests(name):
    assert rendered(name) == [one for file, one in OBJECTS if file == name]


def test_what_is_not_wanted_is_not_made():
    assert rendered("webhook.yaml") == rendered("deviceclass.yaml") == []
    (wanted,) = rendered("deviceclass.yaml", dra={"enabled": True})
    assert wanted == of_kind("DeviceClass")[0]


def test_the_charts_webhook_meets_an_extender_with_a_certificate():
    settings = {**DEFAULTS["webhook"], "enabled": True, "caBundle": "QQ==", "secret": "mine"}
    (webhook,) = rendered("webhook.yaml", webhook=settings, port=9000)
    (plain,) = of_kind("MutatingWebhookConfiguration")
    called = plain["webhooks"][0]["clientConfig"]
    called["caBundle"], called["service"]["port"] = "QQ==", 9000
    assert webhook == plain
    objects = rendered("extender.yaml", webhook=settings, port=9000, spread=True)
    (pod,) = (one["spec"]["template"]["spec"] for one in objects if one["kind"] == "Deployment")
    (container,) = pod["containers"]
    told = subprocess.run([BUILD / "bin" / "tandem-scheduler-extender", "--help"], capture_output=True, text=True).stdout
    assert "--spread" in container["args"] and "0.0.0.0:9000" in container["args"]
    assert all(word in told for word in container["args"] if word.startswith("--"))
    assert container["readinessProbe"]["httpGet"] == {"path": "/healthz", "port": 9000, "scheme": "HTTPS"}
    assert pod["volumes"] == [{"name": "tls", "secret": {"secretName": "mine"}}]
    assert container["volumeMounts"][0]["name"] == "tls"
    assert {"/tls/tls.crt", "/tls/tls.key"} <= set(container["args"])


def test_the_chart_names_itself():
    chart = yaml.safe_load((CHART / "Chart.yaml").read_text())
    assert chart["apiVersion"] == "v2" and chart["name"] and re.fullmatch(r"\d+\.\d+\.\d+", chart["version"])
