#!/usr/bin/python3
"""Who may use whom: reads the table in ARCHITECTURE.md and every #include of the tree, and names each include that breaks it."""
import pathlib
import re
import sys

root = pathlib.Path(sys.argv[1] if len(sys.argv) > 1 else __file__).resolve()
root = root if root.is_dir() else root.parents[2]
table = {}
for line in (root / "ARCHITECTURE.md").read_text().splitlines():
    row = re.match(r"\| `([a-z/-]+)/` \|.*\|([^|]*)\|$", line)
    if row:
        table[row[1]] = {row[1], *re.findall(r"`([a-z/-]+)/`", row[2])}
if len(table) < 6:
    sys.exit("the table of components in ARCHITECTURE.md was not found")


def component(path):
    return max((name for name in table if path.startswith(name + "/")), key=len, default=None)


bad = []
seen = 0
for source in sorted(root.rglob("*")):
    name = source.relative_to(root).as_posix()
    owner = component(name)
    if source.suffix not in {".h", ".c", ".cpp"} or owner is None or name.startswith(("build/", "test/")):
        continue
    for number, line in enumerate(source.read_text().splitlines(), 1):
        include = re.match(r'\s*#\s*include\s+"([^"]+)"', line)
        if include:
            seen += 1
            used = component(include[1])
            if used is None or used not in table[owner]:
                bad.append(f"{name}:{number}: '{owner}' may not include '{include[1]}'")
print("\n".join(bad) or f"{seen} includes, all allowed")
sys.exit(1 if bad or not seen else 0)
