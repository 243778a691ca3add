#!/usr/bin/python3
"""What our own programs add to a container's life: wrapper start -> next runtime's first instruction, hook exec -> exit.

Runs on a rig node (test/rig/enter.py). One round is the life of one GPU container and of one without, alternating:
 - create, GPU:   verify the allocation, edit the spec, make the private directory
 - start, GPU:    put the limiter in the driver's place, in a real container that runc made from the edited spec
 - poststop:      vgpu-hook, from exec to exit
 - create, plain: a container without a GPU
 - other:         state, kill, delete of the container without a GPU
`create_gpu` is create and poststop together, `life_gpu` all three: everything of ours that a GPU container waits for in its life.
`spawn` is the same measurement of a program that does nothing, for comparison.
"""
import argparse
import json
import os
import pathlib
import shutil
import statistics
import subprocess
import sys
import uuid

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "rig"))
import allocation  # noqa: E402  the rig's modules lie beside
import install  # noqa: E402
import simulator  # noqa: E402

BUILD = pathlib.Path(os.environ["VGPU_BUILD"])
WRAPPER = "/usr/bin/vgpu-runtime"
HOOK = "/usr/libexec/vgpu/vgpu-hook"
NODE = "bench-node"
SEPARATOR = "\x1f"


class Timer:
    """Milliseconds from just before execve to the stamp and to the exit."""

    def __init__(self):
        self.process = subprocess.Popen([install.built(BUILD, "test/bench/spawn_timer")], stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                                        text=True, bufsize=1)

    def run(self, *arguments):
        self.process.stdin.write(SEPARATOR.join(map(str, arguments)) + "\n")
        stamp, end, status = map(int, self.process.stdout.readline().split())
        return stamp / 1e6, end / 1e6, status


