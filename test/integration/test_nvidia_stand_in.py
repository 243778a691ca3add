"""The stand-in for NVIDIA's runtime is as strict as the real one: what it would not take from us, the real one would not either."""
import json
import os
import pathlib
import subprocess

import pytest

from conftest import ROOT, require

BUILD = pathlib.Path(os.environ.get("VGPU_BUILD", ROOT / "build" / "dev")).resolve()
PROGRAM = BUILD / "test" / "fakes" / "nvidia-container-runtime" / "nvidia-container-runtime"
SPEC = {"ociVersion": "1.0.2", "process": {"user": {"uid": 0, "gid": 0}, "args": ["/bin/x"], "env": ["A=b"], "cwd": "/"},
        "root": {"path": "rootfs"}}


class Bundle:
    def __init__(self, path):
        self.path = path
        (path / "config.toml").write_text('[nvidia-container-runtime]\nmode = "legacy"\nruntimes = ["/bin/true"]\n')

    def create(self, spec, *arguments):
        (self.path / "config.json").write_text(json.dumps(spec))
        command = [PROGRAM, "--log", self.path / "log", *(arguments or ("create", "--bundle", self.path, "x"))]
        return subprocess.run(command, env={"NVIDIA_CTK_CONFIG_FILE_PATH": str(self.path / "config.toml")}, cwd="/",
                              capture_output=True, text=True, check=False).returncode

    def error(self):
        return json.loads((self.path / "log").read_text().splitlines()[-1])

    def spec(self):
        return json.loads((self.path / "config.json").read_text())


@pytest.fixture
def bundle(tmp_path):
    require("build", PROGRAM.is_file(), f"'{PROGRAM}' is not built")
    return Bundle(tmp_path)


@pytest.mark.parametrize("place", ["", "process", "root"])
def test_a_field_it_does_not_know_is_refused_with_a_line_in_the_log(bundle, place):
    spec = json.loads(json.dumps(SPEC))
    (spec[place] if place else spec)["vgpu"] = True
    assert bundle.create(spec) == 1
    assert bundle.error()["level"] == "error" and 'unknown field "vgpu"' in bundle.error()["msg"]


def test_an_environment_entry_without_an_equals_sign_is_refused(bundle):
    assert bundle.create({**SPEC, "process": {**SPEC["process"], "env": ["PATH"]}}) == 1
    assert "invalid environment variable" in bundle.error()["msg"]


def test_a_hook_with_an_empty_environment_loses_it(bundle):
    assert bundle.create({**SPEC, "hooks": {"poststop": [{"path": "/x", "env": []}]}}) == 0
    assert bundle.spec()["hooks"]["poststop"] == [{"path": "/x"}]


def test_large_numbers_keep_their_value(bundle):
    limits = [{"type": "RLIMIT_NOFILE", "hard": 2**64 - 1, "soft": 2**63}]
    assert bundle.create({**SPEC, "process": {**SPEC["process"], "rlimits": limits}}) == 0
    assert bundle.spec()["process"]["rlimits"] == limits


def test_without_a_wish_nothing_is_added(bundle):
    assert bundle.create(SPEC) == 0
    assert bundle.spec() == SPEC


def test_only_create_is_edited(bundle):
    spec = {**SPEC, "vgpu": True}
    assert bundle.create(spec, "start", "x") == 0
    assert bundle.spec() == spec


def test_a_device_that_nothing_answers_to_is_refused(bundle):
    assert bundle.create({**SPEC, "process": {**SPEC["process"], "env": ["NVIDIA_VISIBLE_DEVICES=GPU-nowhere"]}}) == 1
    assert "GPU-nowhere" in bundle.error()["msg"]
