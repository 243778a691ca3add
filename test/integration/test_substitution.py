"""The limiter takes the driver's place in real containers of runc and crun, created and not yet started.

Tiny libraries stand for the driver and for the limiter: this is about mounts and the loader alone.
"""
import ctypes
import json
import os
import pathlib
import select
import shutil
import subprocess
import uuid

import pytest
from conftest import require

ROOT = pathlib.Path(__file__).resolve().parents[2]
BUILD = pathlib.Path(os.environ.get("VGPU_BUILD", ROOT / "build" / "dev")).resolve()
HOOK = BUILD / "oci-hook" / "vgpu-hook"
TOOL = BUILD / "test" / "unit" / "oci" / "vgpu-substitution-tool"
DRIVER_VERSION = "580.159.04"
LIBDIR = "usr/lib/x86_64-linux-gnu"
SLOTS = "/usr/lib/vgpu/driver"
MAPPED_ROOT = 100000

libc = ctypes.CDLL(None, use_errno=True)
CLONE_NEWNS = 0x20000
MS_REC, MS_SLAVE, MS_SHARED = 0x4000, 1 << 19, 1 << 20

DRIVER = """
int cuInit(unsigned f) { (void)f; return VALUE; }
int nvmlInit_v2(void) { return VALUE; }
int real_only(void) { return VALUE; }
"""
LIMITER = """
int cuInit(unsigned f) { (void)f; return VALUE; }
int nvmlInit_v2(void) { return VALUE; }
"""
# Answers requests on its arguments, one line each: load NAME -> values of the two functions; umount PATH; size PATH; write PATH.
PROBE = r"""
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <unistd.h>
static void load(const char* name) {
  void* h = dlopen(name, RTLD_NOW);
  if (!h) { printf("load %s: %s\n", name, strstr(dlerror(), "too short") ? "too short" : "no"); return; }
  int (*ours)(unsigned) = (int (*)(unsigned))dlsym(h, "cuInit");
  int (*real)(void) = (int (*)(void))dlsym(h, "real_only");
  printf("load %s: %d %d\n", name, ours ? ours(0) : -1, real ? real() : -1);
}
int main(int argc, char** argv) {
  struct stat s;
  for (int i = 1; i + 1 < argc; i += 2) {
    const char *what = argv[i], *path = argv[i + 1];
    if (!strcmp(what, "load")) load(path);
    else if (!strcmp(what, "umount")) printf("umount %s: %d\n", path, umount(path) ? errno : 0);
    else if (!strcmp(what, "size")) printf("size %s: %lld\n", path, stat(path, &s) ? -1LL : (long long)s.st_size);
    else if (!strcmp(what, "write")) { int f = open(path, O_WRONLY); printf("write %s: %d\n", path, f < 0 ? errno : 0); if (f >= 0) close(f); }
    else if (!strcmp(what, "mounts")) {
      char line[4096]; FILE* f = fopen("/proc/self/mountinfo", "r");
      while (f && fgets(line, sizeof line, f)) if (strstr(line, path)) printf("mount %s", line);
      if (f) fclose(f);
    }
  }
  fflush(stdout);
  return 0;
}
"""


def product(*arguments):
    """One of our programs; under the negative control one that does nothing and succeeds."""
    if "VGPU_AGAINST" in os.environ:
        arguments = ["true"]
    return subprocess.run([str(a) for a in arguments], capture_output=True, text=True, stdin=subprocess.DEVNULL)


def run(*arguments, **options):
    return subprocess.run([str(a) for a in arguments], check=True, text=True, **options)


def shared_namespace():
    """A mount namespace whose root is shared, as systemd makes it, and in which crun finds no second cgroup hierarchy."""
    if libc.unshare(CLONE_NEWNS):
        raise OSError(ctypes.get_errno(), "unshare")
    libc.mount(None, b"/", None, MS_REC | MS_SLAVE, None)
    libc.umount2(b"/sys/fs/cgroup/unified", 2)
    libc.mount(None, b"/", None, MS_REC | MS_SHARED, None)


def compile_library(path, source, value, soname, *flags):
    path.parent.mkdir(parents=True, exist_ok=True)
    run("gcc", "-shared", "-fPIC", "-nostdlib", f"-DVALUE={value}", f"-Wl,-soname,{soname}", "-o", path,
        "-x", "c", "-", "-x", "none", *flags, input=source)


