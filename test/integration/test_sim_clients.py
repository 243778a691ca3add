"""Real clients of the driver on the simulated one: NVIDIA's Python packages nvidia-ml-py and cuda-bindings, as their users run them."""
import json
import os
import pathlib
import subprocess
import sys

import pytest

from conftest import ROOT, require

BUILD = pathlib.Path(os.environ.get("VGPU_BUILD", ROOT / "build" / "dev")).resolve()
SIMULATED = BUILD / "test" / "fakes" / "nvidia"
REQUIREMENTS = ROOT / "test" / "requirements-clients.txt"
SCENARIO = ROOT / "test" / "fakes" / "nvidia" / "scenarios" / "two-cards.toml"
MIB = 1 << 20
CARD = 24576 * MIB
RESERVED = 512 * MIB
CONTEXT = 320 * MIB

USE_CUDA = """
import json
from cuda.bindings import driver

def call(result):
    assert result[0] == driver.CUresult.CUDA_SUCCESS, result
    return result[1] if len(result) == 2 else result[1:]

call(driver.cuInit(0))
card = call(driver.cuDeviceGet(1))
context = call(driver.cuDevicePrimaryCtxRetain(card))
call(driver.cuCtxSetCurrent(context))
before = call(driver.cuMemGetInfo())
sent = bytes(range(256)) * 4096
memory = call(driver.cuMemAlloc(len(sent)))
call(driver.cuMemcpyHtoD(memory, sent, len(sent)))
received = bytearray(len(sent))
call(driver.cuMemcpyDtoH(received, memory, len(received)))
during = call(driver.cuMemGetInfo())
too_much = driver.cuMemAlloc(1 << 40)[0].name
call(driver.cuMemFree(memory))
print(json.dumps({
    "count": call(driver.cuDeviceGetCount()),
    "version": call(driver.cuDriverGetVersion()),
    "name": call(driver.cuDeviceGetName(64, card)).split(b"\\0")[0].decode(),
    "uuid": call(driver.cuDeviceGetUuid(card)).bytes.hex(),
    "total": call(driver.cuDeviceTotalMem(card)),
    "free": before[0],
    "taken": before[0] - during[0],
    "round trip": received == sent,
    "too much": too_much,
    "freed": call(driver.cuMemGetInfo())[0] == before[0],
}))
"""

USE_NVML = """
import json, os
import pynvml as nvml
from cuda.bindings import driver

nvml.nvmlInit()
card = nvml.nvmlDeviceGetHandleByIndex(0)
driver.cuInit(0)
context = driver.cuCtxCreate(None, 0, driver.cuDeviceGet(0)[1])[1]
one = nvml.nvmlDeviceGetMemoryInfo(card)
two = nvml.nvmlDeviceGetMemoryInfo(card, version=nvml.nvmlMemory_v2)
print(json.dumps({
    "count": nvml.nvmlDeviceGetCount(),
    "name": nvml.nvmlDeviceGetName(card),
    "uuid": nvml.nvmlDeviceGetUUID(card),
    "driver": nvml.nvmlSystemGetDriverVersion(),
    "cuda": nvml.nvmlSystemGetCudaDriverVersion(),
    "bus id": nvml.nvmlDeviceGetPciInfo(card).busId,
    "v1": [one.total, one.free, one.used],
    "v2": [two.total, two.reserved, two.free, two.used],
    "processes": [[p.pid == os.getpid(), p.usedGpuMemory] for p in nvml.nvmlDeviceGetComputeRunningProcesses(card)],
}))
"""


def install(directory):
    """The clients in a virtual environment of the build directory, made once; None and the reason where it cannot be."""
    done = directory / REQUIREMENTS.name
    python = directory / "bin" / "python"
    if done.exists() and done.read_text() == REQUIREMENTS.read_text():
        return python, ""
    made = subprocess.run([sys.executable, "-m", "venv", "--clear", str(directory)], capture_output=True, text=True, check=False)
    if made.returncode == 0:
        made = subprocess.run([str(python), "-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--retries", "1",
                               "--requirement", str(REQUIREMENTS)], capture_output=True, text=True, check=False, timeout=300)
    if made.returncode != 0:
        return None, (made.stderr or made.stdout).strip().splitlines()[-1]
    done.write_text(REQUIREMENTS.read_text())
    return python, ""


@pytest.fixture(scope="module")
def client_python():
    python, reason = install(BUILD / "test" / "clients")
    require("pypi", python is not None, f"needs the client packages: {reason}")
    return python


@pytest.fixture(name="run")
def run_fixture(client_python, tmp_path):
    """Runs a client on a node of its own; what it prints, as JSON."""
    scenario = tmp_path / "scenario.toml"
    scenario.write_text('device_nodes = "ignore"\n' + SCENARIO.read_text())
    state = tmp_path / "state"
    subprocess.run([str(SIMULATED / "nvidia-sim"), "init", "--scenario", str(scenario), str(state)], check=True)
    environment = {"PATH": os.environ["PATH"], "NVIDIA_SIM_STATE": str(state), "LD_LIBRARY_PATH": str(SIMULATED / "driver")}

    def run(program):
        done = subprocess.run([str(client_python), "-c", program], env=environment, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr
        return json.loads(done.stdout)

    return run


def test_cuda_bindings_sees_its_card_and_moves_bytes_through_its_memory(run):
    assert run(USE_CUDA) == {
        "count": 2,
        "version": 13000,
        "name": "NVIDIA A10",
        "uuid": "9be4a7c231d047a68f0ed26b51c4e9a3",
        "total": CARD - RESERVED,
        "free": CARD - RESERVED - CONTEXT,
        "taken": MIB,
        "round trip": True,
        "too much": "CUDA_ERROR_OUT_OF_MEMORY",
        "freed": True,
    }


def test_nvidia_ml_py_sees_cards_memory_and_processes(run):
    free = CARD - RESERVED - CONTEXT
    assert run(USE_NVML) == {
        "count": 2,
        "name": "NVIDIA A10",
        "uuid": "GPU-5c2f0d5e-8c1f-4c3b-9d55-0a1f6f3e7b10",
        "driver": "580.159.04",
        "cuda": 13000,
        "bus id": "00000000:3B:00.0",
        "v1": [CARD, free, RESERVED + CONTEXT],
        "v2": [CARD, RESERVED, free, CONTEXT],
        "processes": [[True, CONTEXT]],
    }
