"""The container runtime interface, as far as the node rig uses it. Messages are generated from cri.proto at start."""
import functools
import os
import pathlib
import subprocess
import sys

import grpc

HERE = pathlib.Path(__file__).resolve().parent
DEADLINE = 120  # seconds; the engine itself has none


@functools.lru_cache
def messages():
    into = pathlib.Path(os.environ["VGPU_RIG_WORK"]) / "generated"
    into.mkdir(exist_ok=True)
    subprocess.run(["protoc", f"--proto_path={HERE}", f"--python_out={into}", "cri.proto"], check=True)
    sys.path.insert(0, str(into))
    import cri_pb2  # pylint: disable=import-outside-toplevel,import-error
    return cri_pb2


class CallFailed(Exception):
    """A call the engine refused; str() is the text a user sees in the pod's event."""


class Client:
    """Calls by name: client.StartContainer(container_id=…). Raises CallFailed with the engine's text."""

    def __init__(self, socket):
        self._channel = grpc.insecure_channel(f"unix://{socket}", options=[
            ("grpc.initial_reconnect_backoff_ms", 20), ("grpc.max_reconnect_backoff_ms", 100),
            ("grpc.min_reconnect_backoff_ms", 20)])
        self._methods = {}
        for service in messages().DESCRIPTOR.services_by_name.values():
            for method in service.methods:
                self._methods[method.name] = self._prepare(service, method)

    def _prepare(self, service, method):
        request = getattr(messages(), method.input_type.name)
        response = getattr(messages(), method.output_type.name)
        call = self._channel.unary_unary(f"/{service.full_name}/{method.name}",
                                         request_serializer=request.SerializeToString,
                                         response_deserializer=response.FromString)
        return request, call

    def __getattr__(self, name):
        request, call = self._methods[name]

        def invoke(**fields):
            try:
                return call(request(**fields), timeout=DEADLINE, wait_for_ready=True)
            except grpc.RpcError as error:
                raise CallFailed(error.details()) from None
        return invoke

    def close(self):
        self._channel.close()
