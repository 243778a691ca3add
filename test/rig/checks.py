"""Numbered checks for people: what is expected, what was seen."""
import sys
import traceback


class Checks:
    def __init__(self, out=sys.stdout):
        self._out = out
        self.passed = self.failed = 0

    def section(self, title):
        print(f"\n== {title}", file=self._out, flush=True)

    def check(self, what, expected, see):
        """`see()` returns what is seen; equal to `expected`, or true for a predicate with a description (Such)."""
        number = self.passed + self.failed + 1
        try:
            seen = see()
        except Exception as error:  # pylint: disable=broad-except  # whatever it is, the check has failed
            traceback.print_exc(limit=1)
            seen = f"{type(error).__name__}: {error}"
        good = expected == seen
        self.passed, self.failed = self.passed + good, self.failed + (not good)
        print(f"{number:3} {'ok  ' if good else 'FAIL'} {what}\n           expected: {expected}\n           seen:     {seen}",
              file=self._out, flush=True)
        return good

    def summary(self):
        print(f"\n{self.passed} checks passed, {self.failed} failed", file=self._out, flush=True)
        return 0 if self.passed and not self.failed else 1


class Such:
    """Equal to whatever has the property; prints as its description."""

    def __init__(self, description, holds):
        self._description, self._holds = description, holds

    def __eq__(self, seen):
        return bool(self._holds(seen))

    def __str__(self):
        return self._description


def text_with(*words):
    return Such("a refusal that names " + ", ".join(f"'{word}'" for word in words),
                lambda seen: isinstance(seen, str) and all(word in seen for word in words))


def at_most(bytes_limit, floor=0):
    mib = 1 << 20
    return Such(f"more than {floor // mib} MiB, at most {bytes_limit // mib} MiB",
                lambda seen: isinstance(seen, Amount) and floor < seen.bytes <= bytes_limit)


class Amount:
    def __init__(self, amount):
        self.bytes = amount

    def __str__(self):
        return f"{self.bytes / (1 << 20):.0f} MiB"
