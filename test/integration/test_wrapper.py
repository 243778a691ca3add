"""vgpu-runtime alone: no engine, no container. Bundles written by hand go in, a recording program stands below.

Each test has a mount namespace of its own with private /run, /etc and /usr, so that the wrapper finds everything where it
looks for it in production.
"""
import json
import os
import pathlib
import shutil
import stat
import subprocess
import uuid

import pytest

import allocation as allocations
from conftest import require

ROOT = pathlib.Path(__file__).resolve().parents[2]
BUILD = pathlib.Path(os.environ.get("VGPU_BUILD", ROOT / "build" / "dev")).resolve()
CARD = "GPU-00000000-0000-0000-0000-000000000001"
OTHER = "GPU-00000000-0000-0000-0000-000000000002"
NODE = {"v": 1, "name": "node-a", "toolkitMode": "legacy",
        "gpus": [{"uuid": CARD, "minor": 0, "contextBytes": 335544320},
                 {"uuid": OTHER, "minor": 1, "contextBytes": 335544320}]}

# Writes what it was started with to /run/recorded, as the fields of one line separated by NUL.
RECORDER = r"""
#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
extern char **environ;
int main(int argc, char **argv) {
  char self[4096] = "";
  if (readlink("/proc/self/exe", self, sizeof self - 1) < 0) return 9;
  FILE *out = fopen("/run/recorded", "a");
  fprintf(out, "%s%c%s%c%d", self, 0, getcwd((char[4096]){0}, 4096), 0, argc);
  for (int i = 0; i < argc; ++i) fprintf(out, "%c%s", 0, argv[i]);
  for (char **e = environ; *e; ++e) fprintf(out, "%c%s", 0, *e);
  fputc('\n', out);
  fclose(out);
  const char *status = getenv("RECORDER_EXIT");
  return status ? atoi(status) : 0;
}
"""


class Node:
    """A mount namespace held open by a sleeping process."""

    def __init__(self, work, recorder):
        self.work = work
        for name in ("usr", "etc"):
            for part in ("upper", "work"):
                (work / name / part).mkdir(parents=True)
        overlay = " && ".join(
            f"mount -t overlay overlay -o lowerdir=/{n},upperdir={work}/{n}/upper,workdir={work}/{n}/work /{n}"
            for n in ("usr", "etc"))
        self.process = subprocess.Popen(
            ["unshare", "-m", "--propagation", "private", "sh", "-ec",
             f"{overlay}; mount -t tmpfs -o mode=755 run /run;"
             "echo ready; exec sleep 100000"], stdout=subprocess.PIPE, text=True)
        assert self.process.stdout.readline() == "ready\n"
        self.root = pathlib.Path(f"/proc/{self.process.pid}/root")
        self.signer = allocations.Signer()
        self._install(recorder)

    def _install(self, recorder):
        for directory in ("etc/vgpu", "etc/nvidia-container-runtime"):  # what a node around this one has
            shutil.rmtree(self.path(directory), ignore_errors=True)
        for path in ("usr/sbin/runc", "usr/bin/crun", "usr/bin/nvidia-container-runtime"):
            self.copy(recorder, path)
        self.copy(BUILD / "runtime-wrapper" / "vgpu-runtime", "usr/bin/vgpu-runtime")
        if os.environ.get("VGPU_AGAINST") == "none":  # plain runc in the wrapper's place
            self.write("usr/bin/vgpu-runtime", '#!/bin/sh\nexec /usr/sbin/runc "$@"\n')
        self.copy(recorder, "usr/libexec/vgpu/vgpu-hook")
        for library in ("cuda", "nvml"):
            for slot in range(8):
                self.copy(recorder.with_name("library.so"), f"usr/lib/vgpu/0.1.0/libvgpu-{library}.{slot}.so")
        self.write("usr/lib/vgpu/0.1.0/empty", "")
        self.write(f"etc/vgpu/trust.d/{self.signer.kid}.pub", public_line(self.signer))
        self.write("run/vgpu/node", json.dumps(NODE))

    def path(self, path):
        return self.root / str(path).lstrip("/")

    def write(self, path, text):
        self.path(path).parent.mkdir(parents=True, exist_ok=True)
        self.path(path).write_text(text)

    def copy(self, source, path):
        self.path(path).parent.mkdir(parents=True, exist_ok=True)
        self.path(path).unlink(missing_ok=True)
        shutil.copy(source, self.path(path))
        self.path(path).chmod(0o755)

    def run(self, *arguments, env=None, cwd="/run", program="/usr/bin/vgpu-runtime", fds=()):
        return subprocess.run(
            ["nsenter", "-t", str(self.process.pid), "-m", "--", "env", "-i", f"--chdir={cwd}",
             *[f"{k}={v}" for k, v in {"PATH": "/nowhere", **(env or {})}.items()], program, *arguments],
            capture_output=True, text=True, timeout=60, pass_fds=fds)

    def recorded(self):
        """[(program, cwd, argv, env)] of every start of a recorder."""
        if not self.path("/run/recorded").exists():
            return []
        starts = []
        for line in self.path("/run/recorded").read_text().splitlines():
            program, cwd, argc, *rest = line.split("\0")
            count = int(argc)
            starts.append((program, cwd, rest[:count], dict(e.split("=", 1) for e in rest[count:])))
        return starts

    def end(self):
        self.process.kill()
        self.process.wait()


