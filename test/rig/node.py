"""A node to test on: cards, driver, NVIDIA's runtime, the product, containerd, and pods on it.

Only inside enter.py. One node per process:

    node = Node()
    node.use(runtime="runc", mode="legacy")
    pod = node.pod("train", {"main": allocation.container(allocation.gpu(node.cards[0], 3000))})
    main = pod.start("main", image="glibc")
    main.run("cuda_client", "init", "meminfo")
"""
import dataclasses
import errno
import json
import os
import pathlib
import shutil
import uuid

import allocation
import engine
import images
import install
import simulator
from cri import CallFailed
from wait import wait_until

NODE_NAME = "rig-node"
RUN = pathlib.Path("/run/vgpu")
CONFIG = pathlib.Path("/etc/vgpu/runtime.toml")
RUNTIMES = ("runc", "crun")
PLAIN = "plain-"  # + low-level runtime: containerd starts it without the product
NVIDIA = "nvidia"  # containerd starts NVIDIA's runtime without the product
VGPU = "vgpu"
# The negative control: no product on the node; its handler is NVIDIA's runtime, its pods get whole cards.
AGAINST_NONE = os.environ.get("VGPU_AGAINST") == "none"
BUILD = pathlib.Path(os.environ.get("VGPU_BUILD", "build/dev"))
EXITED = 2


@dataclasses.dataclass(frozen=True)
class Outcome:
    """What a command in a container did."""
    status: int
    out: str
    err: str

    @property
    def lines(self):
        return [json.loads(line) for line in self.out.splitlines() if line.startswith("{")]


class Container:
    def __init__(self, pod, name, identity):
        self.pod, self.name, self.id = pod, name, identity

    @property
    def _cri(self):
        return self.pod.node.engine.cri

    def start(self):
        self._cri.StartContainer(container_id=self.id)
        return self

    def run(self, *command, timeout=60):
        answer = self._cri.ExecSync(container_id=self.id, cmd=list(command), timeout=timeout)
        return Outcome(answer.exit_code, answer.stdout.decode(), answer.stderr.decode())

    def status(self):
        return self._cri.ContainerStatus(container_id=self.id).status

    def wait_for_exit(self, seconds=60):
        return wait_until(lambda: (s := self.status()).state == EXITED and s, f"exit of '{self.name}'", seconds)

    def spec(self):
        """config.json as the low-level runtime got it."""
        return json.loads(self.spec_bytes())

    def spec_bytes(self):
        return (engine.BUNDLES / self.id / "config.json").read_bytes()

    def pid(self):
        return int((engine.BUNDLES / self.id / "init.pid").read_text())

    def output(self):
        """What the container's own program printed so far."""
        path = self.pod.logs / f"{self.name}.log"
        lines = path.read_text().splitlines() if path.exists() else []
        return "\n".join(line.split(" ", 3)[3] for line in lines)

    def remove(self):
        self._cri.StopContainer(container_id=self.id, timeout=0)
        self._cri.RemoveContainer(container_id=self.id)


class Pod:
    def __init__(self, node, name, uid, annotations, allocated, handler, privileged=False):
        self.privileged = privileged
        self.node, self.name, self.uid, self.allocated = node, name, uid, allocated
        self.annotations = annotations
        self.logs = node.work / "logs" / uid
        self.logs.mkdir(parents=True)
        self.cgroup = f"{node.cgroup}/kubepods/pod{uid}"
        self.attempts = {}
        self.id = node.engine.cri.RunPodSandbox(config=self.config(), runtime_handler=handler).pod_sandbox_id
        self.containers = []

    def config(self):
        return {"metadata": {"name": self.name, "uid": self.uid, "namespace": "default"},
                "log_directory": str(self.logs), "annotations": self.annotations,
                "linux": {"cgroup_parent": self.cgroup,
                          "security_context": {"privileged": self.privileged,
                                               "namespace_options": {"network": 2, "pid": 1}}}}

    def create(self, name="main", image="glibc", command=(), env=None, annotations=None, mounts=(), privileged=False,
               user=None, capabilities=(), readonly=False):
        if AGAINST_NONE and name in self.allocated:
            whole = ",".join(card["uuid"] for card in self.allocated[name]["gpus"])
            env = {"NVIDIA_VISIBLE_DEVICES": whole, **(env or {})}
        attempt = self.attempts.get(name, -1) + 1
        self.attempts[name] = attempt
        security = {"namespace_options": {"network": 2, "pid": 1}, "privileged": privileged,
                    "readonly_rootfs": readonly, "capabilities": {"add_capabilities": list(capabilities)}}
        if user is not None:
            security["run_as_user"] = {"value": user}
        config = {"metadata": {"name": name, "attempt": attempt},
                  "image": {"image": f"{images.REPOSITORY}{image}:1"}, "command": list(command),
                  "envs": [{"key": key, "value": value} for key, value in (env or {}).items()],
                  "mounts": [{"container_path": inside, "host_path": str(outside)} for outside, inside in mounts],
                  "annotations": annotations or {}, "log_path": f"{name}.log",
                  "linux": {"security_context": security}}
        answer = self.node.engine.cri.CreateContainer(pod_sandbox_id=self.id, config=config,
                                                      sandbox_config=self.config())
        made = Container(self, name, answer.container_id)
        self.containers.append(made)
        return made

    def start(self, name="main", **settings):
        return self.create(name, **settings).start()

    def remove(self):
        self.node.engine.cri.StopPodSandbox(pod_sandbox_id=self.id)
        self.node.engine.cri.RemovePodSandbox(pod_sandbox_id=self.id)
        self.node.forget(self)


