"""The simulated driver's state on the node, and its own truth about who holds what."""
import json
import pathlib
import subprocess
import tomllib

import install
from wait import wait_until

SCENARIO = pathlib.Path(__file__).resolve().parents[1] / "fakes" / "nvidia" / "scenarios" / "two-cards.toml"
DEFAULT_CONTEXT_MIB = 320


class Simulator:
    def __init__(self, work):
        self.work = work
        scenario = tomllib.loads(SCENARIO.read_text())
        self.cards = [{"uuid": card["uuid"], "minor": card["minor"]} for card in scenario["gpu"]]
        self.context_bytes = scenario.get("context_mib", DEFAULT_CONTEXT_MIB) << 20
        self.memory_mib = scenario["gpu"][0]["memory_mib"]

    def start(self):
        for minor in [255, *(card["minor"] for card in self.cards)]:
            name = "/dev/nvidiactl" if minor == 255 else f"/dev/nvidia{minor}"
            subprocess.run(["mknod", "-m", "666", name, "c", "195", str(minor)], check=True)
        self._tool("init", "--scenario", str(SCENARIO), install.SIMULATOR)
        pathlib.Path(install.SIMULATOR).chmod(0o666)

    def _tool(self, *arguments):
        done = subprocess.run(["nvidia-sim", *arguments], check=True, capture_output=True, text=True)
        return done.stdout

    def ledger(self):
        return json.loads(self._tool("ledger", "--json", install.SIMULATOR))

    def settle(self):
        """Waits until the driver has let go of what dead processes held, then forgets all peaks."""
        wait_until(lambda: not self.ledger()["processes"], "the driver's clean-up after dead processes")
        self._tool("reset-peaks", install.SIMULATOR)
