"""What a container leaves on the node when it ends, however it ends: nothing."""
import os
import pathlib
import signal

import allocation
import node as rig_node
from wait import wait_until

CLIENT = "/usr/bin/cuda_client"


def gpu_pod(node, *names):
    return node.pod("train", {name: allocation.container(allocation.gpu(node.cards[0], 3000)) for name in names or ["main"]})


def traces():
    """Everything of a container that a node could keep: our files, mounts, processes, control groups."""
    ours = [str(path) for part in ("containers", "state") for path in (rig_node.RUN / part).rglob("*")]
    mounts = [line.split()[4] for line in pathlib.Path("/proc/self/mountinfo").read_text().splitlines()]
    top = os.environ["VGPU_RIG_CGROUP"]
    groups = [str(path) for root in pathlib.Path("/sys/fs/cgroup").glob("*") for path in pathlib.Path(f"{root}{top}").rglob("pod*/*")
              if path.is_dir()]
    return sorted(ours + mounts + groups) + rig_node.container_processes()


def total(container):
    return [line["total"] for line in container.run(CLIENT, "total").lines if line["op"] == "total"]


def test_a_container_has_a_directory_of_its_own_until_it_is_deleted_and_then_nothing_is_left(rig):
    before = traces()
    gpu_pod(rig).start("main").run(CLIENT, "ctx", "alloc=100M")
    assert len(list((rig_node.RUN / "containers").iterdir())) == 1
    assert len(list((rig_node.RUN / "state").iterdir())) == 1
    rig.remove_pods()
    wait_until(lambda: traces() == before, f"only {before} of {traces()}")


def test_a_refused_container_leaves_nothing(each_runtime):
    before = traces()
    pod = each_runtime.pod("train", annotations={"vgpu.io/allocation": "{}", "vgpu.io/signature": "x.y"})
    try:
        pod.start("main")
    except rig_node.CallFailed:
        pass
    else:
        raise AssertionError("a container with a bad allocation started")
    pod.remove()
    wait_until(lambda: traces() == before, f"only {before}")


def test_a_container_whose_program_died_is_restarted_with_its_limit(rig):
    pod = gpu_pod(rig)
    first = pod.start("main")
    os.kill(first.pid(), signal.SIGKILL)
    first.wait_for_exit()
    assert total(pod.start("main")) == [3000 << 20]
    first.remove()
    assert len(list((rig_node.RUN / "containers").iterdir())) == 1


def shim_of(pod):
    for entry in pathlib.Path("/proc").glob("[0-9]*"):
        try:
            words = (entry / "cmdline").read_bytes().split(b"\0")
        except OSError:
            continue
        if words[0].endswith(b"containerd-shim-runc-v2") and pod.id.encode() in words:
            return int(entry.name)
    raise AssertionError(f"pod '{pod.name}' has no shim")


def test_after_the_shim_was_killed_nothing_is_left(rig):
    before = traces()
    pod = gpu_pod(rig)
    main = pod.start("main")
    assert total(main) == [3000 << 20]
    os.kill(shim_of(pod), signal.SIGKILL)
    main.wait_for_exit()
    pod.remove()
    wait_until(lambda: traces() == before, f"only {before}")


def test_a_pod_outlives_a_restart_of_the_engine(each_runtime):
    main = gpu_pod(each_runtime).start("main")
    each_runtime.engine.restart()
    assert total(main) == [3000 << 20]