def public_line(signer):
    import base64
    return base64.b64encode(signer.public).decode() + "\n"


class Pod:
    """One container of a pod and its bundle."""

    def __init__(self, node, container="main"):
        self.node, self.uid, self.id = node, str(uuid.uuid4()), "c" + uuid.uuid4().hex
        self.bundle = f"/run/bundles/{self.id}"
        self.spec = {
            "ociVersion": "1.0.2-dev",
            "process": {"args": ["/bin/x"], "env": ["PATH=/bin", "NVIDIA_VISIBLE_DEVICES=all"], "cwd": "/",
                        "rlimits": [{"type": "RLIMIT_NOFILE", "hard": 18446744073709551615, "soft": 1024}]},
            "root": {"path": "rootfs"}, "mounts": [],
            "annotations": {"io.kubernetes.cri.container-type": "container",
                            "io.kubernetes.cri.container-name": container,
                            "io.kubernetes.cri.sandbox-name": "train-7",
                            "io.kubernetes.cri.sandbox-namespace": "team",
                            "io.kubernetes.cri.sandbox-uid": self.uid},
            "linux": {"cgroupsPath": f"/kubepods/burstable/pod{self.uid}/{self.id}",
                      "resources": {"memory": {"limit": 9223372036854775807}}}}
        self.text = None

    def allocate(self, generation=1, node="node-a", pod=None, container="main", caps="compute,utility", signer=None,
                 uuids=(CARD,)):
        text = allocations.text(pod or self.uid, node, {
            container: allocations.container(*[allocations.gpu(u, 3000, 30) for u in uuids], caps=caps)}, generation)
        self.annotate(text, (signer or self.node.signer).sign(text))
        return self

    def annotate(self, text, signature):
        self.spec["annotations"].update({"vgpu.io/allocation": text, "vgpu.io/signature": signature})

    def record(self, text, signature, generation):
        self.node.write(f"/run/vgpu/pods/{self.uid}", json.dumps(
            {"v": 1, "gen": generation, "allocation": text, "signature": signature}))

    def save(self):
        self.text = self.text or json.dumps(self.spec, indent=1)
        self.node.write(f"{self.bundle}/config.json", self.text)
        return self

    @property
    def log(self):
        path = self.node.path(f"{self.bundle}/log.json")
        return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []

    def arguments(self, command="create"):
        return ["--root", "/run/runtime-root", "--log", f"{self.bundle}/log.json", "--log-format", "json", command,
                "--bundle", self.bundle, "--pid-file", f"{self.bundle}/init.pid", self.id]

    def create(self, command="create", save=True, **keywords):
        if save:
            self.save()
        return self.node.run(*self.arguments(command), **keywords)

    def command(self, *words):
        return self.node.run("--root", "/run/runtime-root", "--log", f"{self.bundle}/log.json", "--log-format", "json",
                             *words)

    def config(self):
        return json.loads(self.node.path(f"{self.bundle}/config.json").read_text())

    def untouched(self):
        return self.node.path(f"{self.bundle}/config.json").read_text() == self.text

    def key(self):
        import hashlib
        return f"{self.id}-{hashlib.sha256(b'/run/runtime-root').hexdigest()[:8]}"


