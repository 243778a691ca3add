"""The wrapper and the hook are killed at each of their system calls in turn; after a retry as the engine does it, the node looks
as if nothing had happened.

VGPU_KILL_STRIDE=N tries every N-th point only.
"""
import contextlib
import os
import pathlib
import re
import shutil

import pytest

import node as rig_node
from conftest import require
from test_runtime import gpu_bundle

STRIDE = int(os.environ.get("VGPU_KILL_STRIDE", "1"))
HOOK = pathlib.Path("/usr/libexec/vgpu/vgpu-hook")
KILLED = -9
UID = "0d7c1f5e-1111-4222-8333-444455556666"


@pytest.fixture(autouse=True)
def tracer():
    require("strace", shutil.which("strace") is not None, "needs strace")


def files():
    """Everything below /run/vgpu: kind, mode, size."""
    found = {}
    for path in sorted(rig_node.RUN.rglob("*")):
        status = path.lstat()
        found[str(path)] = (oct(status.st_mode), 0 if path.is_dir() else status.st_size)
    return found


def processes(made):
    return sorted(name for name in rig_node.container_processes() if name)


def mounts(pid):
    """The container's mounts without the numbers that differ from one to the next."""
    lines = pathlib.Path(f"/proc/{pid}/mountinfo").read_text().splitlines()
    return [" ".join(line.split()[3:]) for line in lines]


def nameless(value, made):
    """The same text for each container."""
    text = re.sub(re.escape(made.id), "ID", repr(value))
    return re.sub(r"ID-[0-9a-f]{8}", "ID-HASH", text)


def run_undisturbed(node):
    """A whole life; returns what the node looks like while it runs. Nothing may be left after it."""
    made = gpu_bundle(node, pod_uid=UID)
    try:
        made.create()
        made.start()
        seen = nameless((files(), mounts(made.pid()), processes(made)), made)
        made.kill()
        made.delete(force=True)
        return seen
    finally:
        made.remove()


def system_calls(made, action, follow):
    """How many system calls one process of an undisturbed call makes at most, before the next program takes its place."""
    trace = made.path / "trace"
    action(prefix=["strace", *(["-f"] if follow else []), "-o", str(trace)])
    counts, first, programs = {}, None, 0
    for line in trace.read_text().splitlines():
        pid, call = line.split(None, 1) if follow else ("", line)
        if not re.match(r"[a-z_0-9]+\(", call):
            continue  # a signal, an exit, the second half of a call
        first = pid if first is None else first
        programs += pid == first and call.startswith("execve(")
        counts[pid] = counts.get(pid, 0) + 1
        if programs == 2:
            break
    return max(counts.values())


def injecting(number, follow=True):
    return ["strace", *(["-f"] if follow else []), "-o", "/dev/null", "-e", f"inject=all:signal=KILL:when={number}"]


def points(count):
    return range(1, count + 1, STRIDE)


@pytest.fixture
def before(each_runtime):
    """What the node looks like without a container, and with an undisturbed one."""
    empty = files()
    running = run_undisturbed(each_runtime)
    assert files() == empty, "an undisturbed container leaves something"
    return empty, running


def check(node, before, number):
    empty, running = before
    assert run_undisturbed(node) == running, f"kill point {number}: the retried container differs"
    assert files() == empty, f"kill point {number}: something is left"
    assert not node_processes(), f"kill point {number}: a process is left"


def node_processes():
    return rig_node.container_processes()


def test_a_create_killed_at_any_system_call_is_made_good_by_a_retry(each_runtime, before):
    made = gpu_bundle(each_runtime, pod_uid=UID)
    count = system_calls(made, made.create, follow=False)
    made.remove()
    for number in points(count):
        made = gpu_bundle(each_runtime, pod_uid=UID)
        try:
            assert made.create(prefix=injecting(number, follow=False), check=False) == KILLED, f"kill point {number} of {count} was not reached"
            made.delete(force=True, check=False)
            check(each_runtime, before, number)
        finally:
            made.remove()


def test_a_start_killed_at_any_system_call_is_made_good_by_a_retry(each_runtime, before):
    made = gpu_bundle(each_runtime, pod_uid=UID)
    made.create()
    count = system_calls(made, made.start, follow=True)
    made.remove()
    for number in points(count):
        made = gpu_bundle(each_runtime, pod_uid=UID)
        try:
            made.create()
            assert made.start(prefix=injecting(number), check=False) != 0, f"kill point {number} of {count} was not reached"
            made.delete(force=True, check=False)
            check(each_runtime, before, number)
        finally:
            made.remove()


@contextlib.contextmanager
def launcher(work):
    """Puts a program in the hook's place that runs the hook under the arguments in a file, if there are any."""
    real = HOOK.with_name("vgpu-hook.real")
    arguments = work / "hook-launcher"
    arguments.write_text("")
    HOOK.rename(real)
    HOOK.write_text(f'#!/bin/busybox sh\nexec $(/bin/busybox cat {arguments}) {real} "$@"\n')
    HOOK.chmod(0o755)
    try:
        yield arguments
    finally:
        HOOK.unlink()
        real.rename(HOOK)


def test_a_clean_up_hook_killed_at_any_system_call_is_made_good_by_the_engine(each_runtime, before):
    strace = shutil.which("strace")
    with launcher(each_runtime.work) as arguments:
        trace = each_runtime.work / "hook-trace"
        arguments.write_text(f"{strace} -f -o {trace}")
        run_undisturbed(each_runtime)
        count = sum(bool(re.match(r"\d+ +[a-z_0-9]+\(", line)) for line in trace.read_text().splitlines())
        assert count > 5, "the hook did not run"
        for number in points(count):
            made = gpu_bundle(each_runtime, pod_uid=UID)
            try:
                arguments.write_text("")
                made.create()
                made.start()
                made.kill()
                arguments.write_text(" ".join([strace, *injecting(number)[1:]]))
                made.delete(force=True, check=False)
                arguments.write_text("")
                made.delete(force=True, check=False)
                check(each_runtime, before, number)
            finally:
                made.remove()


