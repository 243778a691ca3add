"""The limiter in the driver's place, against the simulated driver and its own ledger: whole programs, in a mount namespace of their own."""
import os
import shutil
import signal
import subprocess
import time

import pytest

import limiter_rig
from conftest import require
from limiter_rig import MIB, boot_time

OOM = 2
OPERATING_SYSTEM = 304
CONTEXT = 320 * MIB
FLAVOURS = ["driver", "driver-nosymbolic", "driver-private"]


def make_box(request, **settings):
    require("root", os.geteuid() == 0, "needs root: a mount namespace")
    require("unshare", shutil.which("unshare") is not None, "needs unshare")
    require("build", (limiter_rig.SIMULATED / "nvidia-sim").exists(), f"needs a build: '{limiter_rig.BUILD}' has none (VGPU_BUILD)")
    box = limiter_rig.Box(**settings)
    request.addfinalizer(box.stop)
    return box


@pytest.fixture
def box(request):
    return make_box(request)


@pytest.fixture(params=FLAVOURS)
def any_driver(request):
    return make_box(request, flavour=request.param)


def one(lines, op):
    return [line for line in lines if line["op"] == op][-1]


def codes(lines, op="alloc"):
    return [line["rc"] for line in lines if line["op"] == op]


def assert_limited(box, *arguments, **options):
    """3000 MiB less one context: 2700 MiB do not fit, 2600 MiB do."""
    lines = box.run(*arguments, "ctx", "alloc=2700M", "alloc=2600M", "meminfo", **options)
    assert codes(lines) == [OOM, 0], f"{lines} {box.said}"
    assert one(lines, "meminfo")["total"] == 3000 * MIB


# What a program is granted and told.


def test_a_program_gets_its_share_and_no_more(any_driver):
    assert_limited(any_driver)


def test_a_program_that_asks_cugetprocaddress_gets_its_share_and_no_more(any_driver):
    assert_limited(any_driver, "init", "via=getproc")


def test_cuda_and_nvml_tell_the_same_share(box):
    lines = box.run("ctx", "alloc=1000M", "meminfo", "total", "nvml")
    memory, nvml = one(lines, "meminfo"), one(lines, "nvml")
    assert memory["free"] == (3000 - 320 - 1000) * MIB
    assert one(lines, "total")["total"] == memory["total"] == nvml["total"] == nvml["total_v2"] == 3000 * MIB
    assert nvml["used"] == nvml["used_v2"] == 1320 * MIB
    assert nvml["free"] == nvml["free_v2"] == memory["free"]
    assert nvml["reserved_v2"] == 0 and nvml["rc_wrong_version"] == 25


def test_each_card_has_its_own_limit(box):
    lines = box.run("device=1", "ctx", "alloc=4700M", "alloc=4600M", "meminfo", "total", "nvml")
    assert codes(lines) == [OOM, 0]
    assert one(lines, "meminfo")["total"] == one(lines, "total")["total"] == one(lines, "nvml")["total"] == 5000 * MIB


def test_nvml_alone_tells_the_share(box):
    lines = box.run("nvmlview")
    assert [line["total"] for line in lines] == [3000 * MIB, 5000 * MIB]
    assert [line["used"] for line in lines] == [0, 0]


def test_the_old_forms_saturate(box):
    box.set_limits(8192, 8192)
    lines = box.run("ctx", "meminfo", "total")
    assert one(lines, "meminfo")["total"] == one(lines, "total")["total"] == 8192 * MIB
    assert one(lines, "meminfo")["old_total"] == one(lines, "total")["old_total"] == 2**32 - 1


def test_a_refusal_is_said_once_with_the_figures(box):
    box.run("ctx", "alloc=2700M", "alloc=2800M")
    assert box.said == (f"vgpu: 2700 MiB refused on gpu '{box.cards[0]['uuid']}'; 320 of 3000 MiB are used; "
                        "free memory or ask for a larger nvidia.com/gpumem\n")