@pytest.fixture(scope="session")
def libraries(tmp_path_factory):
    """The driver's directory on the host, and the limiter's."""
    require("root", os.geteuid() == 0, "needs root: containers and mounts")
    require("build", TOOL.exists() and HOOK.exists(), "vgpu-substitution-tool and vgpu-hook are not built")
    top = tmp_path_factory.mktemp("host")
    for directory in [top, *top.parents]:
        if directory != pathlib.Path("/tmp") and str(directory).startswith("/tmp"):
            directory.chmod(0o755)
    driver, limiter = top / "driver", top / "limiter"
    compile_library(driver / f"libcuda.so.{DRIVER_VERSION}", DRIVER, 4711, "libcuda.so.1")
    compile_library(driver / f"libnvidia-ml.so.{DRIVER_VERSION}", DRIVER, 4712, "libnvidia-ml.so.1")
    compile_library(driver / "compat-a.so", DRIVER, 5001, "libcuda.so.1")
    compile_library(driver / "compat-b.so", DRIVER, 5002, "libcuda.so.1")
    for kind, soname in (("cuda", "libcuda.so.1"), ("nvml", "libnvidia-ml.so.1")):
        for n in range(8):
            stub = top / "stub" / f"{kind}.{n}.so"
            compile_library(stub, "", 0, f"{SLOTS}/{kind}.{n}")
            compile_library(limiter / f"libvgpu-{kind}.{n}.so", LIMITER, 1000 + n, soname,
                            "-Wl,--no-as-needed", stub, "-Wl,-z,nodelete")
    (limiter / "empty").touch()
    return driver, limiter


@pytest.fixture(scope="session")
def image(tmp_path_factory):
    """A root file system with a loader, the C library and the probe."""
    top = tmp_path_factory.mktemp("image")
    for directory in ("bin", "etc", "tmp", "proc", "sys", "dev", LIBDIR, "lib64", "usr/lib64"):
        (top / directory).mkdir(parents=True, exist_ok=True)
    (top / "lib").symlink_to("usr/lib")
    shutil.copy("/lib64/ld-linux-x86-64.so.2", top / "lib64")
    shutil.copy("/lib/x86_64-linux-gnu/libc.so.6", top / LIBDIR)
    run("gcc", "-O1", "-o", top / "bin" / "probe", "-x", "c", "-", input=PROBE)
    return top


