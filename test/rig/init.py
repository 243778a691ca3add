"""The first process of a node: lays out its file systems, runs one command, reaps what nobody else waits for."""
import os
import sys

import filesystem


def main(command):
    filesystem.set_up()
    child = os.fork()
    if child == 0:
        os.execvp(command[0], command)
    while True:
        pid, status = os.wait()
        if pid == child:
            return os.waitstatus_to_exitcode(status)


if __name__ == "__main__":
    code = main(sys.argv[1:])
    sys.exit(code if code >= 0 else 128 - code)
