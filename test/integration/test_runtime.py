"""What a program in a container sees: its share of the card, whichever way it takes to the driver."""
import pytest

import allocation
import bundle
import images
from cri import CallFailed

MIB = 1 << 20
OUT_OF_MEMORY = 2
CLIENT = "/usr/bin/cuda_client"
LIBRARY = "/usr/lib/x86_64-linux-gnu/libcuda.so.580.159.04"


def share(node, memory=3000, card=0, **more):
    return allocation.container(allocation.gpu(node.cards[card], memory), **more)


def container(node, memory=3000, image="glibc", **settings):
    return node.pod("train", {"main": share(node, memory)}).start("main", image=image, **settings)


def op(outcome, name):
    """The client's line about one operation."""
    assert outcome.status == 0, outcome
    return next(line for line in outcome.lines if line["op"] == name)


def test_cuda_and_nvml_show_the_container_its_own_card(rig):
    seen = container(rig, 3000).run(CLIENT, "count", "uuid", "ctx", "meminfo", "total", "nvml")
    assert op(seen, "count")["count"] == 1
    assert op(seen, "uuid")["uuid"] == rig.cards[0]
    assert op(seen, "total")["total"] == 3000 * MIB
    assert op(seen, "meminfo")["total"] == 3000 * MIB
    assert op(seen, "meminfo")["free"] == (3000 - 320) * MIB
    assert op(seen, "nvml")["total"] == op(seen, "nvml")["total_v2"] == 3000 * MIB
    assert op(seen, "nvml")["free"] == (3000 - 320) * MIB


def test_two_pods_on_one_card_each_see_their_own_size(rig):
    small = rig.pod("small", {"main": share(rig, 3000)}).start()
    large = rig.pod("large", {"main": share(rig, 5000)}).start()
    assert op(small.run(CLIENT, "total"), "total")["total"] == 3000 * MIB
    assert op(large.run(CLIENT, "total"), "total")["total"] == 5000 * MIB


def test_an_allocation_within_the_limit_is_granted(rig):
    seen = container(rig, 3000).run(CLIENT, "ctx", "alloc=2600M", "meminfo")
    assert op(seen, "alloc")["rc"] == 0
    assert op(seen, "meminfo")["free"] == 80 * MIB


def test_an_allocation_that_crosses_the_limit_is_out_of_memory(rig):
    assert op(container(rig, 3000).run(CLIENT, "ctx", "alloc=2700M"), "alloc")["rc"] == OUT_OF_MEMORY


def test_eight_racing_processes_never_pass_the_limit(rig):
    main = container(rig, 5000)
    rig.simulator.settle()
    race = main.run(CLIENT, "race=8,16M")
    assert race.status == 0, race
    peak = rig.held_bytes(main, card=0, peak=True)
    assert 4900 * MIB < peak <= 5000 * MIB


WAYS = {
    "soname": ([], ["open=soname"]),
    "linked": ([], ["open=linked"]),
    "plain name": ([], ["open=plain"]),
    "global": ([], ["open=global"]),
    "deepbind": ([], ["open=deepbind"]),
    "dlmopen": ([], ["open=dlmopen"]),
    "getproc": ([], ["open=soname", "via=getproc"]),
    "absolute path": ([], [f"open=absolute:{LIBRARY}"]),
    "after reopening": ([], ["open=soname", "reopen"]),
    "empty environment": (["env", "-i"], ["open=soname"]),
    "library path of the driver": (["env", "LD_LIBRARY_PATH=/usr/lib/x86_64-linux-gnu"], ["open=soname"]),
    "library path of the slots": (["env", "LD_LIBRARY_PATH=/usr/lib/vgpu/driver"], ["open=soname"]),
    "library path of nowhere": (["env", "LD_LIBRARY_PATH=/nowhere:/tmp"], ["open=soname"]),
}


@pytest.mark.parametrize("way", WAYS)
def test_br001_every_way_to_the_driver_is_limited(rig, way):
    before, opening = WAYS[way]
    program = "/usr/bin/cuda_client_linked" if way == "linked" else CLIENT
    seen = container(rig, 3000).run(*before, program, *opening, "ctx", "total", "alloc=2700M", "alloc=2600M")
    assert op(seen, "total")["total"] == 3000 * MIB
    assert [line["rc"] for line in seen.lines if line["op"] == "alloc"] == [OUT_OF_MEMORY, 0]


def test_the_program_of_the_container_itself_is_limited(rig):
    main = container(rig, 3000, command=[CLIENT, "ctx", "alloc=2700M"])
    main.wait_for_exit()
    assert '"op":"alloc"' in main.output()
    assert f'"rc":{OUT_OF_MEMORY}' in main.output()


def test_a_user_without_privileges_is_limited(rig):
    seen = container(rig, 3000, user=1000).run(CLIENT, "ctx", "total", "alloc=2600M", "alloc=100M")
    assert op(seen, "total")["total"] == 3000 * MIB
    assert [line["rc"] for line in seen.lines if line["op"] == "alloc"] == [0, OUT_OF_MEMORY]


