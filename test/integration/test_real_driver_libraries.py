"""NVIDIA's own libraries, from Debian's non-free packages, on a machine without a GPU: they load, and answer behind the limiter as they do
alone. The packages are fetched into the build directory and never shipped."""
import json
import os
import pathlib
import re
import shutil
import subprocess
import sys

import pytest

from conftest import ROOT, require

BUILD = pathlib.Path(os.environ.get("VGPU_BUILD", ROOT / "build" / "dev")).resolve()
AGAINST_NONE = os.environ.get("VGPU_AGAINST") == "none"
PACKAGES = ("libcuda1", "libnvidia-ml1")
LIBRARIES = pathlib.Path("/usr/lib/x86_64-linux-gnu")
CUDA_ERROR_NO_DEVICE = 100
NVML_ERROR_DRIVER_NOT_LOADED = 9

# Prints what the two libraries answer. Run as another process: a driver stays loaded.
PROBE = """
import ctypes, json, os, sys

class Found(ctypes.Structure):
    _fields_ = [("file", ctypes.c_char_p), ("base", ctypes.c_void_p), ("name", ctypes.c_char_p), ("address", ctypes.c_void_p)]

def inode(library, symbol):
    found = Found()
    address = ctypes.cast(getattr(library, symbol), ctypes.c_void_p)
    assert ctypes.CDLL(None).dladdr(address, ctypes.byref(found))
    return os.stat(found.file).st_ino

cuda = ctypes.CDLL("libcuda.so.1")
nvml = ctypes.CDLL("libnvidia-ml.so.1")
nvml.nvmlErrorString.restype = ctypes.c_char_p
version = ctypes.c_int()
count = ctypes.c_uint()
size = ctypes.c_size_t()
pointer = ctypes.c_void_p()
looked_up = {}
for name, since in (("cuInit", 2000), ("cuMemAlloc", 3020), ("cuMemGetInfo", 3020), ("cuNoSuchFunction", 12000), ("cuTexRefCreate", 2000)):
    status = ctypes.c_int(-1)
    result = cuda.cuGetProcAddress_v2(name.encode(), ctypes.byref(pointer), since, ctypes.c_uint64(0), ctypes.byref(status))
    looked_up[name] = [result, status.value, pointer.value is not None]
print(json.dumps({
    "answers": {
        "before cuInit": cuda.cuDeviceGetCount(ctypes.byref(version)),
        "cuInit": cuda.cuInit(0),
        "cuDriverGetVersion": [cuda.cuDriverGetVersion(ctypes.byref(version)), version.value],
        "cuDeviceTotalMem_v2": cuda.cuDeviceTotalMem_v2(ctypes.byref(size), 0),
        "cuMemGetInfo_v2": cuda.cuMemGetInfo_v2(ctypes.byref(size), ctypes.byref(size)),
        "cuMemAlloc_v2": cuda.cuMemAlloc_v2(ctypes.byref(pointer), ctypes.c_size_t(1 << 20)),
        "cuMemFree_v2": cuda.cuMemFree_v2(ctypes.c_uint64(0x1000)),
        "cuGetProcAddress_v2": looked_up,
        "nvmlInit_v2": nvml.nvmlInit_v2(),
        "nvmlInit": nvml.nvmlInit(),
        "nvmlErrorString": nvml.nvmlErrorString(9).decode(),
        "nvmlDeviceGetCount_v2": nvml.nvmlDeviceGetCount_v2(ctypes.byref(count)),
        "nvmlShutdown": nvml.nvmlShutdown(),
    },
    "inodes": {"cuMemAlloc_v2": inode(cuda, "cuMemAlloc_v2"), "cuTexRefCreate": inode(cuda, "cuTexRefCreate"),
               "nvmlDeviceGetMemoryInfo": inode(nvml, "nvmlDeviceGetMemoryInfo"), "nvmlErrorString": inode(nvml, "nvmlErrorString")},
}))
"""

# The limiter in the driver's place, as `start` leaves it: the real file in its slot, ours bound over its name.
SETUP = r"""
set -e
mount --make-rprivate /
mount -t overlay vgpu-test -o lowerdir=/usr,upperdir={work}/upper,workdir={work}/overlay /usr
{substitute}
exec {python} -c "$PROBE"
"""
SUBSTITUTE = r"""
mount --bind {libraries}/{file} /usr/lib/vgpu/driver/{kind}.0
mount --bind {ours} {libraries}/{file}
"""


def _components(text, component, suites):
    """The stanzas or lines of an apt source that serve the distribution's own suites, with another component."""
    if "Types:" in text:
        chosen = [stanza for stanza in re.split(r"\n\s*\n", text)
                  if (line := re.search(r"^Suites:(.*)$", stanza, re.M)) and all(suites(s) for s in line.group(1).split())]
        return "\n\n".join(re.sub(r"^Components:.*$", f"Components: {component}", stanza, flags=re.M) for stanza in chosen)
    found = [re.match(r"deb\s+(\[.*?\]\s+)?(\S+)\s+(\S+)\s", line) for line in text.splitlines()]
    return "\n".join(f"deb {m.group(1) or ''}{m.group(2)} {m.group(3)} {component}" for m in found if m and suites(m.group(3)))


