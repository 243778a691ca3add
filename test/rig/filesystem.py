"""The node's file systems: its own /usr, /etc, /run and /dev over those of the machine, which stay as they are."""
import os
import pathlib
import shutil
import stat
import subprocess

OVERLAYFS_MAGIC = "overlayfs"


def _mount(*arguments):
    subprocess.run(["mount", *map(str, arguments)], check=True)


def _overlay(target, work):
    upper, scratch = work / "upper", work / "work"
    upper.mkdir(parents=True)
    scratch.mkdir()
    _mount("-t", "overlay", "overlay", "-o", f"lowerdir={target},upperdir={upper},workdir={scratch}", target)


def _device(path, major, minor, mode=0o666):
    os.mknod(path, stat.S_IFCHR | mode, os.makedev(major, minor))
    os.chmod(path, mode)


def _devices(work):
    """A tmpfs for /dev, made beside it and moved onto it, so that terminals in use stay reachable."""
    made = work / "dev"
    made.mkdir()
    _mount("-t", "tmpfs", "-o", "mode=755,nosuid", "tmpfs", made)
    for name, minor in (("null", 3), ("zero", 5), ("full", 7), ("random", 8), ("urandom", 9)):
        _device(made / name, 1, minor)
    _device(made / "tty", 5, 0)
    _device(made / "ptmx", 5, 2)
    for name, target in (("fd", "/proc/self/fd"), ("stdin", "fd/0"), ("stdout", "fd/1"), ("stderr", "fd/2")):
        (made / name).symlink_to(target if "/" in target and target[0] == "/" else "/proc/self/" + target)
    for name in ("pts", "shm", "mqueue"):
        (made / name).mkdir()
    _mount("--bind", "/dev/pts", made / "pts")
    _mount("-t", "tmpfs", "tmpfs", made / "shm")
    _mount("--move", made, "/dev")


def _cgroups():
    """crun refuses a machine with both cgroup versions while the second one offers controllers, and keeps notes in its place."""
    unified = pathlib.Path("/sys/fs/cgroup/unified")
    if unified.is_dir():
        subprocess.run(["umount", str(unified)], check=False, stderr=subprocess.DEVNULL)
        _mount("-t", "tmpfs", "tmpfs", unified)


def set_up():
    work = pathlib.Path(os.environ["VGPU_RIG_WORK"])
    kind = subprocess.run(["stat", "-f", "-c", "%T", str(work)], check=True, capture_output=True, text=True)
    if kind.stdout.strip() == OVERLAYFS_MAGIC:  # cannot hold the upper layer of another overlay
        _mount("-t", "tmpfs", "tmpfs", work)
    _overlay("/usr", work / "usr")
    _overlay("/etc", work / "etc")
    _mount("-t", "tmpfs", "-o", "mode=755,noexec,nosuid,nodev", "tmpfs", "/run")
    _devices(work)
    _cgroups()
    for path in ("/etc/vgpu", "/etc/nvidia-container-runtime", "/etc/cdi"):
        shutil.rmtree(path, ignore_errors=True)
