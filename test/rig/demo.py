"""The demo: what a limited container sees, on a node with two simulated cards. Run by scripts/demo inside enter.py."""
import argparse
import concurrent.futures
import os
import shutil
import signal
import sys
import time
import uuid

import allocation
import engine
import install
from checks import Amount, Checks, at_most, text_with
from cri import CallFailed
from node import NODE_NAME, RUN, Node, container_processes
from wait import wait_until

CLIENT = "/usr/bin/cuda_client"
LIBRARY = f"{install.LIBRARIES}/libcuda.so.{install.DRIVER_VERSION}"
MIB = 1 << 20
GRANTED, OUT_OF_MEMORY = "granted", "CUDA_ERROR_OUT_OF_MEMORY"
CODES = {0: GRANTED, 2: OUT_OF_MEMORY}


def share(node, memory, card=0):
    return {"main": allocation.container(allocation.gpu(node.cards[card], memory))}


def value(container, name, key, *operations, before=()):
    """One figure of the client's answer, in a process of its own."""
    outcome = container.run(*before, CLIENT, *operations)
    for line in outcome.lines:
        if line["op"] == name:
            return line[key]
    return f"exit status {outcome.status}: {outcome.out}{outcome.err}"


def mib(figure):
    return f"{figure // MIB} MiB" if isinstance(figure, int) else figure


def asked(container, amount, before=(), opening="open=soname"):
    """What a fresh process with a context gets that asks for so many MiB."""
    return CODES.get(value(container, "alloc", "rc", opening, "ctx", f"alloc={amount}M", before=before), "another answer")


def refusal(start):
    try:
        start()
    except CallFailed as refused:
        return str(refused).splitlines()[0]
    return "the container started"


def leftovers():
    found = [str(path) for part in ("containers", "state") for path in (RUN / part).glob("*")]
    with open("/proc/self/mountinfo", encoding="utf-8") as mounts:
        found += [line.split()[4] for line in mounts if "/k8s.io/" in line or "/sandboxes/" in line]
    return found + container_processes()


def shared_card(checks, node, small, large):
    checks.section("two pods share a card: 3000 MiB and 5000 MiB")
    for name, main, size in (("small", small, 3000), ("large", large, 5000)):
        checks.check(f"pod '{name}': its card's size through CUDA", f"{size} MiB",
                     lambda main=main: mib(value(main, "total", "total", "total")))
        checks.check(f"pod '{name}': its card's size through NVML", f"{size} MiB",
                     lambda main=main: mib(value(main, "nvml", "total", "nvml")))
    checks.check("pod 'small': with its context (320 MiB) up, 2700 MiB more", OUT_OF_MEMORY, lambda: asked(small, 2700))
    small = restarted(small)
    checks.check("pod 'small': with its context (320 MiB) up, 2600 MiB more", GRANTED, lambda: asked(small, 2600))
    small = restarted(small)
    node.simulator.settle()
    checks.check("pod 'small': eight processes race for memory; most they held at once, by the simulator's own ledger",
                 at_most(3000 * MIB, 2900 * MIB),
                 lambda: (small.run(CLIENT, "race=8,16M"), Amount(node.held_bytes(small, 0, peak=True)))[1])


def restarted(container):
    """The same container anew, with an empty ledger: what a process held stays charged a while after its end."""
    container.remove()
    return container.pod.start(container.name)


def ways_round(checks, node, pod):
    checks.section("ways round it")
    ways = [("env -i", ("env", "-i"), "open=soname"),
            ("dlopen of the driver by absolute path", (), f"open=absolute:{LIBRARY}"),
            ("LD_LIBRARY_PATH on the driver's directory", ("env", f"LD_LIBRARY_PATH={install.LIBRARIES}"), "open=soname"),
            ("LD_LIBRARY_PATH on our own directory", ("env", "LD_LIBRARY_PATH=/usr/lib/vgpu:/usr/lib/vgpu/driver"), "open=soname"),
            ("dlopen with RTLD_DEEPBIND", (), "open=deepbind"),
            ("dlmopen into a new namespace", (), "open=dlmopen")]
    with concurrent.futures.ThreadPoolExecutor() as pool:  # a container each: one ledger must not help the other
        uids = [str(uuid.uuid4()) for _ in ways]
        containers = list(pool.map(lambda uid: node.pod("way", share(node, 3000, card=1), uid=uid).start(), uids))
    for (name, before, opening), container in zip(ways, containers):
        checks.check(f"{name}: 2700 MiB", OUT_OF_MEMORY,
                     lambda before=before, opening=opening, container=container: asked(container, 2700, before, opening))
    checks.check("an exec into the running container sees the same card", "3000 MiB",
                 lambda: mib(value(pod.containers[-1], "total", "total", "total")))