@pytest.fixture(scope="session")
def recorder(tmp_path_factory):
    require("root", os.geteuid() == 0, "mount namespaces need root")
    require("wrapper", (BUILD / "runtime-wrapper" / "vgpu-runtime").exists(), "vgpu-runtime is not built")
    folder = tmp_path_factory.mktemp("recorder")
    (folder / "recorder.c").write_text(RECORDER)
    subprocess.run(["cc", "-static", "-o", folder / "recorder", folder / "recorder.c"], check=True)
    subprocess.run(["cc", "-shared", "-nostdlib", "-o", folder / "library.so", "-xc", "/dev/null"], check=True)
    return folder / "recorder"


@pytest.fixture
def node(recorder, tmp_path):
    node = Node(tmp_path, recorder)
    yield node
    node.end()


@pytest.fixture
def pod(node):
    return Pod(node)


def left_behind(node):
    """What the wrapper keeps of containers."""
    found = []
    for name in ("containers", "state"):
        folder = node.path(f"/run/vgpu/{name}")
        found += [f"{name}/{entry.name}" for entry in folder.iterdir()] if folder.exists() else []
    return found


def refusal(pod, result):
    """The one line of an error, which must be where the engine looks for it and nowhere else."""
    assert result.returncode != 0
    assert result.stdout == "" and result.stderr == ""
    (line,) = pod.log
    assert line["level"] == "error" and line["time"]
    assert not pod.node.recorded()
    assert pod.untouched()
    assert left_behind(pod.node) == []
    return line["msg"]


# A container without a GPU: runc at once, the specification byte for byte, whatever is broken.

def break_nothing(node):
    pass


def break_config(node):
    node.write("/etc/vgpu/runtime.toml", "nonsense = [")


def remove_run(node):
    shutil.rmtree(node.path("/run/vgpu"))


def remove_limiter(node):
    shutil.rmtree(node.path("/usr/lib/vgpu"))


def remove_nvidia(node):
    node.path("/usr/bin/nvidia-container-runtime").unlink()


def remove_trust(node):
    shutil.rmtree(node.path("/etc/vgpu"))


BREAKS = [break_nothing, break_config, remove_run, remove_limiter, remove_nvidia, remove_trust]


@pytest.mark.parametrize("breakage", BREAKS)
def test_a_container_without_a_gpu_goes_to_runc_byte_for_byte_br168(node, pod, breakage):
    breakage(node)
    result = pod.create()
    assert (result.returncode, result.stdout, result.stderr) == (0, "", "")
    ((program, cwd, argv, env),) = node.recorded()
    assert program == "/usr/sbin/runc"
    assert argv == ["/usr/bin/vgpu-runtime", *pod.arguments()]
    assert env == {"PATH": "/nowhere"}
    assert cwd == "/run"
    assert pod.untouched()
    assert left_behind(node) == []


@pytest.mark.parametrize("breakage", BREAKS)
@pytest.mark.parametrize("command", ["start", "kill", "state", "exec", "delete", "features"])
def test_other_commands_go_to_runc_whatever_is_broken(node, pod, breakage, command):
    breakage(node)
    assert node.run(command, pod.id, env={"SOME": "thing"}).returncode == 0
    ((program, _, argv, env),) = node.recorded()
    assert (program, argv[1:]) == ("/usr/sbin/runc", [command, pod.id])
    assert env == {"PATH": "/nowhere", "SOME": "thing"}


def test_the_exit_status_is_the_runtimes(node, pod):
    assert pod.create(env={"RECORDER_EXIT": "42"}).returncode == 42


