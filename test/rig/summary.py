"""Adds up JUnit result files: prints 'N passed, N failed, N skipped' and fails unless something passed and nothing failed."""
import pathlib
import sys
import xml.etree.ElementTree


def count(path):
    passed = failed = skipped = 0
    for case in xml.etree.ElementTree.parse(path).iter("testcase"):
        if case.find("failure") is not None or case.find("error") is not None:
            failed += 1
        elif case.find("skipped") is not None:
            skipped += 1
        else:
            passed += 1
    return passed, failed, skipped


def main(paths):
    passed, failed, skipped = (sum(figures) for figures in zip(*map(count, filter(pathlib.Path.exists, paths)), (0, 0, 0)))
    print(f"{passed} passed, {failed} failed, {skipped} skipped")
    return 0 if passed and not failed else 1


if __name__ == "__main__":
    sys.exit(main([pathlib.Path(path) for path in sys.argv[1:]]))
