"""Waiting for what must become true."""

import time


class Failed(Exception):
    """Why a check has failed."""


def wait_until(what, is_true, seconds=60, pause=0.02):
    """Returns what is_true() has found, once that is something."""
    end = time.monotonic() + seconds
    while not (found := is_true()):
        if time.monotonic() > end:
            raise Failed(f"after {seconds} s it is not so that {what}")
        time.sleep(pause)
    return found