def test_a_sandbox_is_left_alone_even_with_an_allocation(node, pod):
    pod.allocate().spec["annotations"]["io.kubernetes.cri.container-type"] = "sandbox"
    assert pod.create().returncode == 0
    assert node.recorded()[0][0] == "/usr/sbin/runc" and pod.untouched()


def test_a_container_the_allocation_does_not_name_is_left_alone(node, pod):
    pod.allocate(container="other")
    assert pod.create().returncode == 0
    assert node.recorded()[0][0] == "/usr/sbin/runc" and pod.untouched()


def test_a_specification_that_is_no_json_goes_to_runc_as_it_is(node, pod):
    pod.text = '{"process": '
    assert pod.create().returncode == 0
    assert node.recorded()[0][0] == "/usr/sbin/runc" and pod.untouched()


def test_a_specification_that_is_no_json_and_speaks_of_gpus_is_refused(node, pod):
    pod.text = '{"annotations": {"vgpu.io/allocation": 1}, "annotations": {}}'
    assert "'annotations' appears twice" in refusal(pod, pod.create())


# A container with an allocation.

def test_a_gpu_container_goes_to_nvidias_runtime_with_its_cards_and_our_mounts(node, pod):
    pod.allocate()
    assert pod.create().returncode == 0, pod.log
    ((program, _, argv, env),) = node.recorded()
    assert program == "/usr/bin/nvidia-container-runtime"
    assert argv[1:] == pod.arguments()
    assert env == {"PATH": "/nowhere", "VGPU_RUNTIME_STAGE": "1"}
    spec = pod.config()
    assert "NVIDIA_VISIBLE_DEVICES=" + CARD in spec["process"]["env"]
    directory = f"/run/vgpu/containers/{pod.key()}"
    assert [(m["destination"], m["source"]) for m in spec["mounts"]] == [
        ("/usr/lib/vgpu", directory), ("/usr/lib/vgpu/usage", directory + "/usage")]
    (hook,) = spec["hooks"]["poststop"]
    assert hook == {"path": "/usr/libexec/vgpu/vgpu-hook", "args": ["vgpu-hook", "poststop", "--key", pod.key()],
                    "env": ["PATH=/usr/sbin:/usr/bin:/sbin:/bin"], "timeout": 5}
    assert spec["process"]["rlimits"][0]["hard"] == 18446744073709551615
    assert spec["linux"]["resources"]["memory"]["limit"] == 9223372036854775807


def test_the_container_directory_can_be_read_by_anybody_and_the_state_by_root_alone(node, pod):
    pod.allocate().create()
    directory = node.path(f"/run/vgpu/containers/{pod.key()}")
    mode = lambda path: stat.S_IMODE(path.stat().st_mode)
    assert [mode(directory.parent.parent), mode(directory.parent), mode(directory)] == [0o711, 0o711, 0o755]
    assert mode(directory / "host") == 0o644 and mode(directory / "usage") == 0o666
    assert sorted(f.name for f in (directory / "driver").iterdir()) == \
        sorted(f"{library}.{slot}" for library in ("cuda", "nvml") for slot in range(8))
    assert (directory / "host").read_bytes()[:8] == b"VGPUHOST"
    assert CARD.encode() in (directory / "host").read_bytes()
    state = node.path(f"/run/vgpu/state/{pod.key()}")
    assert mode(state) == 0o600 and mode(state.parent) == 0o700
    assert json.loads(state.read_text())["deviceMinors"] == [0]


def test_in_cdi_mode_the_cards_are_named_by_annotation(node, pod):
    node.write("/etc/vgpu/runtime.toml", 'toolkit_mode = "cdi"\n')
    pod.allocate(uuids=(CARD, OTHER)).create()
    spec = pod.config()
    assert spec["annotations"]["cdi.k8s.io/vgpu"] == f"runtime.nvidia.com/gpu={CARD},runtime.nvidia.com/gpu={OTHER}"
    assert "NVIDIA_VISIBLE_DEVICES=void" in spec["process"]["env"]


