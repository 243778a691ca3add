#!/usr/bin/python3
"""Runs gpu.py on a rig node (test/rig/enter.py) with the simulated driver where NVIDIA's would be."""
import os
import pathlib
import sys

HERE = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent / "rig"))
import install  # noqa: E402  the rig's modules lie beside
import simulator  # noqa: E402

build = pathlib.Path(os.environ["VGPU_BUILD"])
install.driver(build)
simulator.Simulator(pathlib.Path(os.environ["VGPU_RIG_WORK"])).start()
os.execv("/usr/bin/python3", ["python3", str(HERE / "gpu.py"), "--build", str(build), "--json", sys.argv[1]])