def test_errno_is_left_as_it_was(box):
    found = one(box.run("ctx", "errno"), "errno")
    assert found["kept"] and found["rc"] == OOM and "vgpu:" in box.said


def test_a_freed_allocation_comes_back_at_once(box):
    assert codes(box.run("ctx", "alloc=2600M", "free=0", "alloc=2600M", "alloc=2600M")) == [0, 0, OOM]


def test_pitched_memory_is_charged_by_its_real_rows(box):
    lines = box.run("ctx", "pitch=513,1M", "meminfo")
    assert one(lines, "pitch")["pitch"] == 1024
    assert one(lines, "meminfo")["free"] == (3000 - 320 - 1024) * MIB


def test_a_pointer_that_nobody_knows_is_the_drivers_to_judge(box):
    alone = make_alone(box)
    assert codes(box.run("ctx", "freeptr=0xdead000", "alloc=2700M"), "freeptr") == codes(alone.run("ctx", "freeptr=0xdead000"), "freeptr")
    assert "2700 MiB refused" in box.said


def make_alone(box):
    """The same without the limiter."""
    alone = limiter_rig.Box(against_none=True)
    stop = box.stop
    box.stop = lambda: (alone.stop(), stop())
    return alone


def test_a_context_is_charged_once_and_returned_with_its_memory(box):
    lines = box.run("ctx", "ctx", "meminfo", "alloc=1000M", "reset", "ctx", "meminfo")
    assert [line["free"] for line in lines if line["op"] == "meminfo"] == [2680 * MIB, 2680 * MIB]


def test_a_created_context_is_charged_and_returned_with_its_memory(box):
    lines = box.run("ctxcreate", "alloc=1000M", "ctxdestroy", "ctx", "meminfo")
    assert one(lines, "meminfo")["free"] == 2680 * MIB


def test_a_context_that_does_not_fit_is_refused(box):
    box.set_limits(300, 300)
    assert codes(box.run("ctx"), "ctx") == [OOM]
    assert box.ledger()["cards"][0]["used"] == box.ledger_of_node["cards"][0]["used"]


def test_threads_keep_the_account_straight(box):
    lines = box.run("ctx", "threads=8,1M,500", "meminfo")
    assert one(lines, "threads")["failures"] == 0
    assert one(lines, "meminfo")["free"] == 2680 * MIB


# However the library is found.


@pytest.mark.parametrize("mode", ["soname", "plain", "absolute:/usr/lib/x86_64-linux-gnu/libcuda.so.580.159.04",
                                  "absolute:/lib/x86_64-linux-gnu/libcuda.so", "global", "deepbind", "dlmopen"])
def test_every_way_to_open_the_library_finds_the_limiter(box, mode):
    assert_limited(box, f"open={mode}")


def test_a_linked_program_is_limited(any_driver):
    assert_limited(any_driver, "open=linked", program="cuda_client_linked")


@pytest.mark.parametrize("variables", [
    ["-i"], ["LD_LIBRARY_PATH=/usr/lib/x86_64-linux-gnu"], ["LD_LIBRARY_PATH=/usr/lib/vgpu/driver"], ["LD_PRELOAD=libcuda.so.1"],
    ["LD_BIND_NOW=1"], ["CUDA_VISIBLE_DEVICES=0", "VGPU_MEMORY=100000"]])
def test_the_environment_changes_nothing(box, variables):
    assert_limited(box, before=["env", *variables])


def test_a_set_uid_program_is_limited(box):
    assert_limited(box, program="cuda_client_setuid", before=["setpriv", "--reuid=1000", "--regid=1000", "--clear-groups"])


def test_an_ordinary_user_is_limited(box):
    assert_limited(box, before=["setpriv", "--reuid=1000", "--regid=1000", "--clear-groups"])


def test_closing_and_opening_again_finds_the_limiter(box):
    assert_limited(box, "open=soname", "init", "reopen")


