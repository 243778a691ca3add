"""A private containerd: its own root, state and sockets, the product's runtime as the default one."""
import pathlib
import subprocess

import grpc

import cri
import images
from wait import wait_until

SOCKET = "/run/containerd/containerd.sock"
BUNDLES = pathlib.Path("/run/containerd/io.containerd.runtime.v2.task/k8s.io")
RUNTIME_ROOT = "/run/containerd/runc"

_CONFIG = """
version = 2
root = "{root}"
state = "/run/containerd"
disabled_plugins = ["io.containerd.snapshotter.v1.btrfs", "io.containerd.snapshotter.v1.zfs",
  "io.containerd.snapshotter.v1.aufs", "io.containerd.snapshotter.v1.devmapper",
  "io.containerd.internal.v1.opt", "io.containerd.internal.v1.tracing"]
[grpc]
  address = "{socket}"
[plugins."io.containerd.grpc.v1.cri"]
  sandbox_image = "{pause}"
  restrict_oom_score_adj = true
  disable_tcp_service = true
  stream_server_address = "127.0.0.1"
  stream_server_port = "0"
  disable_apparmor = true
  [plugins."io.containerd.grpc.v1.cri".containerd]
    snapshotter = "overlayfs"
    default_runtime_name = "vgpu"
"""

_HANDLER = """
    [plugins."io.containerd.grpc.v1.cri".containerd.runtimes.{name}]
      runtime_type = "io.containerd.runc.v2"
      pod_annotations = ["vgpu.io/allocation", "vgpu.io/signature"]
      container_annotations = ["cdi.k8s.io/*"]
      [plugins."io.containerd.grpc.v1.cri".containerd.runtimes.{name}.options]
        BinaryName = "{binary}"
        Root = "{root}"
        SystemdCgroup = false
"""


class Engine:
    def __init__(self, work, handlers):
        """`handlers`: name -> path of the OCI runtime."""
        self.log = work / "containerd.log"
        root = work / "containerd"
        root.mkdir()
        config = self._config = work / "containerd.toml"
        text = _CONFIG.format(root=root, socket=SOCKET, pause=images.REPOSITORY + "pause:1")
        for name, binary in handlers.items():
            text += _HANDLER.format(name=name, binary=binary, root=RUNTIME_ROOT)
        config.write_text(text)
        self._launch()

    def _launch(self):
        with self.log.open("a") as log:
            self._process = subprocess.Popen(["containerd", "--config", str(self._config)],
                                             stdin=subprocess.DEVNULL, stdout=log, stderr=log)
        self.cri = cri.Client(SOCKET)
        self.version = self.cri.Version(version="v1").runtime_version

    def load(self, archives):
        images.load(archives, SOCKET)
        for archive in archives:  # the interface learns of an image by an event
            image = {"image": f"{images.REPOSITORY}{archive.stem}:1"}
            wait_until(lambda image=image: self.cri.ImageStatus(image=image).image.id, f"image {image['image']}")

    def restart(self):
        self.stop()
        self._launch()

    def stop(self):
        self.cri.close()
        self._process.terminate()
        self._process.wait()


def stored_spec(container_id):
    """The exact bytes containerd keeps as a container's spec and writes as its config.json."""
    call = grpc.insecure_channel(f"unix://{SOCKET}").unary_unary(
        "/containerd.services.containers.v1.Containers/Get",
        request_serializer=cri.messages().StoredContainerRequest.SerializeToString,
        response_deserializer=cri.messages().StoredContainerResponse.FromString)
    answer = call(cri.messages().StoredContainerRequest(id=container_id),
                  metadata=[("containerd-namespace", "k8s.io")])
    return answer.container.spec.value
