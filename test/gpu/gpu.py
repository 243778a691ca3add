#!/usr/bin/python3
"""Everything that needs a real GPU, in one run: facts of the driver that the design rests on, and the limiter before it.

    gpu.py --build BUILD --json FILE     exit 0: all as expected, 1: something differs, 77: there is no card

Works in private mount namespaces; the machine's own files stay as they are. scripts/gpu --simulated runs it on the simulated
driver, which proves the script, not the driver.
"""
import argparse
import glob
import json
import os
import pathlib
import platform
import re
import shutil
import subprocess
import sys
import tempfile

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "rig"))
import limiter_rig  # noqa: E402  the rig's modules lie beside

MIB = 1 << 20
LIMIT = 4096
NO_CARD = 77
LIBRARIES = (("cuda", "libcuda.so.1"), ("nvml", "libnvidia-ml.so.1"))


def library(soname):
    """Where the loader finds it, links resolved; None if nowhere."""
    found = subprocess.run(["ldconfig", "-p"], capture_output=True, text=True, check=False).stdout
    for line in found.splitlines():
        if line.strip().startswith(soname + " ") and "x86-64" in line:
            return pathlib.Path(line.split("=>")[1].strip()).resolve()
    for path in glob.glob(f"/usr/lib/*-linux-gnu/{soname}"):
        return pathlib.Path(path).resolve()
    return None


class Machine:
    def __init__(self, build, work):
        self.build, self.work = build, work
        self.real = {kind: library(soname) for kind, soname in LIBRARIES}
        self.client = build / "test/programs/cuda_client"

    def bare(self, *operations):
        done = subprocess.run([self.client, *operations], capture_output=True, text=True, timeout=300, check=False)
        return [json.loads(line) for line in done.stdout.splitlines()]

    def prepare(self, uuid, context):
        private = self.work / "upper/lib/vgpu"
        (private / "driver").mkdir(parents=True)
        (self.work / "overlay").mkdir()
        limiter_rig.UsageFile(private / "usage")
        limiter_rig.HostPage(private / "host").write([{"uuid": uuid, "limit": LIMIT * MIB, "context": context}])
        for kind, _ in LIBRARIES:
            (private / "driver" / f"{kind}.0").touch()

    def limited(self, *operations, before=()):
        """The client with the limiter in the driver's place; a fresh ledger each time."""
        limiter_rig.UsageFile(self.work / "upper/lib/vgpu/usage")
        lines = ["set -e", "mount --make-rprivate /",
                 f"mount -t overlay x -o lowerdir=/usr,upperdir={self.work}/upper,workdir={self.work}/overlay /usr"]
        for kind, real in self.real.items():
            lines += [f"mount --bind '{real}' /usr/lib/vgpu/driver/{kind}.0",
                      f"mount --bind '{self.build}/limiter/libvgpu-{kind}.0.so' '{real}'"]
        script = "\n".join(lines) + '\nexec "$@"\n'
        done = subprocess.run(["unshare", "-m", "sh", "-c", script, "sh", *before, self.client, *operations],
                              capture_output=True, text=True, timeout=300, check=False)
        if done.returncode not in (0, 1):
            raise RuntimeError(f"{operations}: {done.returncode}: {done.stderr}")
        return [json.loads(line) for line in done.stdout.splitlines()]


def pick(lines, op, n=0):
    return [line for line in lines if line["op"] == op][n]


class Report:
    def __init__(self):
        self.facts, self.checks = {}, []

    def fact(self, name, value):
        self.facts[name] = value
        print(f"     {name}: {value}")

    def check(self, name, expected, seen):
        good = seen == expected
        self.checks.append({"name": name, "expected": expected, "seen": seen, "ok": good})
        print(f"{'ok  ' if good else 'DIFF'} {name}: expected {expected!r}, seen {seen!r}")