def test_a_function_that_concerns_no_limit_is_the_drivers_own(box):
    lines = box.run("open=soname", "init", "dlsym=cuMemAlloc_v2", "dlsym=cuLaunchKernel")
    assert [line["object"].startswith("/usr/lib/vgpu/driver/") for line in lines if line["op"] == "dlsym"] == [False, True]
    assert all(line["found"] for line in lines if line["op"] == "dlsym")


@pytest.mark.parametrize(("query", "symbol"), [
    ("cuMemAlloc,3020,0", "cuMemAlloc_v2"), ("cuMemAlloc,13000,2", "cuMemAlloc_v2"), ("cuCtxCreate,3020,0", "cuCtxCreate_v2"),
    ("cuCtxCreate,11040,0", "cuCtxCreate_v3"), ("cuCtxCreate,13000,0", "cuCtxCreate_v4"), ("cuGetProcAddress,11030,0", "cuGetProcAddress"),
    ("cuGetProcAddress,12000,0", "cuGetProcAddress_v2"), ("cuDevicePrimaryCtxRelease,7000,0", "cuDevicePrimaryCtxRelease")])
def test_cugetprocaddress_answers_with_the_hook_of_that_version(any_driver, query, symbol):
    found = one(any_driver.run("init", f"getproc={query}"), "getproc")
    assert found["means"] == symbol and "/usr/lib/vgpu/" not in found["object"]
    assert one(any_driver.run("init", f"dlsym={symbol}"), "dlsym")["object"].split("/")[-1].startswith("libcuda.so")
    assert "/usr/lib/vgpu/driver/cuda.0" in any_driver.run("init", "getproc=cuLaunchKernel,4000,0")[-1]["object"]


def test_an_unknown_name_stays_unknown(box):
    lines = box.run("init", "getproc=cuMemAlloc_v2_ptds,12000,0", "getproc=cuMemAlloc,12000,0", "dlsym=cuLaunchKernel")
    unknown, known = (line for line in lines if line["op"] == "getproc")
    assert not unknown["found"] and unknown["status"] == 1
    assert known["found"] and known["object"] != one(lines, "dlsym")["object"]


def test_loading_alone_maps_nothing_and_takes_no_slot(box):
    lines = box.run("open=soname", "init", "count", "maps=/usr/lib/vgpu/host", "maps=/usr/lib/vgpu/usage", "maps=/usr/lib/vgpu/driver",
                    "ctx", "maps=/usr/lib/vgpu/usage")
    assert [line["count"] > 0 for line in lines if line["op"] == "maps"] == [False, False, True, True]


def test_an_old_driver_without_cugetprocaddress_is_limited(request):
    box = make_box(request, flavour="driver-old", version="460.106.00")
    assert_limited(box)


# Several processes.


def test_eight_processes_racing_never_pass_the_limit(box):
    found = box.run("open=soname", "race=8,1M")[-1]
    assert found["refused_at_limit"] == 8 and found["other_ends"] == 0
    assert found["bytes"] == (3000 - 8 * 320) * MIB
    assert box.ledger()["cards"][0]["peak"] - box.ledger_of_node["cards"][0]["used"] <= 3000 * MIB


def test_a_forked_child_is_a_process_of_its_own(box):
    lines = box.run("ctx", "alloc=1000M", "spawn", "meminfo")
    memory = [line for line in lines if line["op"] == "meminfo"]
    assert memory[-1]["free"] == 1680 * MIB


def test_a_child_forked_before_cuda_shares_the_limit(box):
    box.start("ctx", "alloc=2000M", f"ready={box.shared('up')}", f"hold={box.shared('end')}")
    box.wait_for("up")
    assert codes(box.run("open=soname", "fork", "ctx", "alloc=400M", "alloc=300M")) == [OOM, 0]


def test_what_a_program_held_before_exec_comes_back(box):
    assert codes(box.run("ctx", "alloc=2600M", "exec", "ctx", "alloc=2600M", "alloc=2600M")) == [0, 0, OOM]


