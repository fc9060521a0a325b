"""Stand-ins for Kubernetes' API server and for its scheduler, by the published interfaces.

The API server knows labels of nodes and bindings of pods. The scheduler asks an extender as Kubernetes'
own does: for all nodes that have enough of the resource, it filters, scores, and binds.
"""

import http.server
import itertools
import json
import ssl
import threading
import urllib.request


class ApiServer:
    """Its nodes: labels by name. Its bindings: (pod, node), in their order."""

    def __init__(self, tls=None):
        """`tls`: files of a certificate and its key."""
        self.nodes, self.bindings, self.refusal = {}, [], None
        self.changed = threading.Condition()  # of nodes
        self.slices, self.claims = {}, {}  # by name
        api = self

        class Handler(http.server.BaseHTTPRequestHandler):
            def _answer(self, act):
                length = int(self.headers.get("Content-Length") or 0)
                body = json.loads(self.rfile.read(length)) if length else None
                status, answer = api.refusal or act(self.path.partition("?")[0].split("/"), body)
                text = json.dumps(answer).encode()
                self.send_response(status)
                self.send_header("Content-Length", str(len(text)))
                self.end_headers()
                self.wfile.write(text)

            def do_PATCH(self):
                applied = self.headers["Content-Type"] == "application/apply-patch+yaml"
                assert applied or self.headers["Content-Type"] == "application/merge-patch+json"
                assert not applied or "fieldManager=" in self.path
                self._answer(api._apply if applied else api._patch)

            def do_GET(self):
                self._answer(api._get)

            def do_POST(self):
                self._answer(api._bind)

            def log_message(self, *_):
                pass

        self.server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        if tls is not None:
            context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
            context.load_cert_chain(*tls)
            self.server.socket = context.wrap_socket(self.server.socket, server_side=True)
        threading.Thread(target=self.server.serve_forever, daemon=True).start()
        self.url = f"{'http' if tls is None else 'https'}://127.0.0.1:{self.server.server_port}"

    def _patch(self, path, body):
        assert path[:4] == ["", "api", "v1", "nodes"]
        with self.changed:
            self.nodes.setdefault(path[4], {}).update(body["metadata"]["labels"])
            self.changed.notify_all()
        return 200, {}

    def _apply(self, path, body):
        assert path[:5] == ["", "apis", "resource.k8s.io", "v1", "resourceslices"]
        assert body["kind"] == "ResourceSlice" and body["metadata"]["name"] == path[5]
        self.slices[path[5]] = body["spec"]
        return 200, body

    def _get(self, path, _):
        assert path[:5] == ["", "apis", "resource.k8s.io", "v1", "namespaces"] and path[6] == "resourceclaims"
        claim = self.claims.get(path[7])
        message = f'resourceclaims "{path[7]}" not found'
        return (200, claim) if claim is not None else (404, {"kind": "Status", "message": message})

    def _bind(self, path, body):
        assert path[:4] == ["", "api", "v1", "namespaces"] and path[5] == "pods" and path[7] == "binding"
        assert body["kind"] == "Binding" and body["target"]["kind"] == "Node"
        self.bindings.append((path[6], body["target"]["name"]))
        return 201, {}

    def refuse(self, message):
        self.refusal = (409, {"kind": "Status", "message": message})

    def close(self):
        self.server.shutdown()
        self.server.server_close()


class Unschedulable(Exception):
    """No node fits; the text is that of the pod's event."""


class Scheduler:
    def __init__(self, api, extender, free):
        """`free()`: how much of the resource each node has left, by name."""
        self.api, self.extender, self.free = api, extender, free
        self.numbers = itertools.count()

    def _ask(self, verb, arguments):
        return json.loads(self.post(verb, json.dumps(arguments).encode()))

    def post(self, verb, body):
        """Raises urllib.error.HTTPError."""
        headers = {"Content-Type": "application/json"}
        request = urllib.request.Request(f"{self.extender}/{verb}", body, headers, method="POST")
        with urllib.request.urlopen(request, timeout=60) as answer:
            return answer.read()

    def place(self, resource, units):
        """The node of a pod with one container that asks for those units. Waits for pods that were bound before."""
        while True:
            try:
                return self.try_once(resource, units)
            except Unschedulable as why:
                if "come first" not in str(why):
                    raise
                self.await_change()

    def await_change(self):
        """As the scheduler does: a pod waits until a node's labels change."""
        with self.api.changed:
            before = json.dumps(self.api.nodes)
            changed = self.api.changed.wait_for(lambda: json.dumps(self.api.nodes) != before, timeout=60)
        assert changed, "no label changes"

    def try_once(self, resource, units):
        """As place, without waiting."""
        name = f"pod-{next(self.numbers)}"
        limits = {resource: str(units)}
        pod = {"metadata": {"name": name, "namespace": "default", "uid": name},
               "spec": {"containers": [{"name": "c", "resources": {"limits": limits}}]}}  # fmt: skip
        enough = [node for node, left in self.free().items() if left >= units]
        if not enough:
            raise Unschedulable(f"Insufficient {resource}")
        nodes = [{"metadata": {"name": node, "labels": self.api.nodes.get(node, {})}} for node in enough]
        answer = self._ask("filter", {"Pod": pod, "Nodes": {"items": nodes}, "NodeNames": None})
        passed = answer["nodes"]["items"]
        if not passed:
            raise Unschedulable(", ".join(sorted(set(answer["failedNodes"].values()))))
        scores = self._ask("prioritize", {"Pod": pod, "Nodes": {"items": passed}, "NodeNames": None})
        best = max(scores, key=lambda entry: entry["score"])["host"]
        binding = {"PodName": name, "PodNamespace": "default", "PodUID": name, "Node": best}
        if error := self._ask("bind", binding)["error"]:
            raise Unschedulable(error)
        return best
