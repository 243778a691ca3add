"""The wrapper and the hook are killed at each of their system calls in turn; after a retry as the engine does it, the node looks
as if nothing had happened.

VGPU_KILL_STRIDE=N tries every N-th point only.
"""
import contextlib
import json
import os
import pathlib
import re
import shutil

import pytest

import node as rig_node
from conftest import require
from test_runtime import gpu_bundle
from wait import wait_until

STRIDE = int(os.environ.get("VGPU_KILL_STRIDE", "1"))
HOOK = pathlib.Path("/usr/libexec/vgpu/vgpu-hook")
UID = "0d7c1f5e-1111-4222-8333-444455556666"


@pytest.fixture(autouse=True)
def tracer():
    if re.search(r"^VGPU_SANITIZE:\w+=.", (rig_node.BUILD / "CMakeCache.txt").read_text(), re.MULTILINE):
        pytest.skip("a sanitizer's system calls are not the product's, and its leak check does not run below strace")
    require("strace", shutil.which("strace") is not None, "needs strace")


def shape(path):
    """What of a file is the same for each container: the state's figures differ, its keys do not."""
    if path.is_dir():
        return ""
    return sorted(json.loads(path.read_text())) if path.parent.name == "state" else path.lstat().st_size


def files():
    """Everything below /run/vgpu: mode and shape."""
    return {str(path): (oct(path.lstat().st_mode), shape(path)) for path in sorted(rig_node.RUN.rglob("*"))}


def mounts(pid):
    """The container's mounts without the numbers that differ from one to the next."""
    lines = pathlib.Path(f"/proc/{pid}/mountinfo").read_text().splitlines()
    return [" ".join(line.split()[3:]) for line in lines]


def nameless(value, made):
    """The same text for each container."""
    text = re.sub(re.escape(made.id), "ID", repr(value))
    return re.sub(r"ID-[0-9a-f]{8}", "ID-HASH", text)


def run_undisturbed(node, model):
    """A whole life; returns what the node looks like while it runs. Nothing may be left after it."""
    made = gpu_bundle(node, pod_uid=UID, shared_with=model)
    try:
        made.create()
        made.start()
        wait_until(lambda: rig_node.container_processes() == ["/bin/sleep 1000"], "start of the container's program")
        seen = nameless((files(), mounts(made.pid())), made)
        made.end()
        return seen
    finally:
        made.remove()


def strace(output, follow, *arguments):
    return [shutil.which("strace"), *(["-f"] if follow else []), "-o", str(output), *arguments]


def killing(point, follow):
    """Kills a traced process at its n-th call of a name, before the call takes effect."""
    name, number = point
    return strace("/dev/null", follow, "-e", f"trace={name}", "-e", f"inject={name}:signal=KILL:when={number}")


def kill_points(trace):
    """Every system call of a trace as (name, n-th of that name in its process), in order, once each, up to the one by which the
    next program takes the traced one's place."""
    counts, points, first, programs = {}, {}, None, 0
    for line in trace.read_text().splitlines():
        found = re.match(r"(?:(\d+) +)?([a-z_0-9]+)\(", line)
        if not found:
            continue  # a signal, an exit, the second half of a call
        process, name = found.groups("")
        first = process if first is None else first
        starts = process == first and name == "execve"
        programs += starts
        if starts and programs == 1:
            continue  # the tracer's own, before there is anything to kill
        counts[process, name] = counts.get((process, name), 0) + 1
        points[name, counts[process, name]] = None
        if starts:
            break
    assert len(points) > 20, f"too few system calls: {list(points)}"
    return list(points)[::STRIDE]


@contextlib.contextmanager
def known_states(each_runtime):
    """A bundle to share; what the node looks like without a container, and with an undisturbed one."""
    model = gpu_bundle(each_runtime, pod_uid=UID)
    run_undisturbed(each_runtime, model)  # the directories that hold all containers' come with the first
    empty = files()
    running = run_undisturbed(each_runtime, model)
    assert files() == empty, "an undisturbed container leaves something"
    try:
        yield model, empty, running
    finally:
        model.remove()


def check(node, before, where):
    model, empty, running = before
    assert run_undisturbed(node, model) == running, f"{where}: the retried container differs"
    assert files() == empty, f"{where}: something is left"
    assert not rig_node.container_processes(), f"{where}: a process is left"


def test_a_create_killed_at_any_system_call_is_made_good_by_a_retry(each_runtime):
    with known_states(each_runtime) as before:
        kill_creates(each_runtime, before)


def kill_creates(node, before):
    trace = node.work / "trace"
    made = gpu_bundle(node, pod_uid=UID, shared_with=before[0])
    made.create(prefix=strace(trace, follow=False))
    made.remove()
    for point in kill_points(trace):
        made = gpu_bundle(node, pod_uid=UID, shared_with=before[0])
        try:
            # not followed into children: the container's own process would be one
            assert made.create(prefix=killing(point, follow=False), check=False) != 0, f"{point} was not reached"
            made.delete(force=True, check=False)
            check(node, before, f"killed at {point}")
        finally:
            made.remove()


def test_a_start_killed_at_any_system_call_is_made_good_by_a_retry(each_runtime):
    with known_states(each_runtime) as before:
        kill_starts(each_runtime, before)


def kill_starts(node, before):
    trace = node.work / "trace"
    made = gpu_bundle(node, pod_uid=UID, shared_with=before[0])
    made.create()
    made.start(prefix=strace(trace, follow=True))
    made.remove()
    for point in kill_points(trace):
        made = gpu_bundle(node, pod_uid=UID, shared_with=before[0])
        try:
            made.create()
            assert made.start(prefix=killing(point, follow=True), check=False) != 0, f"{point} was not reached"
            made.delete(force=True, check=False)
            check(node, before, f"killed at {point}")
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


def test_a_clean_up_hook_killed_at_any_system_call_is_made_good_by_the_engine(each_runtime):
    with known_states(each_runtime) as before:
        kill_hooks(each_runtime, before)


def kill_hooks(node, before):
    with launcher(node.work) as arguments:
        trace = node.work / "trace"
        arguments.write_text(" ".join(strace(trace, True)))
        run_undisturbed(node, before[0])
        for point in kill_points(trace):
            arguments.write_text("")
            made = gpu_bundle(node, pod_uid=UID, shared_with=before[0])
            try:
                made.create()
                made.start()
                made.kill()
                made.wait_for_end()
                arguments.write_text(" ".join(killing(point, True)))
                made.delete(check=False)
                arguments.write_text("")
                made.delete(force=True, check=False)
                check(node, before, f"killed at {point}")
            finally:
                made.remove()
