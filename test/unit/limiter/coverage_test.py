#!/usr/bin/python3
"""Every symbol that a limiter must account for is hooked, or stands in not_hooked.txt with a reason; and nothing stands there in vain.

usage: coverage_test.py SOURCE_ROOT LIBRARY..."""
import pathlib
import subprocess
import sys

root = pathlib.Path(sys.argv[1])
hooked = set()
for library in sys.argv[2:]:
    listed = subprocess.run(["nm", "-D", "--defined-only", library], check=True, capture_output=True, text=True).stdout
    hooked |= {line.split()[-1] for line in listed.splitlines()}

header, *lines = (root / "limiter/driver_symbols.tsv").read_text().splitlines()
columns = header.split("\t")
symbols = {row["symbol"]: row for row in (dict(zip(columns, line.split("\t"), strict=True)) for line in lines)}
excused = {}
for line in (root / "limiter/not_hooked.txt").read_text().splitlines():
    if line and not line.startswith("#"):
        symbol, _, reason = line.partition("\t")
        excused[symbol] = reason

faults = []
for symbol, row in symbols.items():
    if row["accounting"] != "pass" and symbol not in hooked and not excused.get(symbol):
        faults.append(f"'{symbol}' ({row['class']}, {row['accounting']}) has no hook and no reason in not_hooked.txt")
for symbol in excused:
    if symbol in hooked:
        faults.append(f"'{symbol}' is hooked: remove it from not_hooked.txt")
    elif symbols.get(symbol, {"accounting": "pass"})["accounting"] == "pass":
        faults.append(f"'{symbol}' needs no reason in not_hooked.txt: the table does not know it, or says 'pass'")
for symbol in hooked - symbols.keys():
    faults.append(f"'{symbol}' is hooked, but driver_symbols.tsv does not know it")

later = sum(reason.startswith("later") for reason in excused.values())
print(f"{len(symbols)} symbols, {len(hooked)} hooked, {later} missing so far, {len(excused) - later} left alone for good")
print("\n".join(faults))
sys.exit(1 if faults or len(symbols) < 1000 or not hooked else 0)