class Container:
    def __init__(self, directory, runtime, image, libraries, user_namespace=False, legacy=False):
        self.id = f"subst-{uuid.uuid4().hex[:12]}"
        self.runtime = [runtime, "--root", str(directory / "state")]
        self.bundle = directory / "bundle"
        self.rootfs = self.bundle / "rootfs"
        self.private = directory / "private"
        self.driver, self.limiter = libraries
        self.user_namespace, self.legacy = user_namespace, legacy
        self.minors = "0"
        self.library_path = ""
        self.log = directory / "log"
        self.hook_log = directory / "hook-log"
        self.by_hook = False
        for parent in (directory, *directory.parents):
            if str(parent).startswith("/tmp/"):
                parent.chmod(0o755)
        shutil.copytree(image, self.rootfs, symlinks=True)
        (self.private / "driver").mkdir(parents=True)
        for name in ["usage", "host", *(f"driver/{k}.{n}" for k in ("cuda", "nvml") for n in range(8))]:
            (self.private / name).touch()
        lib = self.rootfs / LIBDIR
        for name, link in (("libcuda.so.1", f"libcuda.so.{DRIVER_VERSION}"), ("libcuda.so", "libcuda.so.1"),
                           ("libnvidia-ml.so.1", f"libnvidia-ml.so.{DRIVER_VERSION}")):
            (lib / name).symlink_to(link)

    def public(self, name="libcuda.so"):
        return f"/{LIBDIR}/{name}.{DRIVER_VERSION}"

    def driver_mounts(self):
        return [(str(self.driver / f"{n}.{DRIVER_VERSION}"), self.public(n)) for n in ("libcuda.so", "libnvidia-ml.so")]

    def spec(self, arguments, environment):
        mounts = [{"destination": "/proc", "type": "proc", "source": "proc"},
                  {"destination": "/dev", "type": "tmpfs", "source": "tmpfs", "options": ["nosuid", "mode=755"]}]
        if not self.legacy:
            mounts += [{"destination": d, "type": "bind", "source": s, "options": ["ro", "nosuid", "nodev", "rbind", "rprivate"]}
                       for s, d in self.driver_mounts()]
        mounts += [{"destination": "/usr/lib/vgpu", "type": "bind", "source": str(self.private),
                    "options": ["ro", "nosuid", "nodev", "bind", "rprivate"]},
                   {"destination": "/usr/lib/vgpu/usage", "type": "bind", "source": str(self.private / "usage"),
                    "options": ["rw", "nosuid", "nodev", "bind", "rprivate"]}]
        namespaces = [{"type": t} for t in ("pid", "mount", "ipc", "uts", "network")]
        linux = {"namespaces": namespaces, "cgroupsPath": f"/vgpu-test/{self.id}"}
        # A node of this kind cannot be made in a user namespace; runtimes bind the host's there, which has none here.
        if not self.user_namespace:
            linux["devices"] = [{"path": "/dev/nvidia0", "type": "c", "major": 195, "minor": 0},
                                {"path": "/dev/nvidiactl", "type": "c", "major": 195, "minor": 255}]
        else:
            self.minors = ""
            namespaces.append({"type": "user"})
            ids = [{"containerID": 0, "hostID": MAPPED_ROOT, "size": 65536}]
            linux.update(uidMappings=ids, gidMappings=ids)
        capabilities = ["CAP_SYS_ADMIN", "CAP_DAC_OVERRIDE", "CAP_CHOWN"]
        spec = {"ociVersion": "1.0.2", "root": {"path": "rootfs"}, "hostname": "c", "mounts": mounts, "linux": linux,
                "process": {"terminal": False, "user": {"uid": 0, "gid": 0}, "args": ["/bin/probe", *arguments],
                            "env": ["PATH=/bin", *environment], "cwd": "/",
                            "capabilities": {k: capabilities for k in ("bounding", "effective", "permitted")}}}
        if self.legacy:
            spec["hooks"] = {"prestart": [{"path": "/bin/sh", "env": ["PATH=/usr/sbin:/usr/bin:/sbin:/bin"],
                                           "args": ["sh", str(self.legacy_hook())]}]}
        if self.by_hook and "VGPU_AGAINST" not in os.environ:
            status = os.stat(self.private)
            self.hook_log.touch()
            self.hook_log.chmod(0o666)
            spec.setdefault("hooks", {})["createContainer"] = [{
                "path": str(HOOK), "env": ["PATH=/usr/bin"], "timeout": 20,
                "args": ["vgpu-hook", "create-container", "--key", f"{self.id}-00000000", "--private",
                         f"{status.st_dev}:{status.st_ino}", "--minors", self.minors, "--library-path", self.library_path,
                         "--library-directory", str(self.limiter), "--log", str(self.hook_log)]}]
        return spec

    def legacy_hook(self):
        """As nvidia-container-cli does it: enters the mount namespace and binds."""
        script = self.bundle / "legacy.sh"
        lines = ["set -e", "state=$(cat)", "pid=${state#*\\\"pid\\\":}", "pid=${pid#* }", "pid=${pid%%[!0-9]*}"]
        for source, destination in self.driver_mounts():
            target = f"{self.rootfs}{destination}"
            lines += [f": > {target}", f"nsenter -t $pid -m mount --bind {source} {target}",
                      f"nsenter -t $pid -m mount -o remount,bind,ro {target}"]
        script.write_text("\n".join(lines) + "\n")
        return script

    def create(self, *arguments, environment=(), succeeds=True):
        (self.bundle / "config.json").write_text(json.dumps(self.spec(arguments, environment)))
        if self.user_namespace:
            run("chown", "-R", f"{MAPPED_ROOT}:{MAPPED_ROOT}", self.rootfs)
        with open(self.log, "wb") as log:
            result = subprocess.run([*self.runtime, "create", "--bundle", str(self.bundle), "--pid-file",
                                     str(self.bundle / "pid"), self.id], stdin=subprocess.DEVNULL, stdout=log, stderr=log,
                                    preexec_fn=shared_namespace)
        assert (result.returncode == 0) == succeeds, self.log.read_text()
        return self

    def substitute(self):
        status = os.stat(self.private)
        return product(TOOL, (self.bundle / "pid").read_text().strip(), f"{status.st_dev}:{status.st_ino}", self.limiter,
                       f"/vgpu-test/{self.id}", self.minors, self.library_path)

    def start(self):
        """Runs the program to its end; its lines."""
        pid = int((self.bundle / "pid").read_text())
        watch = os.pidfd_open(pid)
        result = subprocess.run([*self.runtime, "start", self.id], capture_output=True, text=True, preexec_fn=shared_namespace)
        assert result.returncode == 0, result.stderr
        assert select.select([watch], [], [], 60)[0], "the program did not end"
        os.close(watch)
        return self.log.read_text().splitlines()

    def delete(self):
        subprocess.run([*self.runtime, "delete", "--force", self.id], capture_output=True, preexec_fn=shared_namespace)