def refusals(checks, node):
    checks.section("allocations that do not count")

    def pod_with(annotations, uid):
        return refusal(lambda: node.pod("train", share(node, 3000), annotations=annotations, uid=uid).start())

    def signed(uid, **more):
        return allocation.annotations(node.signer, node.allocation(uid, share(node, 3000), **more))

    first, second, third, fourth, fifth, sixth = (str(uuid.uuid4()) for _ in range(6))
    forged = allocation.annotations(allocation.Signer(), node.allocation(first, share(node, 3000)))
    checks.check("signed by a key the node does not trust", text_with("default/train", "trust"), lambda: pod_with(forged, first))
    edited = signed(second)
    edited["vgpu.io/allocation"] = edited["vgpu.io/allocation"].replace("3000", "24000")
    checks.check("edited after it was signed", text_with("default/train", "changed after"), lambda: pod_with(edited, second))
    checks.check("another pod's", text_with("default/train", fourth), lambda: pod_with(signed(fourth), third))
    checks.check("another node's", text_with("default/train", "elsewhere", NODE_NAME),
                 lambda: pod_with(signed(sixth, node="elsewhere"), sixth))
    newer = node.allocation(fifth, share(node, 3000), generation=8)
    node.record(fifth, newer, node.signer.sign(newer), generation=8)
    checks.check("of an older generation than this node has seen", text_with("default/train", "generation"),
                 lambda: pod_with(signed(fifth, generation=7), fifth))


def without_a_gpu(checks, node):
    checks.section("a pod without a GPU")
    before = len(install.nvidia_invocations())
    main = node.pod("web").start(image="busybox")
    checks.check("its config.json, compared with what containerd wrote", "byte for byte the same",
                 lambda: "byte for byte the same" if main.spec_bytes() == engine.stored_spec(main.id) else "changed")
    checks.check("devices of NVIDIA in it", "none",
                 lambda: "some" if "nvidia" in main.run("/bin/ls", "/dev").out else "none")
    main.pod.remove()
    checks.check("NVIDIA's runtime was started for it", "0 times", lambda: f"{len(install.nvidia_invocations()) - before} times")


def clean_up(checks, node):
    checks.section("after deletion")
    node.remove_pods()

    def left():
        try:
            wait_until(lambda: not leftovers(), "end of the last process", seconds=10)
        except Exception:  # pylint: disable=broad-except  # what is left is said below
            return "; ".join(leftovers())
        return "nothing"

    checks.check("mounts, files and processes of the pods", "nothing", left)


def show(checks, node, runtime):
    print(f"\n==== containerd {node.engine.version} with {runtime}", flush=True)
    node.use(runtime, "legacy")
    with concurrent.futures.ThreadPoolExecutor() as pool:
        small, large = pool.map(lambda pod: node.pod(pod[0], share(node, pod[1])).start(), [("small", 3000), ("large", 5000)])
    pod = small.pod
    shared_card(checks, node, small, large)
    ways_round(checks, node, pod)
    refusals(checks, node)
    without_a_gpu(checks, node)


def report_to_keeper(status):
    """Tells the waiting script how it went; the node stays. Its own output ends here."""
    print(f"""
In the node:
  ctr --address {engine.SOCKET} --namespace k8s.io containers list
  ctr --address {engine.SOCKET} --namespace k8s.io tasks exec --exec-id me CONTAINER {CLIENT} total nvml
  nvidia-sim ledger {install.SIMULATOR}""", flush=True)
    writer = int(os.environ["VGPU_RIG_STATUS_FD"])
    os.write(writer, str(status).encode())
    os.close(writer)
    with open(os.devnull, "r+b", buffering=0) as null:
        for stream in (0, 1, 2):
            os.dup2(null.fileno(), stream)


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--keep", action="store_true")
    parser.add_argument("runtimes", nargs="*", default=["runc", "crun"])
    options = parser.parse_args()
    missing = [runtime for runtime in options.runtimes if shutil.which(runtime) is None]
    if missing:
        sys.exit(f"demo: {', '.join(missing)} is not installed")
    started = time.monotonic()
    checks = Checks()
    node = Node()
    print(f"node up: 2 cards of {node.simulator.memory_mib} MiB, containerd, {' and '.join(options.runtimes)}", flush=True)
    for runtime in options.runtimes:
        show(checks, node, runtime)
        if not (options.keep and runtime == options.runtimes[-1]):
            clean_up(checks, node)
    status = checks.summary()
    print(f"took {time.monotonic() - started:.0f} s", flush=True)
    if options.keep:
        report_to_keeper(status)
        signal.pause()
    node.stop()
    return status


if __name__ == "__main__":
    sys.exit(main())
