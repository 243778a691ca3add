"""Allocations as the scheduler writes them, signed with a test key; formats of api/allocation.h."""
import base64
import hashlib
import json
import pathlib

import nacl.signing

TRUST = pathlib.Path("/etc/vgpu/trust.d")
DOMAIN = b"vgpu.io/allocation/v1\n"


class Signer:
    def __init__(self):
        self._key = nacl.signing.SigningKey.generate()
        self.public = bytes(self._key.verify_key)
        self.kid = hashlib.sha256(self.public).hexdigest()[:16]

    def trust(self):
        TRUST.mkdir(parents=True, exist_ok=True)
        file = TRUST / f"{self.kid}.pub"
        file.write_text(base64.b64encode(self.public).decode() + "\n")
        file.chmod(0o644)

    def sign(self, text):
        signature = self._key.sign(DOMAIN + text.encode()).signature
        return f"{self.kid}.{base64.b64encode(signature).decode()}"


def gpu(uuid, memory, cores=0):
    """`memory` in MiB, `cores` in per cent (0 = unlimited)."""
    return {"uuid": uuid, "memory": memory, "cores": cores}


def container(*gpus, policy="default", caps="compute,utility"):
    return {"gpus": list(gpus), "policy": policy, "priority": 1, "onLimit": "error", "oversubscribe": False,
            "caps": caps}


def text(pod_uid, node, containers, generation=1):
    """The exact bytes to sign. `containers`: name -> container(…)."""
    return json.dumps({"v": 1, "gen": generation, "pod": pod_uid, "node": node, "containers": containers},
                      separators=(",", ":"))


def annotations(signer, allocation):
    return {"vgpu.io/allocation": allocation, "vgpu.io/signature": signer.sign(allocation)}