def test_run_substitutes_by_a_hook_in_the_container(node, pod):
    pod.allocate().create(command="run")
    (hook,) = pod.config()["hooks"]["createContainer"]
    directory = node.path(f"/run/vgpu/containers/{pod.key()}").stat()
    assert hook["args"][:6] == ["vgpu-hook", "create-container", "--key", pod.key(), "--private",
                                f"{directory.st_dev}:{directory.st_ino}"]
    assert hook["args"][6:8] == ["--minors", "0"]
    assert hook["args"][-2] == "--log" and hook["args"][-1].startswith("/")


def test_cards_put_in_by_the_engine_leave_nothing_for_nvidias_runtime(node, pod):
    pod.allocate().spec["linux"]["devices"] = [{"path": "/dev/nvidia0", "type": "c", "major": 195, "minor": 0}]
    remove_nvidia(node)
    assert pod.create().returncode == 0, pod.log
    assert node.recorded()[0][0] == "/usr/sbin/runc"


def test_a_second_create_of_the_same_bundle_changes_nothing_more(node, pod):
    pod.allocate().create()
    first = pod.config()
    assert pod.create(save=False).returncode == 0
    assert pod.config() == first


def test_below_nvidias_runtime_the_second_pass_goes_to_runc_and_forgets_the_count(node, pod):
    pod.allocate().create()
    first = pod.config()
    assert pod.create(save=False, env={"VGPU_RUNTIME_STAGE": "1"}).returncode == 0, pod.log
    program, _, _, env = node.recorded()[1]
    assert (program, env) == ("/usr/sbin/runc", {"PATH": "/nowhere"})
    assert pod.config() == first


def test_below_nvidias_runtime_a_card_that_is_not_allocated_is_refused(node, pod):
    pod.allocate().create()
    spec = pod.config()
    spec["linux"]["devices"] = [{"path": "/dev/nvidia1", "type": "c", "major": 195, "minor": 1}]
    node.write(f"{pod.bundle}/config.json", json.dumps(spec))
    assert pod.create(save=False, env={"VGPU_RUNTIME_STAGE": "1"}).returncode == 1
    assert "'/dev/nvidia1', which is not allocated" in pod.log[-1]["msg"]


# Allocations that are not believed. The text names the pod.

def forge(node, pod):
    text = allocations.text(pod.uid, "node-a", {"main": allocations.container(allocations.gpu(CARD, 3000))})
    pod.annotate(text, f"{node.signer.kid}." + allocations.Signer().sign(text).split(".")[1])


def edit(node, pod):
    pod.allocate()
    edited = pod.spec["annotations"]["vgpu.io/allocation"].replace("3000", "80000")
    pod.spec["annotations"]["vgpu.io/allocation"] = edited


def of_another_pod(node, pod):
    pod.allocate(pod=str(uuid.uuid4()))


def of_another_node(node, pod):
    pod.allocate(node="node-b")


def by_another_key(node, pod):
    pod.allocate(signer=allocations.Signer())


def older(node, pod):
    pod.allocate(generation=3)
    text, signature = (pod.spec["annotations"][f"vgpu.io/{k}"] for k in ("allocation", "signature"))
    pod.record(text, signature, 4)


def unsigned(node, pod):
    pod.allocate()
    del pod.spec["annotations"]["vgpu.io/signature"]


def another_cgroup(node, pod):
    pod.allocate()
    pod.spec["linux"]["cgroupsPath"] = f"/kubepods/pod{uuid.uuid4()}/{pod.id}"


def unknown_card(node, pod):
    pod.allocate(uuids=("GPU-00000000-0000-0000-0000-00000000000f",))


def graphics(node, pod):
    pod.allocate(caps="compute,graphics")


def privileged(node, pod):
    pod.allocate()
    pod.spec["linux"]["resources"]["devices"] = [{"allow": True, "access": "rwm"}]


def foreign_mount(node, pod):
    pod.allocate()
    pod.spec["mounts"] = [{"destination": "/usr/lib/../lib//vgpu/driver", "type": "bind", "source": "/tmp"}]


def foreign_cards(node, pod):
    pod.allocate()
    pod.spec["linux"]["devices"] = [{"path": f"/dev/nvidia{n}", "type": "c", "major": 195, "minor": n} for n in (0, 1)]


