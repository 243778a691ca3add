#!/usr/bin/python3
"""Runs a command on a node of its own: private mount and pid namespaces, private /usr, /etc, /run and /dev.

    enter.py --build BUILD [--keep] -- COMMAND...

Everything lives and dies with one process: when it ends, by itself, by Ctrl-C or by a kill, the kernel ends every process
of the node and drops every mount; what the kernel does not remove (control groups, the work directory) is removed here.
"""
import argparse
import ctypes
import os
import pathlib
import secrets
import shutil
import signal
import subprocess
import sys
import tempfile
import time

HERE = pathlib.Path(__file__).resolve().parent
PR_SET_PDEATHSIG = 1


def die_with_parent():
    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)


def remove_cgroups(name):
    """Removes the node's control groups; their last processes may still be on their way out."""
    roots = [pathlib.Path("/sys/fs/cgroup"), *pathlib.Path("/sys/fs/cgroup").glob("*")]
    deadline = time.monotonic() + 20
    for top in (root / name for root in roots):
        while top.is_dir() and time.monotonic() < deadline:
            for directory, _, _ in os.walk(top, topdown=False):
                try:
                    os.rmdir(directory)
                except OSError:
                    pass
            if top.is_dir():
                time.sleep(0.02)
        if top.is_dir():
            print(f"rig: control group '{top}' could not be removed: it still has processes", file=sys.stderr)


class Rig:
    """One node: its work directory, its control group and the process everything hangs on."""

    def __init__(self, build, command):
        self.work = pathlib.Path(tempfile.mkdtemp(prefix="vgpu-rig-", dir="/var/tmp"))
        self.work.chmod(0o711)  # tests run programs as other users
        self.cgroup = "vgpu-rig-" + secrets.token_hex(4)
        environment = dict(os.environ, VGPU_BUILD=str(pathlib.Path(build).resolve()),
                           VGPU_RIG_WORK=str(self.work), VGPU_RIG_CGROUP="/" + self.cgroup,
                           PYTHONDONTWRITEBYTECODE="1")
        self.process = subprocess.Popen(
            ["unshare", "--mount", "--pid", "--fork", "--kill-child", "--mount-proc",
             "/usr/bin/python3", str(HERE / "init.py"), *command],
            env=environment, start_new_session=True, preexec_fn=die_with_parent,
            pass_fds=[int(environment["VGPU_RIG_STATUS_FD"])] if "VGPU_RIG_STATUS_FD" in environment else [])

    def wait(self):
        return self.process.wait()

    def end(self):
        self.process.kill()
        self.process.wait()
        remove_cgroups(self.cgroup)
        shutil.rmtree(self.work, ignore_errors=True)


SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


def end_on_signal(number, _):
    for each in SIGNALS:  # what follows is the clean-up, and it is short
        signal.signal(each, signal.SIG_IGN)
    raise SystemExit(128 + number)


def run(build, command):
    """A rig's whole life. Leaves nothing, however it ends. Returns the command's exit status."""
    for number in SIGNALS:
        signal.signal(number, end_on_signal)
    rig = None
    try:
        rig = Rig(build, command)
        if "VGPU_RIG_STATUS_FD" in os.environ:  # the command holds it now: its end without a word ends the wait for it
            os.close(int(os.environ["VGPU_RIG_STATUS_FD"]))
        return rig.wait()
    finally:
        for number in SIGNALS:
            signal.signal(number, signal.SIG_IGN)
        if rig is not None:
            rig.end()


def run_in_background(build, command):
    """The rig outlives this process. Returns once the command in it has written its exit status to VGPU_RIG_STATUS_FD."""
    reader, writer = os.pipe()
    keeper = os.fork()
    if keeper == 0:
        os.close(reader)
        os.setsid()
        os.environ["VGPU_RIG_STATUS_FD"] = str(writer)
        try:
            status = run(build, command)
        except SystemExit as ended:
            status = ended.code
        os._exit(status)
    os.close(writer)
    try:
        said = os.read(reader, 16)
    except KeyboardInterrupt:
        os.kill(keeper, signal.SIGTERM)
        os.waitpid(keeper, 0)
        return 130
    if not said:
        return 1
    print_handles(keeper)
    return int(said)


def only_child(pid):
    return int(pathlib.Path(f"/proc/{pid}/task/{pid}/children").read_text().split()[0])


def print_handles(keeper):
    first = only_child(only_child(keeper))
    print(f"""
The node is left running.
  enter it:  nsenter --target {first} --mount --pid
  end it:    kill {keeper}""", flush=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--build", required=True, help="build directory of the product")
    parser.add_argument("--keep", action="store_true", help="leave the node running")
    parser.add_argument("command", nargs="+")
    options = parser.parse_args()
    if os.geteuid() != 0:
        sys.exit("rig: a node needs mounts and namespaces; run this as root")
    if not options.keep:
        return run(options.build, options.command)
    return run_in_background(options.build, options.command)


if __name__ == "__main__":
    sys.exit(main())