class Node:
    def __init__(self):
        self.work = pathlib.Path(os.environ["VGPU_RIG_WORK"])
        self.cgroup = os.environ["VGPU_RIG_CGROUP"]
        self.signer = allocation.Signer()
        self.pods = []
        self.build = BUILD
        self.runtime = self.mode = None
        self.simulator = simulator.Simulator(self.work)
        self.cards = [card["uuid"] for card in self.simulator.cards]
        install.driver(BUILD)
        install.nvidia_runtime(BUILD)
        self.simulator.start()
        if not AGAINST_NONE:
            install.product(BUILD)
        self.signer.trust()
        handlers = {VGPU: "/usr/bin/vgpu-runtime", NVIDIA: "/usr/bin/nvidia-container-runtime"}
        handlers.update({PLAIN + runtime: shutil.which(runtime) for runtime in RUNTIMES if shutil.which(runtime)})
        if AGAINST_NONE:
            handlers[VGPU] = handlers[NVIDIA]
        self.use("runc", "legacy")
        self.engine = engine.Engine(self.work, handlers)
        self.engine.load(images.make(self.work / "images", BUILD))

    def use(self, runtime, mode):
        """Changes the low-level runtime and the mode of NVIDIA's runtime for containers created from now on."""
        if AGAINST_NONE:
            mode = "auto"
        self.runtime, self.mode = runtime, mode
        path = shutil.which(runtime)
        install.nvidia_config(self.simulator.cards, mode, path)
        CONFIG.parent.mkdir(exist_ok=True)
        CONFIG.write_text("record_wait_ms = 200\n")
        RUN.mkdir(mode=0o711, exist_ok=True)
        (RUN / "pods").mkdir(mode=0o700, exist_ok=True)
        facts = {"v": 1, "name": NODE_NAME, "runtime": path, "toolkitMode": mode,
                 "gpus": [{**card, "contextBytes": self.simulator.context_bytes} for card in self.simulator.cards]}
        _replace(RUN / "node", json.dumps(facts))

    def allocation(self, pod_uid, containers, generation=1, node=NODE_NAME):
        return allocation.text(pod_uid, node, containers, generation)

    def pod(self, name, containers=None, annotations=None, uid=None, handler=None, privileged=False):
        """A running pod. `containers`: name -> allocation.container(…), signed; or ready `annotations`."""
        uid = uid or str(uuid.uuid4())
        if annotations is None:
            annotations = {}
            if containers:
                annotations = allocation.annotations(self.signer, self.allocation(uid, containers))
        pod = Pod(self, name, uid, annotations, containers or {}, VGPU if handler is None else handler,
                  privileged)
        self.pods.append(pod)
        return pod

    def record(self, pod_uid, text, signature, generation):
        """The record that the device plugin keeps of a pod."""
        _replace(RUN / "pods" / pod_uid,
                 json.dumps({"v": 1, "gen": generation, "allocation": text, "signature": signature}))

    def held_bytes(self, container, card, peak=False):
        """What the container's processes hold (or held at most) on a card, by the simulator's own ledger."""
        label = f"mnt:{os.stat(f'/proc/{container.pid()}/ns/mnt').st_ino}"
        for group in self.simulator.ledger()["groups"]:
            if group["group"] == label:
                return group["peak" if peak else "used"][card]
        return 0

    def forget(self, pod):
        """What the kubelet and the device plugin do once a pod is gone."""
        if pod in self.pods:
            self.pods.remove(pod)
        (RUN / "pods" / pod.uid).unlink(missing_ok=True)
        self.remove_cgroup(pod.cgroup)

    def remove_cgroup(self, cgroup):
        """Removes a pod's control group, once its containers' are gone."""
        shutil.rmtree(f"/sys/fs/cgroup/unified{cgroup}", ignore_errors=True)
        for leftover in _cgroup_directories(cgroup):
            wait_until(lambda leftover=leftover: _is_removed(leftover), f"end of control group '{leftover}'")

    def remove_pods(self):
        for pod in list(self.pods):
            pod.remove()

    def stop(self):
        self.remove_pods()
        self.engine.stop()


def _replace(path, text):
    temporary = path.with_name(path.name + ".new")
    temporary.write_text(text)
    temporary.rename(path)


def _cgroup_directories(cgroup):
    """The directories of one control group in every hierarchy."""
    roots = [pathlib.Path("/sys/fs/cgroup"), *pathlib.Path("/sys/fs/cgroup").glob("*")]
    return [directory for directory in (pathlib.Path(f"{root}{cgroup}") for root in roots) if directory.is_dir()]


def _is_removed(directory):
    try:
        directory.rmdir()
    except OSError as error:
        if error.errno in (errno.EBUSY, errno.ENOTEMPTY):
            return False
        raise
    return True


def container_processes():
    """Command lines of shims and of everything in the node's containers."""
    found = []
    for entry in pathlib.Path("/proc").iterdir():
        if not entry.name.isdigit():
            continue
        try:
            name = (entry / "cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace").strip()
            groups = (entry / "cgroup").read_text()
        except OSError:
            continue
        if name.startswith("/usr/bin/containerd-shim") or os.environ["VGPU_RIG_CGROUP"] in groups:
            found.append(name)
    return found