def _write_sources(directory):
    """The machine's own Debian sources with component non-free, for one apt command; the machine's sources stay as they are."""
    codename = re.search(r"^VERSION_CODENAME=(\S+)", pathlib.Path("/etc/os-release").read_text(), re.M).group(1)
    lists = [pathlib.Path("/etc/apt/sources.list"), *sorted(pathlib.Path("/etc/apt/sources.list.d").glob("*"))]
    parts = directory / "sources"
    parts.mkdir(exist_ok=True)
    for number, source in enumerate(path for path in lists if path.suffix in (".list", ".sources") and path.exists()):
        text = _components(source.read_text(), "non-free", lambda suite: suite == codename or suite.startswith(codename + "-"))
        (parts / f"{number}{source.suffix}").write_text(text + "\n")
    return parts


def fetch(directory):
    """The directory with the real libraries, fetched once; None and the reason where they cannot be had."""
    tree = directory / "tree"
    libraries = tree / LIBRARIES.relative_to("/")
    if all(list(libraries.glob(f"{base}.so.[0-9]*.*")) for base in ("nvidia/current/libcuda", "nvidia/current/libnvidia-ml")):
        return libraries / "nvidia/current", ""
    if shutil.which("apt-get") is None:
        return None, "no apt-get"
    for name in ("lists/partial", "cache/archives/partial"):
        (directory / name).mkdir(parents=True, exist_ok=True)
    options = []
    for key, value in (("Dir::Etc::sourcelist", "/dev/null"), ("Dir::Etc::sourceparts", _write_sources(directory)),
                       ("Dir::State::lists", directory / "lists"), ("Dir::Cache", directory / "cache"),
                       ("APT::Sandbox::User", "root"), ("Acquire::Retries", "1")):
        options += ["-o", f"{key}={value}"]
    for command in (["apt-get", "-qq", *options, "update"], ["apt-get", "-qq", *options, "download", *PACKAGES]):
        done = subprocess.run(command, cwd=directory, capture_output=True, text=True, check=False, timeout=300)
        if done.returncode != 0:
            return None, (done.stderr or done.stdout).strip().splitlines()[-1]
    for package in directory.glob("*.deb"):
        subprocess.run(["dpkg", "-x", str(package), str(tree)], check=True)
    return libraries / "nvidia/current", ""


@pytest.fixture(name="real", scope="module")
def real_fixture():
    """The two real libraries: their files by kind."""
    directory, reason = fetch(BUILD / "test" / "nonfree")
    require("nonfree", directory is not None, f"needs Debian's non-free packages {', '.join(PACKAGES)}: {reason}")
    return {"cuda": next(directory.glob("libcuda.so.[0-9]*.*")), "nvml": next(directory.glob("libnvidia-ml.so.[0-9]*.*"))}


def link_names(real, directory):
    """The names under which programs look for the two libraries."""
    directory.mkdir(parents=True, exist_ok=True)
    for file in real.values():
        shutil.copy(file, directory / file.name)
        (directory / f"{file.name.split('.so')[0]}.so.1").symlink_to(file.name)


def read(done):
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


@pytest.fixture(name="alone")
def alone_fixture(real, tmp_path):
    link_names(real, tmp_path / "alone")
    environment = {**os.environ, "LD_LIBRARY_PATH": str(tmp_path / "alone")}
    return read(subprocess.run([sys.executable, "-c", PROBE], env=environment, capture_output=True, text=True, check=False))


def test_the_real_libraries_say_that_there_is_no_gpu(alone):
    require("no gpu", not pathlib.Path("/proc/driver/nvidia").exists(), "this machine has an NVIDIA driver")
    assert alone["answers"]["cuInit"] == CUDA_ERROR_NO_DEVICE
    assert alone["answers"]["nvmlInit_v2"] == NVML_ERROR_DRIVER_NOT_LOADED


def test_behind_the_limiter_the_real_libraries_answer_as_they_do_alone(alone, real, tmp_path):
    require("root", os.geteuid() == 0, "needs root: a mount namespace")
    ours = {kind: BUILD / "limiter" / f"libvgpu-{kind}.0.so" for kind in real}
    if not AGAINST_NONE:
        assert all(path.exists() for path in ours.values()), f"build the limiter first: {ours['cuda']}"
    import limiter_rig
    upper = tmp_path / "upper"
    private = upper / "lib" / "vgpu"
    (private / "driver").mkdir(parents=True)
    (tmp_path / "overlay").mkdir()
    link_names(real, upper / "lib" / LIBRARIES.name)
    for kind in real:
        (private / "driver" / f"{kind}.0").touch()
    limiter_rig.HostPage(private / "host").write([])
    limiter_rig.UsageFile(private / "usage")
    substitute = "" if AGAINST_NONE else "".join(
        SUBSTITUTE.format(libraries=LIBRARIES, file=real[kind].name, kind=kind, ours=ours[kind]) for kind in real)
    script = SETUP.format(work=tmp_path, substitute=substitute, python=sys.executable)
    behind = read(subprocess.run(["unshare", "-m", "sh", "-c", script], env={**os.environ, "PROBE": PROBE}, capture_output=True, text=True,
                                 check=False))
    assert behind["inodes"]["cuMemAlloc_v2"] == ours["cuda"].stat().st_ino, "the limiter is not in the driver's place"
    assert behind["inodes"]["nvmlDeviceGetMemoryInfo"] == ours["nvml"].stat().st_ino
    assert behind["inodes"]["cuTexRefCreate"] != ours["cuda"].stat().st_ino
    assert behind["answers"] == alone["answers"]
