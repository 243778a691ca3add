#!/usr/bin/python3
"""What a library in a stranger's process must be, read from the built files.

usage: properties_test.py BUILD_DIRECTORY_OF_THE_LIMITER NAMES_OF_HOOKS_PROGRAM"""
import pathlib
import re
import subprocess
import sys
import unittest

BUILD = pathlib.Path(sys.argv[1])
HOOK_NAMES = sys.argv[2]
SONAMES = {"cuda": "libcuda.so.1", "nvml": "libnvidia-ml.so.1"}
VARIANTS = [(kind, n) for kind in SONAMES for n in range(8)]


def output(*command):
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout


def library(kind, n):
    return BUILD / f"libvgpu-{kind}.{n}.so"


def dynamic(kind, n, tag):
    return re.findall(rf"\({tag}\)\s+(?:[A-Za-z ]+: )?\[?([^\]\n]+)\]?", output("readelf", "-dW", str(library(kind, n))))


class Properties(unittest.TestCase):
    def test_each_variant_needs_its_own_driver_file_and_the_c_library_alone(self):
        for kind, n in VARIANTS:
            wanted = {f"/usr/lib/vgpu/driver/{kind}.{n}", "libc.so.6", "libdl.so.2", "libpthread.so.0"}
            self.assertEqual(set(dynamic(kind, n, "NEEDED")), wanted)

    def test_each_variant_bears_the_drivers_name(self):
        for kind, n in VARIANTS:
            self.assertEqual(dynamic(kind, n, "SONAME"), [SONAMES[kind]])

    def test_each_variant_opens_its_own_driver_file(self):
        for kind, n in VARIANTS:
            found = set(re.findall(rb"/usr/lib/vgpu/driver/[a-z]+\.[0-9]", library(kind, n).read_bytes()))
            self.assertEqual(found, {f"/usr/lib/vgpu/driver/{kind}.{n}".encode()})

    def test_no_symbol_is_newer_than_glibc_2_17(self):
        for kind, n in VARIANTS:
            versions = re.findall(r"GLIBC_([0-9.]+)", output("objdump", "-T", str(library(kind, n))))
            self.assertTrue(versions)
            self.assertLessEqual(max(tuple(map(int, version.split("."))) for version in versions), (2, 17))

    def test_it_exports_its_hooks_and_nothing_else(self):
        hooks = set(output(HOOK_NAMES).split())
        for kind, n in VARIANTS:
            exported = {line.split()[-1] for line in output("nm", "-D", "--defined-only", str(library(kind, n))).splitlines()}
            self.assertEqual(exported, {name for name in hooks if name.startswith("cu" if kind == "cuda" else "nvml")})
            self.assertTrue(exported)

    def test_thread_local_memory_is_at_most_64_bytes(self):
        for kind, n in VARIANTS:
            for line in output("readelf", "-lW", str(library(kind, n))).splitlines():
                if line.split()[:1] == ["TLS"]:
                    self.assertLessEqual(int(line.split()[5], 16), 64)

    def test_it_stays_loaded_binds_at_once_and_runs_no_code_from_its_stack(self):
        for kind, n in VARIANTS:
            flags = " ".join(dynamic(kind, n, "FLAGS_1"))
            self.assertIn("NODELETE", flags)
            self.assertIn("NOW", flags)
            self.assertFalse(dynamic(kind, n, "RUNPATH") or dynamic(kind, n, "RPATH"))
            headers = output("readelf", "-lW", str(library(kind, n)))
            self.assertRegex(headers, r"GNU_STACK\s.* RW ")
            self.assertIn("GNU_RELRO", headers)

    def test_it_exports_functions_alone(self):
        for kind, n in VARIANTS:
            kinds = {line.split()[1] for line in output("nm", "-D", "--defined-only", str(library(kind, n))).splitlines()}
            self.assertEqual(kinds, {"T"})


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1], verbosity=2)