def test_a_killed_process_gives_its_memory_back(box):
    victim = box.start("ctx", "alloc=2600M", f"ready={box.shared('up')}", "hold=/nonexistent")
    box.wait_for("up")
    victim.kill()
    victim.wait()
    assert codes(box.run("ctx", "alloc=2600M", "alloc=2600M")) == [0, OOM]


def test_survivors_of_processes_killed_at_work_are_never_stuck(box):
    survivor = box.start("ctx", f"ready={box.shared('up')}", f"hold={box.shared('end')}", "threads=2,64K,2000", "meminfo", "alloc=2700M",
                         "alloc=2600M")
    box.wait_for("up")
    for round_number in range(20):
        victim = box.start("ctx", f"ready={box.shared(f'at-work-{round_number}')}", "churn=64K")
        box.wait_for(f"at-work-{round_number}")
        victim.send_signal(signal.SIGKILL)
        victim.wait()
        box.children.remove(victim)
        victim.stdout.close()
        victim.stderr.close()
    box.shared("end").touch()
    out, said = survivor.communicate(timeout=60)
    assert '"failures":0' in out.replace(" ", ""), said
    assert out.count('"rc":2') == 1 and survivor.returncode == 0


def test_a_stopped_process_hangs_nobody(box):
    stopped = box.start("ctx", f"ready={box.shared('up')}", "churn=64K")
    box.wait_for("up")
    stopped.send_signal(signal.SIGSTOP)
    assert codes(box.run("ctx", "alloc=2700M", "alloc=2300M")) == [OOM, 0]
    stopped.send_signal(signal.SIGKILL)


def test_closing_every_descriptor_frees_no_charge(box):
    holder = box.start("ctx", "alloc=2000M", "closefds", f"ready={box.shared('up')}", f"hold={box.shared('end')}", "alloc=10M", "meminfo")
    box.wait_for("up")
    lines = box.run("ctx", "alloc=400M", "alloc=300M")
    assert codes(lines) == [OOM, 0]
    box.shared("end").touch()
    out, _ = holder.communicate(timeout=60)
    assert '"rc":0' in out.replace(" ", "").split('"op":"alloc"')[-1]


def test_when_every_slot_is_taken_a_process_is_refused_and_lives(box):
    descriptor = os.open(box.usage.path, os.O_RDWR)
    import fcntl
    import struct
    lock = struct.pack("hhqqi4x", fcntl.F_WRLCK, os.SEEK_SET, (1 << 40) + 1, limiter_rig.USAGE_SLOTS, 0)
    fcntl.fcntl(descriptor, 37, lock)
    lines = box.run("ctx", "count")
    os.close(descriptor)
    assert codes(lines, "ctx") == [OPERATING_SYSTEM] and one(lines, "count")["rc"] == 0
    assert "1024 processes" in box.said


# What the host says.


def test_a_resize_reaches_a_running_program(box):
    running = box.start("ctx", "alloc=2700M", f"ready={box.shared('up')}", f"hold={box.shared('end')}", "alloc=2700M", "meminfo", "total")
    box.wait_for("up")
    box.set_limits(4000, 5000)
    box.shared("end").touch()
    out, _ = running.communicate(timeout=60)
    assert [line.split('"rc":')[1].split(",")[0] for line in out.splitlines() if '"alloc"' in line] == ["2", "0"]
    assert out.count(f'"total":{4000 * MIB}') == 2


def test_a_shrunk_share_refuses_and_shows_nothing_free(box):
    running = box.start("ctx", "alloc=2000M", f"ready={box.shared('up')}", f"hold={box.shared('end')}", "alloc=1M", "meminfo", "nvml")
    box.wait_for("up")
    box.set_limits(1000, 5000)
    box.shared("end").touch()
    out, _ = running.communicate(timeout=60)
    assert '"free":0' in out.replace(" ", "") and '"rc":2' in out.replace(" ", "")


