"""A container's file system without a container: a private mount namespace in which the simulated driver lies where the real one would, with the
limiter in its place, and the host page and usage file as the wrapper makes them. With VGPU_AGAINST=none the limiter is left out."""
import json
import os
import pathlib
import shutil
import signal
import struct
import subprocess
import tempfile
import time

ROOT = pathlib.Path(__file__).resolve().parents[2]
BUILD = pathlib.Path(os.environ.get("VGPU_BUILD", "build/dev")).resolve()
AGAINST_NONE = os.environ.get("VGPU_AGAINST") == "none"
SIMULATED = BUILD / "test/fakes/nvidia"
VERSION = "580.159.04"
MIB = 1 << 20
LIBRARIES = "/usr/lib/x86_64-linux-gnu"

MAX_DEVICES = 16
COPY_SIZE = 48 + MAX_DEVICES * 88
PAGE_SIZE = 64 + 2 * COPY_SIZE
USAGE_SLOTS = 1024
USAGE_SIZE = 64 + MAX_DEVICES * 64 + USAGE_SLOTS * 192
HOLD = 1


def checksum(data):
    value = 0xCBF29CE484222325
    for byte in data:
        value = ((value ^ byte) * 0x100000001B3) & 0xFFFFFFFFFFFFFFFF
    return value


class HostPage:
    """Writer of api/limiter/host.h, in place."""

    def __init__(self, path):
        self.path = path
        self.generation = 0
        self.path.write_bytes(struct.pack("<8sIIQQQ24x", b"VGPUHOST", 1, PAGE_SIZE, 0, 0, 0).ljust(PAGE_SIZE, b"\0"))

    def copy(self, devices):
        data = struct.pack("<QQIIIIII", self.generation, 1, 1, 0, 0, 0, len(devices), 0)
        for device in devices:
            data += struct.pack("<48sQQQIIII", device["uuid"].encode(), device["limit"], device.get("context", 320 * MIB),
                                device.get("observed", 0), device.get("cores", 0), 0x10000, device.get("flags", 0), 0)
        data = data.ljust(COPY_SIZE - 8, b"\0")
        return data + struct.pack("<Q", checksum(data))

    def _put(self, offset, data):
        descriptor = os.open(self.path, os.O_WRONLY)
        os.pwrite(descriptor, data, offset)
        os.close(descriptor)

    def write(self, devices, heartbeat=None, spoil=False):
        self.generation += 1
        index = self.generation & 1
        data = bytearray(self.copy(devices))
        if spoil:
            data[40 + 48] ^= 0xFF
        self._put(64 + index * COPY_SIZE, bytes(data))
        if heartbeat is not None:
            self._put(24, struct.pack("<Q", heartbeat))
        self._put(16, struct.pack("<Q", self.generation << 1 | index))


def boot_time():
    return time.clock_gettime_ns(time.CLOCK_BOOTTIME)


class UsageFile:
    """Reader and maker of api/limiter/usage.h."""

    def __init__(self, path):
        self.path = path
        head = struct.pack("<8sIIII40x", b"VGPUUSED", 1, USAGE_SIZE, USAGE_SLOTS, 192)
        self.path.write_bytes(head.ljust(USAGE_SIZE, b"\0"))
        self.path.chmod(0o666)

    def used(self, device=0):
        return struct.unpack_from("<Q", self.path.read_bytes(), 64 + device * 64)[0]

    def slots(self):
        data = self.path.read_bytes()
        found = []
        for i in range(USAGE_SLOTS):
            offset = 64 + MAX_DEVICES * 64 + i * 192
            state, pid = struct.unpack_from("<II", data, offset)
            if state != 0:
                found.append({"slot": i, "state": state, "pid": pid, "used": struct.unpack_from("<Q", data, offset + 40)[0]})
        return found


SETUP = r"""
set -e
mount --make-rprivate /
mount -t overlay vgpu-test -o lowerdir=/usr,upperdir={work}/upper,workdir={work}/overlay /usr
mount --bind {work}/container /usr/lib/vgpu
mount -o remount,bind,ro /usr/lib/vgpu
mount --bind {work}/container/usage /usr/lib/vgpu/usage
mkdir -p {work}/dev
mount -t tmpfs vgpu-test {work}/dev
for node in null zero full random urandom tty; do cp -a /dev/$node {work}/dev/$node; done
ln -s /proc/self/fd {work}/dev/fd
mkdir -m 1777 {work}/dev/shm
for minor in {minors} 255; do
  name=nvidia$minor; test $minor = 255 && name=nvidiactl
  mknod -m 666 {work}/dev/$name c 195 $minor
done
touch {work}/dev/nvidia-simulator
mount --bind {work}/state {work}/dev/nvidia-simulator
mount --rbind {work}/dev /dev
{substitute}
echo ready
exec sleep infinity
"""

SUBSTITUTE = r"""
mount --bind {libraries}/{file} /usr/lib/vgpu/driver/{kind}.0
mount --bind {ours} {libraries}/{file}
"""


