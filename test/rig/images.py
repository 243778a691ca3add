"""Container images made on the spot, without a registry: docker-archive files from what the machine has."""
import hashlib
import io
import json
import os
import pathlib
import shutil
import subprocess
import tarfile

REPOSITORY = "docker.io/vgpu-rig/"
APPLETS = "sh sleep cat ls env id mount umount stat readlink head grep touch test echo true false kill ps cp mv rm mkdir".split()
LIBRARIES = "libc.so.6 libdl.so.2 libpthread.so.0 libm.so.6 librt.so.1".split()
LIBRARY_DIRECTORY = pathlib.Path("/lib/x86_64-linux-gnu")
LOADER = pathlib.Path("/lib64/ld-linux-x86-64.so.2")
EPOCH = 0


class Layer:
    """One file system layer, built in memory."""

    def __init__(self):
        self._bytes = io.BytesIO()
        self._tar = tarfile.open(fileobj=self._bytes, mode="w", format=tarfile.GNU_FORMAT)

    def _add(self, path, kind, mode, data=b"", target=""):
        info = tarfile.TarInfo(str(path).lstrip("/"))
        info.type, info.mode, info.size, info.linkname, info.mtime = kind, mode, len(data), target, EPOCH
        self._tar.addfile(info, io.BytesIO(data))

    def directory(self, *paths, mode=0o755):
        for path in paths:
            self._add(path, tarfile.DIRTYPE, mode)

    def file(self, path, data, mode=0o644):
        self._add(path, tarfile.REGTYPE, mode, data)

    def link(self, path, target):
        self._add(path, tarfile.SYMTYPE, 0o777, target=target)

    def done(self):
        self._tar.close()
        return self._bytes.getvalue()


def _busybox(layer):
    layer.directory("bin", "etc", "tmp", "root", "dev", "proc", "sys", "run", "var")
    layer.file("bin/busybox", pathlib.Path(shutil.which("busybox")).read_bytes(), 0o755)
    for applet in APPLETS:
        layer.link(f"bin/{applet}", "busybox")
    layer.file("etc/passwd", b"root:x:0:0:root:/root:/bin/sh\nuser:x:1000:1000:user:/tmp:/bin/sh\n")
    layer.file("etc/group", b"root:x:0:\nuser:x:1000:\n")


def _glibc(layer, programs):
    layer.directory("usr", "usr/bin", "usr/lib", "usr/lib/x86_64-linux-gnu", "usr/lib64", "etc/ld.so.conf.d")
    layer.link("lib", "usr/lib")
    layer.link("lib64", "usr/lib64")
    layer.file(f"usr/lib/x86_64-linux-gnu/{LOADER.name}", LOADER.read_bytes(), 0o755)
    layer.link(f"usr/lib64/{LOADER.name}", f"/usr/lib/x86_64-linux-gnu/{LOADER.name}")
    for library in LIBRARIES:
        layer.file(f"usr/lib/x86_64-linux-gnu/{library}", (LIBRARY_DIRECTORY / library).read_bytes(), 0o755)
    layer.file("etc/debian_version", b"12\n")
    layer.file("etc/ld.so.conf", b"include /etc/ld.so.conf.d/*.conf\n")
    layer.file("etc/ld.so.conf.d/x86_64-linux-gnu.conf", b"/lib/x86_64-linux-gnu\n/usr/lib/x86_64-linux-gnu\n")
    for program in programs:
        layer.file(f"usr/bin/{program.name}", program.read_bytes(), 0o755)


def _archive(path, name, layer, config):
    """Writes what `docker save` would write for an image of one layer."""
    with tarfile.open(path, "w") as archive:
        def add(member, data):
            info = tarfile.TarInfo(member)
            info.size, info.mtime = len(data), EPOCH
            archive.addfile(info, io.BytesIO(data))
        image = {"architecture": "amd64", "os": "linux", "config": config,
                 "rootfs": {"type": "layers", "diff_ids": ["sha256:" + hashlib.sha256(layer).hexdigest()]},
                 "history": [{"created": "1970-01-01T00:00:00Z", "created_by": "rig"}]}
        add("config.json", json.dumps(image).encode())
        add("layer/layer.tar", layer)
        add("manifest.json", json.dumps([{"Config": "config.json", "RepoTags": [f"{REPOSITORY}{name}:1"],
                                          "Layers": ["layer/layer.tar"]}]).encode())
    return path


PATH = "PATH=/usr/bin:/bin"
HOSTILE = [PATH, "LD_PRELOAD=image/evil.so", "LD_LIBRARY_PATH=/image", "NVIDIA_VISIBLE_DEVICES=all",
           "NVIDIA_DRIVER_CAPABILITIES=all"]


def client_programs(build):
    """The CUDA clients for containers, as far as they are built."""
    return sorted(path for path in (build / "test" / "programs").glob("cuda_client*")
                  if path.is_file() and os.access(path, os.X_OK))


def full_layer(build):
    """A root file system with glibc, the clients, and the hostile image's library."""
    layer = Layer()
    _busybox(layer)
    _glibc(layer, client_programs(build))
    layer.directory("image")
    layer.file("image/evil.so", (build / "test" / "rig" / "evil.so").read_bytes(), 0o755)
    return layer.done()


def make(directory, build):
    """Writes the images 'pause', 'busybox', 'glibc' and 'hostile'; returns their archives."""
    directory.mkdir(parents=True, exist_ok=True)
    bare = Layer()
    _busybox(bare)
    bare = bare.done()
    full = full_layer(build)
    sleep = ["/bin/sleep", "2147483647"]
    return [
        _archive(directory / "pause.tar", "pause", bare, {"Env": [PATH], "Entrypoint": sleep}),
        _archive(directory / "busybox.tar", "busybox", bare, {"Env": [PATH], "Cmd": sleep}),
        _archive(directory / "glibc.tar", "glibc", full, {"Env": [PATH], "Cmd": sleep}),
        _archive(directory / "hostile.tar", "hostile", full, {"Env": HOSTILE, "Cmd": sleep}),
    ]


def load(archives, socket):
    for archive in archives:
        subprocess.run(["ctr", "--address", socket, "--namespace", "k8s.io", "images", "import", str(archive)],
                       check=True, stdout=subprocess.DEVNULL)


def evil_mark():
    """Where the hostile image's library leaves its mark when something runs it outside of a container."""
    return pathlib.Path("/run/evil-was-here")