def test_a_read_only_image_is_limited(rig):
    if (rig.runtime, rig.mode) == ("crun", "cdi"):
        pytest.skip("crun makes the root read-only before NVIDIA's CDI hooks make their links in it, so it does not start without us either")
    seen = container(rig, 3000, readonly=True).run(CLIENT, "ctx", "alloc=2700M", "alloc=2600M")
    assert [line["rc"] for line in seen.lines if line["op"] == "alloc"] == [OUT_OF_MEMORY, 0]


def test_containers_of_one_pod_get_their_own_shares_by_name(rig):
    pod = rig.pod("pair", {"first": share(rig, 3000), "second": share(rig, 5000, card=1)})
    second, first = pod.start("second"), pod.start("first")
    assert op(first.run(CLIENT, "uuid", "total"), "total")["total"] == 3000 * MIB
    assert op(first.run(CLIENT, "uuid"), "uuid")["uuid"] == rig.cards[0]
    assert op(second.run(CLIENT, "uuid", "total"), "total")["total"] == 5000 * MIB
    assert op(second.run(CLIENT, "uuid"), "uuid")["uuid"] == rig.cards[1]


def test_a_container_that_the_allocation_does_not_name_gets_no_device(rig):
    pod = rig.pod("pair", {"main": share(rig)})
    try:
        side = pod.start("sidecar", image="hostile", env={"LD_PRELOAD": ""})
    except CallFailed as refused:
        assert "sidecar" in str(refused)
        return
    assert side.run("/bin/ls", "/dev").out.count("nvidia") == 0


def test_both_cards_of_one_container_have_their_own_limit(rig):
    both = allocation.container(allocation.gpu(rig.cards[0], 3000), allocation.gpu(rig.cards[1], 5000))
    main = rig.pod("two-cards", {"main": both}).start()
    assert op(main.run(CLIENT, "count"), "count")["count"] == 2
    totals = [op(main.run(CLIENT, f"device={n}", "total"), "total")["total"] for n in (0, 1)]
    assert sorted(totals) == [3000 * MIB, 5000 * MIB]


def test_only_the_allocated_card_is_in_the_container_whatever_it_asks_for(rig):
    greedy = {"NVIDIA_VISIBLE_DEVICES": "all", "NVIDIA_DRIVER_CAPABILITIES": "all"}
    main = rig.pod("one-card", {"main": share(rig, card=1)}).start(env=greedy)
    names = main.run("/bin/ls", "/dev").out.split()
    assert "nvidia1" in names and "nvidia0" not in names
    assert op(main.run(CLIENT, "count"), "count")["count"] == 1


def test_br133_a_preload_of_the_image_runs_in_no_hook(rig):
    main = container(rig, 3000, image="hostile", env={"NVIDIA_VISIBLE_DEVICES": rig.cards[0]})
    main.run(CLIENT, "total")
    assert main.run("/bin/ls", "/run/evil-was-here").status == 0, "the image's library does not work: this test shows nothing"
    assert not images.evil_mark().exists()
    assert op(main.run(CLIENT, "total"), "total")["total"] == 3000 * MIB


FORMS = ["all", "0", "0,1", "none", "uuid", "nvidia.com/gpu=all", "runtime.nvidia.com/gpu=all"]


@pytest.mark.parametrize("form", FORMS)
def test_br168_a_device_variable_without_an_allocation_gives_no_device(rig, form):
    value = rig.cards[0] if form == "uuid" else form
    pod = rig.pod("greedy")
    main = pod.start("main", image="hostile", env={"NVIDIA_VISIBLE_DEVICES": value})
    assert "nvidia" not in main.run("/bin/ls", "/dev").out
    assert main.run(CLIENT, "count").status == 1


def test_a_volume_mount_that_asks_for_devices_gives_none(rig):
    pod = rig.pod("greedy")
    main = pod.start("main", mounts=[("/dev/null", f"/var/run/nvidia-container-devices/{rig.cards[0]}")])
    assert "nvidia" not in main.run("/bin/ls", "/dev").out


def test_exec_into_a_container_that_is_not_started_is_refused(each_runtime):
    made = gpu_bundle(each_runtime)
    try:
        made.create()
        with pytest.raises(bundle.Failed, match="not.*started|started"):
            made.execute(CLIENT, "total")
        made.start()
        assert f'"total":{3000 * MIB}' in made.execute(CLIENT, "total")
    finally:
        made.remove()


def test_a_container_in_a_user_namespace_is_limited(rig):
    made = gpu_bundle(rig, user_namespace=True)
    try:
        made.create()
        made.start()
        seen = made.execute(CLIENT, "ctx", "total", "alloc=2700M", "alloc=2600M")
        assert f'"total":{3000 * MIB}' in seen
        assert f'"rc":{OUT_OF_MEMORY}' in seen
    finally:
        made.remove()


def gpu_bundle(node, memory=3000, **settings):
    """A container by hand, through the product as installed."""
    made = bundle.Bundle(node, ["/usr/bin/vgpu-runtime"], **settings)
    made.spec["annotations"].update(
        allocation.annotations(node.signer, node.allocation(made.pod_uid, {"main": share(node, memory)})))
    made.spec["process"]["env"].append("VGPU_REQUESTED=1")
    made.write()
    return made
