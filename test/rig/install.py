"""Puts the product, the simulated driver and NVIDIA's runtime (stand-in or real) where a node has them."""
import json
import os
import pathlib
import shutil
import subprocess

LIBRARIES = pathlib.Path("/usr/lib/x86_64-linux-gnu")
SIMULATOR = "/dev/nvidia-simulator"
NVIDIA_LOG = pathlib.Path("/run/nvidia-container-runtime.log")
NVIDIA_CONFIG = pathlib.Path("/etc/nvidia-container-runtime")
NVIDIA_PROGRAMS = ("nvidia-container-runtime", "nvidia-container-runtime-hook", "nvidia-cdi-hook")
SIMULATED = "test/fakes/nvidia"
STAND_IN = "test/fakes/nvidia-container-runtime/nvidia-container-runtime"
DRIVER_VERSION = "580.159.04"
DRIVER_LIBRARIES = ("libcuda", "libnvidia-ml")


class NotBuilt(Exception):
    """Something the node needs is not in the build directory."""


def built(build, path):
    if not (build / path).is_file():
        raise NotBuilt(f"'{path}' is not in '{build}': build it first")
    return build / path


def product(build):
    subprocess.run(["cmake", "--install", str(build), "--prefix", "/usr", "--component", "vgpu-runtime"],
                   check=True, stdout=subprocess.DEVNULL)


def driver(build):
    """The simulated libraries with the links a driver package makes."""
    for stem in DRIVER_LIBRARIES:
        name = f"{stem}.so.{DRIVER_VERSION}"
        shutil.copy2(built(build, f"{SIMULATED}/driver/{name}"), LIBRARIES / name)
        for link, target in ((f"{stem}.so.1", name), (f"{stem}.so", f"{stem}.so.1")):
            (LIBRARIES / link).unlink(missing_ok=True)
            (LIBRARIES / link).symlink_to(target)
    tool = pathlib.Path("/usr/bin/nvidia-sim")
    shutil.copy2(built(build, f"{SIMULATED}/nvidia-sim"), tool)


def nvidia_runtime(build):
    """The stand-in, or with VGPU_RIG_NVIDIA=DIRECTORY the real programs that lie there."""
    real = os.environ.get("VGPU_RIG_NVIDIA")
    for name in NVIDIA_PROGRAMS:
        source = pathlib.Path(real) / name if real else built(build, STAND_IN)
        shutil.copy2(source, f"/usr/bin/{name}")


def nvidia_config(gpus, mode, runtime):
    """`mode`: legacy, cdi, jit-cdi or auto; `runtime`: the low-level runtime, absolute. `gpus`: [{uuid, minor}]."""
    NVIDIA_CONFIG.mkdir(parents=True, exist_ok=True)
    (NVIDIA_CONFIG / "config.toml").write_text(
        "accept-nvidia-visible-devices-as-volume-mounts = true\n"
        f'[nvidia-container-runtime]\nmode = "{mode}"\nruntimes = ["{runtime}"]\n')
    lines = [f'log = "{NVIDIA_LOG}"', f'library_directory = "{LIBRARIES}"', f'driver_version = "{DRIVER_VERSION}"',
             f'extra_files = ["{SIMULATOR}"]']
    for card in gpus:
        lines += ["[[gpus]]", f'uuid = "{card["uuid"]}"', f'minor = {card["minor"]}']
    (NVIDIA_CONFIG / "stand-in.toml").write_text("\n".join(lines) + "\n")


def nvidia_invocations():
    """Command lines NVIDIA's runtime was started with, oldest first."""
    if not NVIDIA_LOG.exists():
        return []
    return [json.loads(line)["argv"] for line in NVIDIA_LOG.read_text().splitlines()]