def bad_config(node, pod):
    pod.allocate()
    node.write("/etc/vgpu/runtime.toml", "privileged = 3\n")


def no_run(node, pod):
    pod.allocate()
    remove_run(node)


def no_limiter(node, pod):
    pod.allocate()
    remove_limiter(node)


def no_nvidia(node, pod):
    pod.allocate()
    remove_nvidia(node)


def writable_limiter(node, pod):
    pod.allocate()
    node.path("/usr/lib/vgpu/0.1.0/libvgpu-cuda.3.so").chmod(0o777)


def writable_trust(node, pod):
    pod.allocate()
    node.path(f"/etc/vgpu/trust.d/{node.signer.kid}.pub").chmod(0o666)


def requested_only(node, pod):
    node.write("/etc/vgpu/runtime.toml", "record_wait_ms = 0\n")
    node.path("/run/vgpu/pods").mkdir()
    pod.spec["process"]["env"].append("VGPU_REQUESTED=1")


def devices_only(node, pod):
    pod.spec["linux"]["devices"] = [{"path": "/dev/nvidia0", "type": "c", "major": 195, "minor": 0}]


REFUSED = [
    (forge, "the signature does not belong to the allocation"),
    (edit, "the signature does not belong to the allocation"),
    (of_another_pod, "an allocation cannot be copied to another pod"),
    (of_another_node, "made for node 'node-b' and this is 'node-a'"),
    (by_another_key, "this node does not trust key"),
    (older, "it is of generation 3 and this node has verified 4"),
    (unsigned, "annotation 'vgpu.io/signature' is missing"),
    (another_cgroup, "the two must be the same"),
    (unknown_card, "not among those of '/run/vgpu/node'"),
    (graphics, "driver capability 'graphics'"),
    (privileged, "a privileged container sees every card"),
    (foreign_mount, "may not have mounts at or below '/usr/lib/vgpu'"),
    (foreign_cards, "which are not the allocated cards"),
    (bad_config, "'/etc/vgpu/runtime.toml' line 1: key 'privileged' must be \"deny\" or \"pass\""),
    (no_run, "the device plugin has not described this node"),
    (no_limiter, "find the limiter"),
    (no_nvidia, "NVIDIA's runtime is not installed"),
    (writable_limiter, "libvgpu-cuda.3.so"),
    (writable_trust, "can be written by others than root"),
    (requested_only, "not yet allocated"),
    (devices_only, "not yet allocated"),
]


@pytest.mark.parametrize("prepare, words", REFUSED, ids=[prepare.__name__ for prepare, _ in REFUSED])
def test_a_gpu_container_is_refused_with_one_line_that_names_its_pod(node, pod, prepare, words):
    prepare(node, pod)
    message = refusal(pod, pod.create())
    assert message.startswith("vgpu: pod 'team/train-7', container 'main': ")
    assert words in message


def test_a_record_stands_in_for_the_annotations(node, pod):
    pod.allocate()
    text, signature = (pod.spec["annotations"].pop(f"vgpu.io/{k}") for k in ("allocation", "signature"))
    pod.record(text, signature, 1)
    assert pod.create().returncode == 0, pod.log
    assert node.recorded()[0][0] == "/usr/bin/nvidia-container-runtime"


def watches(pid):
    """Whether the process has an inotify descriptor now; descriptors may go while one looks."""
    for fd in os.listdir(f"/proc/{pid}/fd"):
        try:
            if "inotify" in os.readlink(f"/proc/{pid}/fd/{fd}"):
                return True
        except OSError:
            pass
    return False


