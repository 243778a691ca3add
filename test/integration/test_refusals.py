"""Allocations that must not count: the container does not start, and the engine's text says which pod and why."""
import json
import uuid

import pytest

import allocation
from cri import CallFailed
from node import NODE_NAME


def share(node, memory=3000):
    return {"main": allocation.container(allocation.gpu(node.cards[0], memory))}


def refusal(node, annotations, uid=None, **settings):
    """The text a user sees; fails the test if the container starts."""
    pod = node.pod("train", share(node), annotations=annotations, uid=uid, privileged=settings.get("privileged", False))
    with pytest.raises(CallFailed) as refused:
        pod.start("main", **settings)
    text = str(refused.value)
    assert "default/train" in text, text
    assert "\n" not in text.strip(), text
    return text


@pytest.fixture
def uid():
    return str(uuid.uuid4())


def test_a_forged_allocation_is_refused(each_runtime, uid):
    forger = allocation.Signer()
    text = each_runtime.allocation(uid, share(each_runtime))
    seen = refusal(each_runtime, allocation.annotations(forger, text), uid)
    assert forger.kid in seen and "trust" in seen


def test_a_forged_signature_under_a_trusted_key_is_refused(each_runtime, uid):
    text = each_runtime.allocation(uid, share(each_runtime))
    forged = allocation.Signer().sign(text).split(".")[1]
    annotations = {"vgpu.io/allocation": text, "vgpu.io/signature": f"{each_runtime.signer.kid}.{forged}"}
    assert "signature" in refusal(each_runtime, annotations, uid)


def test_an_allocation_edited_after_signing_is_refused(each_runtime, uid):
    annotations = allocation.annotations(each_runtime.signer, each_runtime.allocation(uid, share(each_runtime)))
    annotations["vgpu.io/allocation"] = annotations["vgpu.io/allocation"].replace("3000", "9000")
    assert "changed after" in refusal(each_runtime, annotations, uid)


def test_an_allocation_of_another_pod_is_refused(each_runtime, uid):
    other = str(uuid.uuid4())
    text = each_runtime.allocation(other, share(each_runtime))
    assert other in refusal(each_runtime, allocation.annotations(each_runtime.signer, text), uid)


def test_an_allocation_of_another_node_is_refused(each_runtime, uid):
    text = each_runtime.allocation(uid, share(each_runtime), node="elsewhere")
    seen = refusal(each_runtime, allocation.annotations(each_runtime.signer, text), uid)
    assert "elsewhere" in seen and NODE_NAME in seen


def test_an_older_generation_than_the_record_is_refused(each_runtime, uid):
    older = each_runtime.allocation(uid, share(each_runtime, 9000), generation=7)
    newer = each_runtime.allocation(uid, share(each_runtime), generation=8)
    each_runtime.record(uid, newer, each_runtime.signer.sign(newer), generation=8)
    seen = refusal(each_runtime, allocation.annotations(each_runtime.signer, older), uid)
    assert "7" in seen and "8" in seen and "generation" in seen


def test_an_allocation_without_a_signature_is_refused(each_runtime, uid):
    text = each_runtime.allocation(uid, share(each_runtime))
    assert "vgpu.io/signature" in refusal(each_runtime, {"vgpu.io/allocation": text}, uid)


def test_an_allocation_that_is_no_json_is_refused(each_runtime, uid):
    refusal(each_runtime, allocation.annotations(each_runtime.signer, '{"v":1,'), uid)


def test_an_allocation_of_a_card_that_is_not_here_is_refused(each_runtime, uid):
    absent = "GPU-00000000-0000-4000-8000-000000000000"
    text = each_runtime.allocation(uid, {"main": allocation.container(allocation.gpu(absent, 3000))})
    assert absent in refusal(each_runtime, allocation.annotations(each_runtime.signer, text), uid)


def test_a_request_without_an_allocation_is_refused_as_not_yet_allocated(each_runtime):
    seen = refusal(each_runtime, {}, env={"VGPU_REQUESTED": "1"})
    assert "not yet allocated" in seen


def test_a_privileged_container_with_an_allocation_is_refused(each_runtime, uid):
    annotations = allocation.annotations(each_runtime.signer, each_runtime.allocation(uid, share(each_runtime)))
    assert "privileged" in refusal(each_runtime, annotations, uid, privileged=True)


def test_a_volume_over_the_private_directory_is_refused(each_runtime, uid, tmp_path):
    annotations = allocation.annotations(each_runtime.signer, each_runtime.allocation(uid, share(each_runtime)))
    seen = refusal(each_runtime, annotations, uid, mounts=[(tmp_path, "/usr/lib/vgpu/driver")])
    assert "/usr/lib/vgpu" in seen


def test_an_allocation_in_the_record_alone_is_enough(each_runtime, uid):
    text = each_runtime.allocation(uid, share(each_runtime))
    each_runtime.record(uid, text, each_runtime.signer.sign(text), generation=1)
    pod = each_runtime.pod("mirrored", annotations={}, uid=uid)
    seen = pod.start("main").run("/usr/bin/cuda_client", "total")
    assert [line["total"] for line in seen.lines if line["op"] == "total"] == [3000 << 20]


def test_annotations_that_are_not_ours_do_not_reach_the_container(each_runtime, uid):
    annotations = allocation.annotations(each_runtime.signer, each_runtime.allocation(uid, share(each_runtime)))
    pod = each_runtime.pod("train", annotations={**annotations, "vgpu.io/applied": "yes"}, uid=uid)
    spec = pod.start("main").spec()
    assert "vgpu.io/applied" not in json.dumps(spec)
    assert "/usr/lib/vgpu" in [mount["destination"] for mount in spec["mounts"]]