def driver_facts(machine, report):
    """What reference measurements could not say without a card."""
    for kind, real in machine.real.items():
        report.fact(f"{kind}_library", real.name)
        versions = subprocess.run(["readelf", "-V", real], capture_output=True, text=True, check=True).stdout
        report.check(f"{kind}: the driver's library has no version nodes", False, "Version definition" in versions)
        dynamic = subprocess.run(["readelf", "-d", real], capture_output=True, text=True, check=True).stdout
        report.fact(f"{kind}_needed", re.findall(r"NEEDED.*\[(.*)\]", dynamic))
    start = machine.bare("init", "uuid", "total")
    uuid = pick(start, "uuid")["uuid"]
    report.fact("uuid_form", re.sub("[0-9a-f]", "x", uuid))
    views = machine.bare("init", "nvml", "ctx", "nvml", "meminfo", "alloc=1", "nvml")
    used = [line["used"] for line in views if line["op"] == "nvml" and "used" in line]
    context = used[1] - used[0]
    report.fact("context_bytes", context)
    report.fact("one_byte_costs", used[2] - used[1])
    return uuid, max(context, 0)


def entry_points(machine, report):
    """Is what cuGetProcAddress answers the symbol that dlsym finds?"""
    for name, version in (("cuMemAlloc", 3020), ("cuMemGetInfo", 3020), ("cuCtxCreate", 12050), ("cuLaunchKernel", 4000)):
        for flags in (0, 2):
            answer = pick(machine.bare("init", f"getproc={name},{version},{flags}"), "getproc")
            report.fact(f"getproc {name} {version} flags {flags}", {k: v for k, v in answer.items() if k != "op"})


def limits(machine, report, context):
    lines = machine.limited("init", "total", "ctx", "meminfo", "nvml")
    report.check("cuDeviceTotalMem is the limit", LIMIT * MIB, pick(lines, "total")["total"])
    report.check("cuMemGetInfo's total is the limit", LIMIT * MIB, pick(lines, "meminfo")["total"])
    report.check("NVML's total is the limit", LIMIT * MIB, pick(lines, "nvml")["total"])
    room = LIMIT - context // MIB - 1
    lines = machine.limited("init", "ctx", f"alloc={room - 64}M")
    report.check("what fits is granted", 0, pick(lines, "alloc")["rc"])
    lines = machine.limited("init", "ctx", f"alloc={room + 2}M")
    report.check("what does not fit is CUDA_ERROR_OUT_OF_MEMORY", 2, pick(lines, "alloc")["rc"])
    for mode in ("soname", "plain", "global", "deepbind", "dlmopen", f"absolute:{machine.real['cuda']}"):
        lines = machine.limited(f"open={mode}", "init", "total")
        report.check(f"limited when opened by {mode}", LIMIT * MIB, pick(lines, "total")["total"])
    lines = machine.limited("via=getproc", "init", "ctx", f"alloc={LIMIT + 64}M")
    report.check("limited through cuGetProcAddress", 2, pick(lines, "alloc")["rc"])
    lines = machine.limited("init", "total", before=("env", "-i"))
    report.check("limited with an empty environment", LIMIT * MIB, pick(lines, "total")["total"])


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--build", type=pathlib.Path, required=True)
    parser.add_argument("--json", type=pathlib.Path, required=True)
    options = parser.parse_args()
    work = pathlib.Path(tempfile.mkdtemp(prefix="vgpu-gpu-", dir="/var/tmp"))
    try:
        machine = Machine(options.build.resolve(), work)
        if not all(machine.real.values()) or pick(machine.bare("init"), "init").get("rc") != 0:
            print("gpu: NVIDIA's driver or a card is missing: nothing was measured", file=sys.stderr)
            return NO_CARD
        report = Report()
        report.fact("kernel", platform.release())
        uuid, context = driver_facts(machine, report)
        entry_points(machine, report)
        machine.prepare(uuid, context)
        limits(machine, report, context)
    finally:
        shutil.rmtree(work, ignore_errors=True)
    options.json.write_text(json.dumps({"facts": report.facts, "checks": report.checks}, indent=1) + "\n")
    failed = [check for check in report.checks if not check["ok"]]
    print(f"{len(report.checks) - len(failed)} as expected, {len(failed)} not; written to {options.json}")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
