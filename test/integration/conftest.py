"""Shared by the integration tests: the node rig, what a test needs to run, and the negative control."""
import os
import pathlib
import shutil
import sys

import pytest

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "test" / "rig"))
ALLOWED = ROOT / "test" / "against_none.txt"


def pytest_addoption(parser):
    parser.addoption("--against", choices=["none"], help="negative control: run without the product, expect failures")


def pytest_configure(config):
    if config.getoption("--against"):
        os.environ["VGPU_AGAINST"] = config.getoption("--against")


def require(need, present, reason):
    """Skips the test with its reason, or fails it where VGPU_REQUIRE names the need."""
    if present:
        return
    if need in os.environ.get("VGPU_REQUIRE", "").split(","):
        pytest.fail(f"{reason} (VGPU_REQUIRE names '{need}')")
    pytest.skip(reason)


def _allowed():
    lines = [line.strip() for line in ALLOWED.read_text().splitlines()]
    listed = {}
    for line in lines:
        if line and not line.startswith("#"):
            name, _, why = line.partition(": ")
            listed[name.strip()] = why.strip()
    return listed


def _plain_name(nodeid):
    path, _, test = nodeid.partition("::")
    return f"{pathlib.Path(path).name}::{test.partition('[')[0]}"


@pytest.hookimpl(hookwrapper=True)
def pytest_runtest_makereport(item, call):
    """Under --against, a test that fails has done its work; one that passes shows nothing, unless it is listed with a reason."""
    outcome = yield
    report = outcome.get_result()
    if not item.config.getoption("--against") or call.when != "call" or report.skipped:
        return
    name = _plain_name(item.nodeid)
    listed = _allowed()
    if report.failed and not isinstance(call.excinfo.value, KeyboardInterrupt):
        report.outcome, report.longrepr = "passed", None
    elif report.passed and not listed.get(name):
        report.outcome = "failed"
        report.longrepr = f"{name} passes without the product: it shows nothing (or list it in {ALLOWED.name} with a reason)"


@pytest.fixture(scope="session")
def node():
    require("root", os.geteuid() == 0, "needs root: mounts and namespaces")
    require("containerd", shutil.which("containerd") is not None, "needs containerd")
    require("rig", "VGPU_RIG_WORK" in os.environ, "needs the node rig: run it through scripts/test")
    import node as rig
    made = rig.Node()
    yield made
    made.stop()


SETTINGS = [("runc", "legacy"), ("runc", "cdi"), ("crun", "legacy"), ("crun", "cdi")]


@pytest.fixture(params=SETTINGS, ids="-".join)
def rig(node, request):
    """The node under each low-level runtime and each mode of NVIDIA's runtime; without pods again after the test."""
    runtime, mode = request.param
    require(runtime, shutil.which(runtime) is not None, f"needs {runtime}")
    node.use(runtime, mode)
    yield node
    node.remove_pods()


@pytest.fixture(params=["runc", "crun"])
def each_runtime(node, request):
    """For what NVIDIA's mode has no part in."""
    require(request.param, shutil.which(request.param) is not None, f"needs {request.param}")
    node.use(request.param, "legacy")
    yield node
    node.remove_pods()
