"""Containers without an engine: a bundle written by hand and a runtime called as an engine calls it."""
import copy
import io
import json
import pathlib
import shutil
import subprocess
import tarfile
import uuid

import images
from wait import wait_until

CAPABILITIES = ["CAP_CHOWN", "CAP_DAC_OVERRIDE", "CAP_FOWNER", "CAP_KILL", "CAP_MKNOD", "CAP_NET_BIND_SERVICE",
                "CAP_SETGID", "CAP_SETUID", "CAP_SYS_CHROOT"]
FIRST_ID = 100000  # of the user namespace
RUNTIME_ROOT = "/run/vgpu-rig-runtime"

_SPEC = {
    "ociVersion": "1.0.2-dev",
    "process": {"user": {"uid": 0, "gid": 0}, "args": ["/bin/sleep", "1000"],
                "env": ["PATH=/usr/bin:/bin"], "cwd": "/",
                "capabilities": {kind: CAPABILITIES for kind in ("bounding", "effective", "permitted")},
                "noNewPrivileges": True},
    "root": {"path": "rootfs"},
    "mounts": [
        {"destination": "/proc", "type": "proc", "source": "proc", "options": ["nosuid", "noexec", "nodev"]},
        {"destination": "/dev", "type": "tmpfs", "source": "tmpfs", "options": ["nosuid", "mode=755", "size=65536k"]},
        {"destination": "/run", "type": "tmpfs", "source": "tmpfs", "options": ["nosuid", "mode=755", "size=65536k"]}],
    "annotations": {"io.kubernetes.cri.container-type": "container"},
    "linux": {"namespaces": [{"type": kind} for kind in ("pid", "ipc", "uts", "mount")],
              "resources": {"devices": [{"allow": False, "access": "rwm"}]}},
}


class Failed(Exception):
    """The runtime refused; str() is its last error line, as an engine would show it."""


class Bundle:
    """`runtime`: argv of the OCI runtime to call. `name`: the container's name in its pod."""

    def __init__(self, node, runtime, pod_uid=None, name="main", pod_name="by-hand", annotations=None, user_namespace=False,
                 shared_with=None):
        """`shared_with`: another bundle, whose root file system and pod control group this one uses and leaves alone."""
        self.node, self.runtime, self.shared = node, list(runtime), shared_with is not None
        self.pod_uid = pod_uid or str(uuid.uuid4())
        self.id = "rig-" + uuid.uuid4().hex
        # below the work directory, which others may not enter: containers of a user namespace have to
        self.path = pathlib.Path("/usr/share/vgpu-rig") / self.id
        self.path.mkdir(parents=True)
        self.spec = copy.deepcopy(_SPEC)
        if shared_with is None:
            self._extract(FIRST_ID if user_namespace else 0)
        else:
            self.spec["root"]["path"] = str(shared_with.path / "rootfs")
        self.spec["annotations"].update({
            "io.kubernetes.cri.container-name": name, "io.kubernetes.cri.sandbox-name": pod_name,
            "io.kubernetes.cri.sandbox-namespace": "default", "io.kubernetes.cri.sandbox-uid": self.pod_uid,
            **(annotations or {})})
        self.spec["linux"]["cgroupsPath"] = f"{node.cgroup}/kubepods/pod{self.pod_uid}/{self.id}"
        if user_namespace:
            mapping = [{"containerID": 0, "hostID": FIRST_ID, "size": 65536}]
            self.spec["linux"].update(uidMappings=mapping, gidMappings=mapping)
            self.spec["linux"]["namespaces"].append({"type": "user"})
        self.write()

    def _extract(self, owner):
        root = self.path / "rootfs"
        root.mkdir()
        with tarfile.open(fileobj=io.BytesIO(layer(self.node))) as archive:
            archive.extractall(root)
        if owner:
            subprocess.run(["chown", "-hR", f"{owner}:{owner}", str(root)], check=True)

    def write(self):
        (self.path / "config.json").write_text(json.dumps(self.spec))

    def call(self, *arguments, check=True, prefix=()):
        log = self.path / "log.json"
        log.unlink(missing_ok=True)
        command = [*prefix, *self.runtime, "--root", RUNTIME_ROOT, "--log", str(log), "--log-format", "json", *arguments]
        with (self.path / "output").open("wb") as output:  # the container inherits it: a pipe would never end
            done = subprocess.run(command, stdin=subprocess.DEVNULL, stdout=output, stderr=output, check=False)
        if check and done.returncode != 0:
            raise Failed(self.last_error() or (self.path / "output").read_text(errors="replace"))
        return done.returncode

    def last_error(self):
        log = self.path / "log.json"
        lines = [json.loads(line) for line in log.read_text().splitlines() if line] if log.exists() else []
        errors = [line["msg"] for line in lines if line.get("level") == "error"]
        return errors[-1] if errors else ""

    def create(self, **options):
        return self.call("create", "--bundle", str(self.path), "--pid-file", str(self.path / "init.pid"), self.id, **options)

    def start(self, **options):
        return self.call("start", self.id, **options)

    def execute(self, *command, check=True):
        """Runs a command in the container; returns its output."""
        self.call("exec", self.id, *command, check=check)
        return (self.path / "output").read_text(errors="replace")

    def pid(self):
        return int((self.path / "init.pid").read_text())

    def kill(self, **options):
        return self.call("kill", self.id, "KILL", **options)

    def delete(self, force=False, **options):
        return self.call("delete", *(["--force"] if force else []), self.id, **options)

    def wait_for_end(self):
        pid = self.pid()
        wait_until(lambda: not pathlib.Path(f"/proc/{pid}").exists(), "end of the container's first process")

    def end(self):
        """Ends the container as an engine does."""
        self.kill()
        self.wait_for_end()
        self.delete()
        self.delete(force=True, check=False)

    def remove(self):
        """Ends the container and takes every trace of the bundle away."""
        self.delete(force=True, check=False)
        shutil.rmtree(self.path, ignore_errors=True)
        if not self.shared:
            self.node.remove_cgroup(f"{self.node.cgroup}/kubepods/pod{self.pod_uid}")


_layers = {}


def layer(node):
    if node not in _layers:
        _layers[node] = images.full_layer(node.build)
    return _layers[node]