class Bench:
    def __init__(self, work):
        self.work = work
        self.timer = Timer()
        self.root = work / "runc"
        self.stamp = install.built(BUILD, "test/bench/bench_stamp")
        self.signer = allocation.Signer()
        self.signer.trust()
        install.driver(BUILD)
        install.product(BUILD)
        self.simulator = simulator.Simulator(work)
        self.simulator.start()
        self.rootfs = work / "rootfs"
        for directory in ("bin", "proc", "dev", "sys", "usr/lib/x86_64-linux-gnu", "lib64"):
            (self.rootfs / directory).mkdir(parents=True)
        shutil.copy2("/bin/busybox", self.rootfs / "bin/busybox")
        pathlib.Path("/etc/vgpu/runtime.toml").write_text(
            f'low_level_runtimes = ["{self.stamp}"]\nnvidia_runtimes = ["{self.stamp}"]\ntoolkit_mode = "legacy"\n')
        run = pathlib.Path("/run/vgpu")
        run.mkdir(mode=0o711, exist_ok=True)
        cards = [{**card, "contextBytes": self.simulator.context_bytes} for card in self.simulator.cards]
        (run / "node").write_text(json.dumps({"v": 1, "name": NODE, "runtime": str(self.stamp), "toolkitMode": "legacy",
                                              "gpus": cards}))
        subprocess.run(["runc", "spec", "--bundle", work], check=True)
        self.template = json.loads((work / "config.json").read_text())
        self.template["process"].update(terminal=False, args=["/bin/busybox", "sleep", "600"])
        self.template["root"] = {"path": str(self.rootfs)}

    def spec(self, identity, uid, annotations):
        spec = json.loads(json.dumps(self.template))
        spec["annotations"] = {
            "io.kubernetes.cri.container-name": "main", "io.kubernetes.cri.container-type": "container",
            "io.kubernetes.cri.image-name": "registry.example/team/train:1", "io.kubernetes.cri.sandbox-id": "s" * 64,
            "io.kubernetes.cri.sandbox-name": "train", "io.kubernetes.cri.sandbox-namespace": "default",
            "io.kubernetes.cri.sandbox-uid": uid, **annotations}
        spec["linux"]["cgroupsPath"] = f"{os.environ['VGPU_RIG_CGROUP']}/kubepods/pod{uid}/{identity}"
        spec["process"]["env"] += [f"SERVICE_{i}_PORT=tcp://10.0.0.{i}:80" for i in range(20)]
        return spec

    def bundle(self, spec, identity):
        bundle = self.work / "bundles" / identity
        bundle.mkdir(parents=True)
        (bundle / "config.json").write_text(json.dumps(spec))
        return bundle

    def wrapper(self, bundle, *command):
        stamp, _, status = self.timer.run(WRAPPER, "--root", self.root, "--log", bundle / "log.json", "--log-format", "json",
                                          *command)
        if status != 0 or stamp < 0:
            log = bundle / "log.json"
            sys.exit(f"bench: {command} ended with {status}: {log.read_text() if log.exists() else 'no log'}")
        return stamp

    def runc(self, *command):
        subprocess.run(["runc", "--root", self.root, *map(str, command)], check=True, stdin=subprocess.DEVNULL,
                       stdout=subprocess.DEVNULL)

    def add_driver(self, bundle):
        """What NVIDIA's runtime does after ours."""
        path = bundle / "config.json"
        spec = json.loads(path.read_text())
        for stem in install.DRIVER_LIBRARIES:
            name = install.LIBRARIES / f"{stem}.so.{install.DRIVER_VERSION}"
            spec["mounts"].append({"destination": str(name), "source": str(name), "type": "bind",
                                   "options": ["rbind", "ro", "nosuid", "nodev", "rprivate"]})
        minor = self.simulator.cards[0]["minor"]
        spec["linux"].setdefault("devices", []).append(
            {"path": f"/dev/nvidia{minor}", "type": "c", "major": 195, "minor": minor, "fileMode": 0o666})
        path.write_text(json.dumps(spec))

    def gpu_round(self):
        identity, uid = uuid.uuid4().hex * 2, str(uuid.uuid4())
        text = allocation.text(uid, NODE, {"main": allocation.container(allocation.gpu(self.simulator.cards[0]["uuid"], 3000))}, 1)
        bundle = self.bundle(self.spec(identity, uid, allocation.annotations(self.signer, text)), identity)
        create = self.wrapper(bundle, "create", "--bundle", bundle, "--pid-file", bundle / "init.pid", identity)
        self.add_driver(bundle)
        self.runc("create", "--bundle", bundle, "--pid-file", bundle / "init.pid", identity)
        try:
            start = self.wrapper(bundle, "start", identity)
            key = next(pathlib.Path("/run/vgpu/containers").glob(f"{identity}-*")).name
            _, hook, status = self.timer.run(HOOK, "poststop", "--key", key)
            if status != 0:
                sys.exit(f"bench: the hook ended with {status}")
        finally:
            self.runc("delete", "--force", identity)
            shutil.rmtree(bundle)
        return {"create_gpu": create + hook, "start_gpu": start, "hook_poststop": hook, "life_gpu": create + start + hook}

    def plain_round(self):
        identity, uid = uuid.uuid4().hex * 2, str(uuid.uuid4())
        bundle = self.bundle(self.spec(identity, uid, {}), identity)
        create = self.wrapper(bundle, "create", "--bundle", bundle, "--pid-file", bundle / "init.pid", identity)
        others = [self.wrapper(bundle, *command) for command in
                  (("start", identity), ("state", identity), ("kill", identity, "15"), ("delete", "--force", identity))]
        shutil.rmtree(bundle)
        return {"create_plain": create, "other_commands": others, "spawn": self.timer.run(self.stamp)[0]}


def percentile(values, per_cent):
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, len(ordered) * per_cent // 100)]


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--json", type=pathlib.Path)
    parser.add_argument("--rounds", type=int, default=1000)
    options = parser.parse_args()
    bench = Bench(pathlib.Path(os.environ["VGPU_RIG_WORK"]))
    samples = {}
    for _ in range(options.rounds):
        for name, value in {**bench.gpu_round(), **bench.plain_round()}.items():
            samples.setdefault(name, []).extend(value if isinstance(value, list) else [value])
    figures = {}
    for name, values in samples.items():
        figures[f"{name}_p50_ms"] = {"value": round(statistics.median(values), 3), "unit": "ms"}
        figures[f"{name}_p99_ms"] = {"value": round(percentile(values, 99), 3), "unit": "ms"}
    for name, figure in figures.items():
        print(f"{name:32} {figure['value']:8.3f} ms")
    if options.json:
        options.json.write_text(json.dumps({"figures": figures}, indent=1) + "\n")


if __name__ == "__main__":
    main()