@pytest.fixture(params=["runc", "crun"])
def runtime(request):
    require(request.param, shutil.which(request.param) is not None, f"needs {request.param}")
    return request.param


@pytest.fixture
def container(tmp_path, image, libraries):
    made = []

    def make(runtime, **options):
        made.append(Container(tmp_path, runtime, image, libraries, **options))
        return made[-1]

    yield make
    for one in made:
        one.delete()
    for parent in pathlib.Path("/sys/fs/cgroup").glob("*/vgpu-test"):
        parent.rmdir()  # fails if a container is left in it
    assert_nothing_left(tmp_path)


def assert_nothing_left(directory):
    with open("/proc/self/mountinfo", encoding="utf-8") as mounts:
        assert str(directory) not in mounts.read()


@pytest.mark.parametrize("user_namespace", [False, True], ids=["host-root", "user-namespace"])
@pytest.mark.parametrize("legacy", [False, True], ids=["spec-mounts", "legacy-mounts"])
def test_the_program_gets_the_limiter_and_through_it_the_driver(container, runtime, user_namespace, legacy):
    one = container(runtime, user_namespace=user_namespace, legacy=legacy)
    one.create("load", "libcuda.so.1", "load", "libcuda.so", "load", one.public(), "load", "libnvidia-ml.so.1",
               "write", one.public(), "mounts", "vgpu/driver", "mounts", "libcuda.so")
    result = one.substitute()
    assert result.returncode == 0, result.stderr
    lines = one.start()
    assert "load libcuda.so.1: 1000 4711" in lines, lines
    assert "load libcuda.so: 1000 4711" in lines
    assert f"load {one.public()}: 1000 4711" in lines
    assert "load libnvidia-ml.so.1: 1000 4712" in lines
    assert f"write {one.public()}: {13 if user_namespace else 30}" in lines  # EACCES: not its owner; EROFS
    mounts = [line.split() for line in lines if line.startswith("mount ")]
    assert len(mounts) == 4, mounts  # two slots, and libcuda's public path and the slot's root name it
    for mount in mounts:
        assert {"ro", "nosuid", "nodev"} <= set(mount[6].split(",")), mount
        assert mount[7] == "-", mount  # private


@pytest.mark.parametrize("legacy", [False, True], ids=["spec-mounts", "legacy-mounts"])
def test_taking_the_limiter_away_uncovers_an_empty_file(container, runtime, legacy):
    one = container(runtime, legacy=legacy)
    one.create("size", one.public(), "umount", one.public(), "size", one.public(), "load", "libcuda.so.1")
    assert one.substitute().returncode == 0
    ours = (one.limiter / "libvgpu-cuda.0.so").stat().st_size
    assert one.start() == [f"size {one.public()}: {ours}", f"umount {one.public()}: 0", f"size {one.public()}: 0",
                           "load libcuda.so.1: too short"]


def test_a_second_run_changes_nothing(container, runtime):
    one = container(runtime)
    one.create("load", "libcuda.so.1", "mounts", "libcuda.so")
    assert one.substitute().returncode == 0
    assert one.substitute().returncode == 0
    lines = one.start()
    assert lines[0] == "load libcuda.so.1: 1000 4711"
    assert len(lines) == 3, lines


def test_each_copy_has_its_own_slot_and_the_loader_chooses(container, runtime):
    one = container(runtime)
    for name in ("a", "b"):
        compat = one.rootfs / "usr/local" / f"cuda-{name}" / "compat"
        compat.mkdir(parents=True)
        shutil.copy(one.driver / f"compat-{name}.so", compat / "libcuda.so.600.1")
        (compat / "libcuda.so.1").symlink_to("libcuda.so.600.1")
    one.create("load", "libcuda.so.1", "load", one.public(), environment=["LD_LIBRARY_PATH=/usr/local/cuda-b/compat"])
    assert one.substitute().returncode == 0
    lines = one.start()
    assert lines == ["load libcuda.so.1: 1002 5002", f"load {one.public()}: 1000 4711"]


def test_a_regular_file_of_the_driver_s_name_in_the_image_is_replaced_too(container, runtime):
    one = container(runtime)
    (one.rootfs / LIBDIR / "libcuda.so.1").unlink()
    shutil.copy(one.driver / "compat-a.so", one.rootfs / LIBDIR / "libcuda.so.1")
    one.create("load", "libcuda.so.1")
    assert one.substitute().returncode == 0
    assert one.start() == ["load libcuda.so.1: 1001 5001"]