def test_a_container_that_asked_waits_for_its_record(node, pod):
    pod.allocate()
    text, signature = (pod.spec["annotations"].pop(f"vgpu.io/{k}") for k in ("allocation", "signature"))
    pod.spec["process"]["env"].append("VGPU_REQUESTED=1")
    node.path("/run/vgpu/pods").mkdir()
    pod.save()
    waiting = subprocess.Popen(["nsenter", "-t", str(node.process.pid), "-m", "--", "/usr/bin/vgpu-runtime",
                                *pod.arguments()])
    # it has looked once and found nothing when it watches the directory
    while not watches(waiting.pid):
        assert waiting.poll() is None
    node.write("/run/vgpu/pods/.new", json.dumps({"v": 1, "gen": 1, "allocation": text, "signature": signature}))
    node.path("/run/vgpu/pods/.new").rename(node.path(f"/run/vgpu/pods/{pod.uid}"))
    assert waiting.wait() == 0, pod.log
    assert node.recorded()[0][0] == "/usr/bin/nvidia-container-runtime"


def test_an_exempt_namespace_goes_to_nvidias_runtime_untouched(node, pod):
    node.write("/etc/vgpu/runtime.toml", 'exempt_namespaces = ["team"]\n')
    assert pod.create().returncode == 0
    assert node.recorded()[0][0] == "/usr/bin/nvidia-container-runtime" and pod.untouched()


UNMANAGED = "GPU-00000000-0000-0000-0000-0000000000ff"


def test_another_plugins_container_gets_its_own_cards_untouched(node, pod):
    node.write("/etc/vgpu/runtime.toml", 'unallocated = "others"\n')
    pod.spec["process"]["env"] = [f"NVIDIA_VISIBLE_DEVICES={UNMANAGED}"]
    assert pod.create().returncode == 0, pod.log
    assert node.recorded()[0][0] == "/usr/bin/nvidia-container-runtime" and pod.untouched()


def test_another_plugins_container_gets_none_of_our_cards(node, pod):
    node.write("/etc/vgpu/runtime.toml", 'unallocated = "others"\n')
    pod.spec["process"]["env"] = [f"NVIDIA_VISIBLE_DEVICES={UNMANAGED},{CARD}"]
    assert f"asks for '{CARD}' without an allocation" in refusal(pod, pod.create())


def test_privileged_gpu_containers_pass_where_the_administrator_says_so(node, pod):
    node.write("/etc/vgpu/runtime.toml", 'privileged = "pass"\n')
    privileged(node, pod)
    assert pod.create().returncode == 0, pod.log
    assert node.recorded()[0][0] == "/usr/bin/nvidia-container-runtime" and pod.untouched()


def test_a_privileged_container_without_a_gpu_goes_to_runc_although_it_has_every_device_node(node, pod):
    pod.spec["linux"]["resources"]["devices"] = [{"allow": True, "access": "rwm"}]
    pod.spec["linux"]["devices"] = [{"path": "/dev/nvidia0", "type": "c", "major": 195, "minor": 0}]
    assert pod.create().returncode == 0, pod.log
    assert node.recorded()[0][0] == "/usr/sbin/runc" and pod.untouched()


def test_a_running_container_of_the_same_id_keeps_its_files(node, pod):
    pod.allocate().create()
    before = left_behind(node)
    node.path(f"/run/runtime-root/{pod.id}").mkdir(parents=True)
    assert pod.create(save=False).returncode == 1
    assert "a container of that id exists" in pod.log[-1]["msg"]
    assert left_behind(node) == before


# After create.


def test_later_commands_of_a_gpu_container_follow_nvidias_runtime_where_it_starts_another(node, pod):
    node.write("/etc/nvidia-container-runtime/config.toml", '[nvidia-container-runtime]\nruntimes = ["crun"]\n')
    pod.allocate().create()
    for words in (["kill", pod.id, "9"], ["update", "--resources", "-", pod.id]):
        assert pod.command(*words).returncode == 0
        assert node.recorded()[-1][0] == "/usr/bin/nvidia-container-runtime"
    node.run("--root", "/run/runtime-root", "kill", pod.id, env={"VGPU_RUNTIME_STAGE": "1"})
    assert node.recorded()[-1][0] == "/usr/sbin/runc"


def test_exec_is_refused_before_start(node, pod):
    pod.allocate().create()
    assert pod.command("exec", pod.id, "sh").returncode == 1
    assert "exec refused before the container has been started" in pod.log[-1]["msg"]