class Box:
    def __init__(self, flavour="driver", limits=None, context_mib=320, against_none=AGAINST_NONE, version=VERSION):
        self.work = pathlib.Path(tempfile.mkdtemp(prefix="vgpu-limiter-", dir=os.environ.get("VGPU_RIG_WORK")))  # goes with the node, if in one
        self.work.chmod(0o755)
        for name in ("upper/lib/vgpu", "upper/lib/x86_64-linux-gnu", "overlay", "container/driver", "shared"):
            (self.work / name).mkdir(parents=True)
        (self.work / "shared").chmod(0o777)
        self.limited = not against_none
        self.children = []
        self.started = None
        try:
            self._set_up(flavour, limits, context_mib, version)
        except BaseException:
            self.stop()
            raise

    def _set_up(self, flavour, limits, context_mib, version):
        self._init_state(context_mib)
        self.ledger_of_node = self.ledger()
        self.cards = self.ledger_of_node["cards"]
        self.page = HostPage(self.work / "container/host")
        self.usage = UsageFile(self.work / "container/usage")
        self.limits = limits if limits is not None else [3000, 5000]
        self.set_limits(*self.limits, context=context_mib * MIB)
        self._install(flavour, version)
        self._start(version)

    def _init_state(self, context_mib):
        scenario = ROOT / "test/fakes/nvidia/scenarios/two-cards.toml"
        self.state = self.work / "state"
        self._sim("init", "--scenario", str(scenario), str(self.state))
        self._sim("set", "context_mib", str(context_mib), str(self.state))
        self.state.chmod(0o666)

    def _sim(self, *arguments):
        return subprocess.run([str(SIMULATED / "nvidia-sim"), *arguments], check=True, capture_output=True, text=True).stdout

    def ledger(self):
        return json.loads(self._sim("ledger", "--json", str(self.state)))

    def set_limits(self, *mebibytes, heartbeat=None, spoil=False, **extra):
        devices = [{"uuid": card["uuid"], "limit": limit * MIB, "context": 320 * MIB, **extra}
                   for card, limit in zip(self.cards, mebibytes)]
        self.page.write(devices, heartbeat, spoil)

    def _install(self, flavour, version):
        target = self.work / "upper/lib/x86_64-linux-gnu"
        for base, source in (("libcuda", flavour), ("libnvidia-ml", "driver")):
            file = f"{base}.so.{version if base == 'libcuda' else VERSION}"
            shutil.copy(SIMULATED / source / file, target / file)
            (target / f"{base}.so.1").symlink_to(file)
            (target / f"{base}.so").symlink_to(f"{base}.so.1")
        programs = self.work / "upper/bin"
        programs.mkdir()
        for program in ("cuda_client", "cuda_client_linked"):
            shutil.copy(BUILD / "test/programs" / program, programs / program)
        shutil.copy(BUILD / "test/programs/cuda_client", programs / "cuda_client_setuid")
        os.chmod(programs / "cuda_client_setuid", 0o4755)
        for kind in ("cuda", "nvml"):
            for n in range(8):
                (self.work / f"container/driver/{kind}.{n}").touch()

    def _start(self, version):
        substitute = ""
        if self.limited:
            for kind, file in (("cuda", f"libcuda.so.{version}"), ("nvml", f"libnvidia-ml.so.{VERSION}")):
                ours = self.work / f"libvgpu-{kind}.0.so"
                shutil.copy(BUILD / f"limiter/libvgpu-{kind}.0.so", ours)
                substitute += SUBSTITUTE.format(libraries=LIBRARIES, file=file, kind=kind, ours=ours)
        minors = " ".join(str(card["minor"]) for card in self.cards)
        script = SETUP.format(work=self.work, minors=minors, substitute=substitute)
        self.started = subprocess.Popen(["unshare", "-m", "sh", "-c", script], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        if self.started.stdout.readline() != "ready\n":
            raise RuntimeError(f"set-up failed: {self.started.stderr.read()}")

    def command(self, *arguments, program="cuda_client", before=()):
        return ["nsenter", "-t", str(self.started.pid), "-m", *before, f"/usr/bin/{program}", *arguments]

    def start(self, *arguments, program="cuda_client", before=(), **options):
        child = subprocess.Popen(self.command(*arguments, program=program, before=before), stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                                 text=True, **options)
        self.children.append(child)
        return child

    def run(self, *arguments, program="cuda_client", before=(), **options):
        """The JSON lines that the client printed; what it wrote to stderr is in .said."""
        child = self.start(*arguments, program=program, before=before, **options)
        out, self.said = child.communicate(timeout=120)
        self.status = child.returncode
        return [json.loads(line) for line in out.splitlines()]

    def shared(self, name):
        return self.work / "shared" / name

    def wait_for(self, name):
        while not self.shared(name).exists():
            for child in self.children:
                if child.poll() not in (None, 0):
                    raise RuntimeError(f"a client ended: {child.communicate()}")
            time.sleep(0.002)

    def stop(self):
        for child in self.children:
            if child.poll() is None:
                child.kill()
            child.wait()
            for stream in (child.stdout, child.stderr):
                stream.close()
        if self.started is not None:
            self.started.send_signal(signal.SIGKILL)
            self.started.wait()
        shutil.rmtree(self.work, ignore_errors=True)
