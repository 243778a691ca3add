"""A node with something missing or broken: pods without a GPU do not notice, pods with one say what is wrong."""
import contextlib
import pathlib
import shutil

import pytest

import allocation
import engine
import install
from cri import CallFailed
from node import AGAINST_NONE


@contextlib.contextmanager
def moved_away(path):
    path = pathlib.Path(path)
    aside = path.with_name(path.name + ".aside")
    path.rename(aside)
    try:
        yield
    finally:
        if path.is_dir():
            shutil.rmtree(path)
        path.unlink(missing_ok=True)
        aside.rename(path)


@contextlib.contextmanager
def written(path, text):
    path = pathlib.Path(path)
    before = path.read_text() if path.exists() else None
    path.write_text(text)
    try:
        yield
    finally:
        path.unlink()
        if before is not None:
            path.write_text(before)


def limiter_library():
    if AGAINST_NONE:  # there is none to miss
        return "/dev/full"
    found = sorted(pathlib.Path("/usr/lib/vgpu").glob("*/libvgpu-cuda.0.so"))
    assert found, "the limiter is not installed"
    return found[0]


# What is broken -> (how, words of the one line a GPU pod then fails with: what stands in the way, what would help)
BROKEN = {
    "configuration broken": (lambda: written("/etc/vgpu/runtime.toml", "limit = = 1\n"), ["/etc/vgpu/runtime.toml"]),
    "configuration with an unknown key": (lambda: written("/etc/vgpu/runtime.toml", "speed = 11\n"), ["/etc/vgpu/runtime.toml", "speed"]),
    "limiter library missing": (lambda: moved_away(limiter_library()), ["libvgpu-cuda.0.so"]),
    "NVIDIA's runtime missing": (lambda: moved_away("/usr/bin/nvidia-container-runtime"), ["nvidia-container-runtime"]),
    "/run/vgpu gone": (lambda: moved_away("/run/vgpu"), ["/run/vgpu/node"]),
    "trusted keys gone": (lambda: moved_away("/etc/vgpu/trust.d"), ["/etc/vgpu/trust.d"]),
}


@pytest.fixture(params=BROKEN)
def broken(each_runtime, request):
    how, words = BROKEN[request.param]
    with how():
        yield each_runtime, words
        each_runtime.remove_pods()


def test_a_pod_without_a_gpu_works(broken):
    node, _ = broken
    assert node.pod("web").start("main", image="busybox").run("/bin/echo", "fine").out == "fine\n"


def test_a_pod_with_a_gpu_fails_with_one_line_that_says_what_and_why(broken):
    node, words = broken
    pod = node.pod("train", {"main": allocation.container(allocation.gpu(node.cards[0], 3000))})
    with pytest.raises(CallFailed) as refused:
        pod.start("main")
    text = str(refused.value)
    print(text)
    assert "\n" not in text.strip() and "default/train" in text, text
    assert all(word in text for word in words), text


def test_a_pod_without_a_gpu_keeps_its_spec_byte_for_byte(rig):
    pod = rig.pod("web")
    main = pod.start("main", image="hostile", env={"NVIDIA_VISIBLE_DEVICES": "all"})
    assert main.spec_bytes() == engine.stored_spec(main.id)


def test_a_pod_without_a_gpu_never_starts_nvidias_runtime(rig):
    before = len(install.nvidia_invocations())
    pod = rig.pod("web")
    pod.start("main", image="hostile").run("/bin/true")
    pod.remove()
    assert install.nvidia_invocations()[before:] == []