def test_what_the_host_observes_counts(box):
    box.set_limits(3000, 5000, heartbeat=boot_time(), observed=2000 * MIB)
    lines = box.run("ctx", "alloc=1001M", "meminfo", "nvml", "alloc=1000M")
    assert codes(lines) == [OOM, 0]
    assert one(lines, "meminfo")["free"] == 1000 * MIB and one(lines, "nvml")["used"] == 2000 * MIB


def test_an_observation_without_a_heartbeat_does_not_count(box):
    box.set_limits(3000, 5000, heartbeat=boot_time() - 11 * 10**9, observed=2900 * MIB)
    assert_limited(box)


def test_a_hold_refuses_new_memory(box):
    box.set_limits(3000, 5000, flags=limiter_rig.HOLD)
    assert codes(box.run("ctx"), "ctx") == [OOM]
    assert "holds new memory back" in box.said


def test_a_card_that_the_host_does_not_name_is_refused(box):
    box.page.write([{"uuid": box.cards[1]["uuid"], "limit": 5000 * MIB}])
    lines = box.run("device=0", "ctx", "total")
    assert codes(lines, "ctx") == [OOM] and one(lines, "total")["total"] == 0
    assert "not in its allocation" in box.said


# Doubts.


def test_a_torn_host_page_refuses_everything(box):
    box.set_limits(3000, 5000, spoil=True)
    assert codes(box.run("ctx"), "ctx") == [OOM]
    assert box.said.count("vgpu:") == 1 and "no whole copy" in box.said


@pytest.mark.parametrize(("file", "spoil", "text"), [
    ("host", lambda path: path.unlink(), "'/usr/lib/vgpu/host' cannot be opened"),
    ("host", lambda path: os.truncate(path, 100), "'/usr/lib/vgpu/host' is no limits page"),
    ("host", lambda path: path.write_bytes(b"X" + path.read_bytes()[1:]), "'/usr/lib/vgpu/host' is no limits page"),
    ("usage", lambda path: os.truncate(path, 100), "'/usr/lib/vgpu/usage' is no ledger"),
    ("usage", lambda path: path.write_bytes(b"X" + path.read_bytes()[1:]), "'/usr/lib/vgpu/usage' is no ledger"),
], ids=["no host page", "short host page", "other host page", "short usage file", "other usage file"])
def test_a_file_that_is_not_as_it_must_be_refuses_memory(box, file, spoil, text):
    spoil(box.work / "container" / file)
    lines = box.run("ctx", "ctx", "total")
    assert codes(lines, "ctx") == [OPERATING_SYSTEM, OPERATING_SYSTEM]
    assert one(lines, "total")["rc"] == OPERATING_SYSTEM
    assert box.said.count("vgpu:") == 1 and text in box.said


def test_a_slot_that_shows_the_limiter_itself_answers_errors(box):
    inside = ["nsenter", "-t", str(box.started.pid), "-m"]
    ours = box.work / "libvgpu-cuda.0.so"
    subprocess.run([*inside, "umount", "/usr/lib/vgpu/driver/cuda.0"], check=False, capture_output=True)
    subprocess.run([*inside, "mount", "--bind", str(ours), "/usr/lib/vgpu/driver/cuda.0"], check=True, capture_output=True)
    lines = box.run("open=soname", "dlsym=cuMemAlloc_v2", "rawalloc")
    assert one(lines, "rawalloc")["rc"] == 303
    assert "does not hold the driver" in box.said


def test_taking_the_limiter_away_uncovers_no_driver_slot_by_name(box):
    found = subprocess.run(["nsenter", "-t", str(box.started.pid), "-m", "sh", "-c", "ldconfig -p; find / -xdev -name 'libcuda.so*'"],
                           check=True, capture_output=True, text=True).stdout
    assert "/usr/lib/vgpu" not in found
    assert_limited(box)