def test_a_card_outside_the_allocation_stops_the_start(container, runtime):
    one = container(runtime).create("load", "libcuda.so.1")
    one.minors = "1"
    result = one.substitute()
    assert result.returncode == 1
    assert "'/dev/nvidia0' is not of the pod's allocation" in result.stderr


def test_a_missing_card_stops_the_start(container, runtime):
    one = container(runtime).create("load", "libcuda.so.1")
    one.minors = "0,1"
    result = one.substitute()
    assert result.returncode == 1
    assert "'/dev/nvidia1' of the pod's allocation is missing" in result.stderr


def test_a_process_of_another_cgroup_is_refused(container, runtime):
    one = container(runtime).create("load", "libcuda.so.1")
    one.id, real = "another", one.id
    result = one.substitute()
    one.id = real
    assert result.returncode == 1
    assert "its pid was used again" in result.stderr


def test_another_directory_in_the_private_one_s_place_is_refused(container, runtime):
    one = container(runtime).create("load", "libcuda.so.1")
    one.private = one.bundle
    result = one.substitute()
    assert result.returncode == 1
    assert "another directory lies there" in result.stderr


def test_the_driver_as_a_directory_mount_is_found(container, runtime):
    one = container(runtime)
    (one.rootfs / "etc/ld.so.conf").write_text("# nothing\n")
    spec = one.spec
    def with_directory(arguments, environment):
        result = spec(arguments, environment)
        result["mounts"] = [m for m in result["mounts"] if "so" not in m["destination"].split("/")[-1]]
        result["mounts"].append({"destination": "/opt/driver/lib64", "type": "bind", "source": str(one.driver),
                                 "options": ["ro", "rbind"]})
        return result
    one.spec = with_directory
    one.create("load", f"/opt/driver/lib64/libcuda.so.{DRIVER_VERSION}")
    result = one.substitute()
    assert result.returncode == 0, result.stderr
    assert one.start() == [f"load /opt/driver/lib64/libcuda.so.{DRIVER_VERSION}: 1000 4711"]


@pytest.mark.parametrize("user_namespace", [False, True], ids=["host-root", "user-namespace"])
@pytest.mark.parametrize("legacy", [False, True], ids=["spec-mounts", "legacy-mounts"])
def test_the_hook_does_the_same_for_run(container, runtime, user_namespace, legacy):
    one = container(runtime, user_namespace=user_namespace, legacy=legacy)
    one.by_hook = True
    one.create("load", "libcuda.so.1", "load", one.public(), "load", "libnvidia-ml.so.1", "mounts", "libcuda.so")
    lines = one.start()
    assert "load libcuda.so.1: 1000 4711" in lines, lines
    assert f"load {one.public()}: 1000 4711" in lines
    assert "load libnvidia-ml.so.1: 1000 4712" in lines
    for mount in (line.split() for line in lines if line.startswith("mount ")):
        assert {"ro", "nosuid", "nodev"} <= set(mount[6].split(",")), mount
        assert mount[7] == "-", mount


def test_a_failing_hook_says_why_where_the_runtime_does_not(container, runtime):
    one = container(runtime)
    one.by_hook = True
    one.minors = "7"
    one.create("load", "libcuda.so.1", succeeds=False)
    message = json.loads(one.hook_log.read_text())
    assert message["level"] == "error"
    assert "is not of the pod's allocation" in message["msg"]


def test_poststop_removes_state_and_directory_and_follows_no_link(tmp_path, libraries):
    run_directory, outside = tmp_path / "run", tmp_path / "outside"
    key = "abc-0123abcd"
    private = run_directory / "containers" / key
    (private / "driver").mkdir(parents=True)
    (private / "driver" / "cuda.0").touch()
    (run_directory / "state").mkdir()
    (run_directory / "state" / key).write_text("{}")
    outside.mkdir()
    (outside / "kept").touch()
    (private / "link").symlink_to(outside)
    for _ in range(2):
        assert product(HOOK, "poststop", "--key", key, "--run-directory", run_directory).returncode == 0
        assert not private.exists()
        assert not (run_directory / "state" / key).exists()
    assert (outside / "kept").exists()


@pytest.mark.parametrize("key", ["../outside-0123abcd", "a/b-0123abcd", "", ".", "-0123abcd"])
def test_poststop_takes_no_key_that_is_a_path(tmp_path, libraries, key):
    result = product(HOOK, "poststop", "--key", key, "--run-directory", tmp_path)
    assert result.returncode == 1
    assert "argument '--key'" in result.stderr