def test_start_is_refused_when_the_state_of_a_gpu_container_is_gone(node, pod):
    pod.allocate().create()
    node.write(f"/run/runtime-root/{pod.id}/state.json",
               json.dumps({"config": {"mounts": [{"source": f"/run/vgpu/containers/{pod.key()}"}]}}))
    node.path(f"/run/vgpu/state/{pod.key()}").unlink()
    for command in ("start", "exec"):
        assert pod.command(command, pod.id).returncode == 1
        assert "the state of GPU container" in pod.log[-1]["msg"]


def test_start_fails_when_the_process_is_not_the_containers(node, pod):
    pod.allocate().create()
    node.write(f"{pod.bundle}/init.pid", str(os.getpid()))
    assert pod.command("start", pod.id).returncode == 1
    assert pod.log[-1]["msg"].startswith("vgpu: pod 'team/train-7', container 'main': put the limiter in place: ")
    assert len(node.recorded()) == 1


def test_delete_removes_what_a_container_left_that_runc_does_not_know(node, pod):
    pod.allocate().create()
    assert len(left_behind(node)) == 2
    assert pod.command("delete", "--force", pod.id).returncode == 0
    assert left_behind(node) == []
    assert node.recorded()[-1][0] == "/usr/sbin/runc"


def test_delete_leaves_the_rest_to_the_hook_while_runc_knows_the_container(node, pod):
    pod.allocate().create()
    node.path(f"/run/runtime-root/{pod.id}").mkdir(parents=True)
    assert pod.command("delete", pod.id).returncode == 0
    assert len(left_behind(node)) == 2


# Finding the next runtime.

def test_the_wrapper_under_the_name_runc_is_not_started_again_br139(node, pod):
    node.copy(BUILD / "runtime-wrapper" / "vgpu-runtime", "/usr/local/sbin/runc")
    assert pod.create().returncode == 0
    assert [start[0] for start in node.recorded()] == ["/usr/sbin/runc"]


def test_a_configured_link_to_the_wrapper_is_passed_over_br139(node, pod):
    node.path("/usr/bin/linked").symlink_to("/usr/bin/vgpu-runtime")
    node.write("/etc/vgpu/runtime.toml", 'low_level_runtimes = ["/usr/bin/linked", "/usr/bin/missing", "crun"]\n')
    assert pod.create().returncode == 0
    assert [start[0] for start in node.recorded()] == ["/usr/bin/crun"]


def test_a_circle_through_a_script_ends_with_a_text_br139(node, pod):
    node.write("/usr/bin/circle", '#!/bin/sh\nexec /usr/bin/vgpu-runtime "$@"\n')
    node.path("/usr/bin/circle").chmod(0o755)
    node.write("/etc/vgpu/runtime.toml", 'low_level_runtimes = ["/usr/bin/circle"]\n')
    assert pod.create().returncode == 1
    assert "start each other in a circle" in pod.log[-1]["msg"]


def test_without_any_runtime_the_exit_status_is_127(node, pod):
    for path in ("/usr/sbin/runc", "/usr/bin/crun"):
        node.path(path).unlink()
    assert pod.create().returncode == 127
    assert "no executable among 'runc', 'crun'" in pod.log[-1]["msg"]


def test_inherited_descriptors_reach_the_runtime_and_no_others(node, pod):
    pod.allocate()
    pod.save()
    node.write("/usr/bin/nvidia-container-runtime", "#!/bin/sh\n/bin/ls /proc/self/fd > /run/fds\n")
    reader, writer = os.pipe()
    try:
        assert pod.create(save=False, fds=(reader, writer)).returncode == 0, pod.log
    finally:
        os.close(reader)
        os.close(writer)
    seen = {int(fd) for fd in node.path("/run/fds").read_text().split()}
    assert {0, 1, 2, reader, writer} <= seen
    assert len(seen - {0, 1, 2, reader, writer}) <= 1  # that of ls


def test_print_config_shows_what_is_in_force(node):
    node.write("/etc/vgpu/runtime.toml", "record_wait_ms = 5\n")
    printed = node.run("--vgpu-print-config").stdout
    assert "record_wait_ms = 5\n" in printed and 'privileged = "deny"\n' in printed
