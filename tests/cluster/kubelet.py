"""A stand-in for Kubernetes' kubelet, by its published interface of device plugins (v1beta1).

It takes registrations, watches devices, counts what pods have, and asks plugins as the kubelet does. What
it lacks: pods. Tests start containers with the devices that a plugin answers with.
"""

import contextlib
import importlib
import subprocess
import sys
import threading
from concurrent.futures import ThreadPoolExecutor

import grpc

from harness import BUILD, SOURCE, wait_until

PLUGIN = BUILD / "bin" / "tandem-device-plugin"
INTERFACES = SOURCE / "integrations" / "kubernetes"


def interfaces(folder, *names):
    """Modules of those interfaces, made in the folder."""
    sys.path.insert(0, str(folder))
    for name in names:
        proto = INTERFACES / f"{name}.proto"
        subprocess.run(["protoc", f"--proto_path={INTERFACES}", f"--python_out={folder}", proto], check=True)
    return [importlib.import_module(f"{name}_pb2") for name in names]


class Drivers:
    """The kubelet's part of Dynamic Resource Allocation: it finds drivers by sockets in its folder."""

    def __init__(self, folder):
        self.folder = folder
        folder.mkdir()
        self.api, self.registration = interfaces(folder.parent, "dra", "plugin_registration")

    def register(self, name, error=""):
        """What the driver says of itself, once it has heard that it is taken, or why not."""
        channel = grpc.insecure_channel(f"unix:{self.folder}/{name}-reg.sock")

        def call(method, request, answer):
            ask = channel.unary_unary(
                f"/pluginregistration.Registration/{method}",
                request_serializer=lambda message: message.SerializeToString(), response_deserializer=answer.FromString,
            )  # fmt: skip
            return ask(request, timeout=60)

        info = call("GetInfo", self.registration.InfoRequest(), self.registration.PluginInfo)
        status = self.registration.RegistrationStatus(plugin_registered=not error, error=error)
        call("NotifyRegistrationStatus", status, self.registration.RegistrationStatusResponse)
        return info

    def ask(self, info, verb, *claims):
        """The driver's answers to NodePrepareResources or NodeUnprepareResources, by the claims' uids."""
        request = getattr(self.api, f"{verb}Request")()
        for namespace, name, uid in claims:
            request.claims.add(namespace=namespace, name=name, uid=uid)
        ask = grpc.insecure_channel(f"unix:{info.endpoint}").unary_unary(
            f"/k8s.io.kubelet.pkg.apis.dra.v1.DRAPlugin/{verb}",
            request_serializer=lambda message: message.SerializeToString(),
            response_deserializer=getattr(self.api, f"{verb}Response").FromString,
        )
        return ask(request, timeout=60).claims


class Kubelet:
    def __init__(self, folder):
        self.folder = folder
        folder.mkdir()
        self.api, self.pods_api = interfaces(folder.parent, "device_plugin", "pod_resources")
        self.pod_resources = folder.parent / "pod-resources.sock"
        self.registrations = 0
        self.devices = {}  # of each resource: health by id
        self.used = {}  # of each resource: ids
        self.endpoints = {}
        self.start()

    def start(self):
        """As the kubelet does: all sockets of plugins go."""
        for socket in self.folder.glob("*.sock"):
            socket.unlink()
        self.devices, self.endpoints = {}, {}
        self.server = grpc.server(ThreadPoolExecutor(4))
        register = grpc.unary_unary_rpc_method_handler(
            self._register, self.api.RegisterRequest.FromString, self.api.Empty.SerializeToString
        )
        handlers = grpc.method_handlers_generic_handler("v1beta1.Registration", {"Register": register})
        self.server.add_generic_rpc_handlers((handlers,))
        listed = grpc.unary_unary_rpc_method_handler(
            self._list, self.pods_api.ListPodResourcesRequest.FromString,
            self.pods_api.ListPodResourcesResponse.SerializeToString,
        )  # fmt: skip
        handlers = grpc.method_handlers_generic_handler("v1.PodResourcesLister", {"List": listed})
        self.server.add_generic_rpc_handlers((handlers,))
        self.server.add_insecure_port(f"unix:{self.folder}/kubelet.sock")
        self.server.add_insecure_port(f"unix:{self.pod_resources}")
        self.server.start()

    def stop(self):
        self.server.stop(None).wait()

    def restart(self):
        self.stop()
        self.start()

    def _register(self, request, context):
        if request.version != "v1beta1":
            context.abort(grpc.StatusCode.INVALID_ARGUMENT, "another version")
        self.endpoints[request.resource_name] = grpc.insecure_channel(f"unix:{self.folder}/{request.endpoint}")
        threading.Thread(target=self._watch, args=(request.resource_name,), daemon=True).start()
        self.registrations += 1
        return self.api.Empty()

    def _list(self, _request, _context):
        answer = self.pods_api.ListPodResourcesResponse()
        for resource, ids in self.used.items():
            pod = answer.pod_resources.add(name="pod", namespace="default")
            pod.containers.add(name="c").devices.add(resource_name=resource, device_ids=sorted(ids))
        return answer

    def _call(self, resource, method, answer, stream=False):
        channel = self.endpoints[resource]
        kind = channel.unary_stream if stream else channel.unary_unary
        return kind(
            f"/v1beta1.DevicePlugin/{method}", request_serializer=lambda message: message.SerializeToString(),
            response_deserializer=answer.FromString,
        )  # fmt: skip

    def _watch(self, resource):
        watch = self._call(resource, "ListAndWatch", self.api.ListAndWatchResponse, stream=True)
        with contextlib.suppress(grpc.RpcError):
            for listed in watch(self.api.Empty()):
                self.devices[resource] = {device.ID: device.health for device in listed.devices}

    def healthy(self, resource):
        return [name for name, health in self.devices.get(resource, {}).items() if health == "Healthy"]

    def allocate(self, resource, count):
        """The ids and the CDI devices of a container that asks for that number. Raises grpc.RpcError."""
        taken = self.used.setdefault(resource, set())
        available = [name for name in self.healthy(resource) if name not in taken]
        assert len(available) >= count, f"the scheduler would not have chosen this node: {available}"
        request = self.api.PreferredAllocationRequest()
        request.container_requests.add(available_deviceIDs=available, allocation_size=count)
        prefer = self._call(resource, "GetPreferredAllocation", self.api.PreferredAllocationResponse)
        ids = list(prefer(request).container_responses[0].deviceIDs)
        request = self.api.AllocateRequest()
        request.container_requests.add(devices_ids=ids)
        answer = self._call(resource, "Allocate", self.api.AllocateResponse)(request).container_responses[0]
        taken.update(ids)
        devices = [device.name for device in answer.cdi_devices]
        assert list(answer.annotations.values()) == devices
        return ids, devices

    def await_devices(self, resource, count, process):
        wait_until(lambda: len(self.healthy(resource)) == count, process, f"{count} of {resource} are healthy")
