"""Waiting for a condition that nothing announces."""
import time

INTERVAL = 0.01  # seconds


class TimedOut(Exception):
    pass


def wait_until(condition, what, seconds=60):
    """Returns the first true value of condition(); raises TimedOut naming `what` when it stays false."""
    deadline = time.monotonic() + seconds
    while True:
        value = condition()
        if value:
            return value
        if time.monotonic() > deadline:
            raise TimedOut(f"{what}: not within {seconds} s")
        time.sleep(INTERVAL)
