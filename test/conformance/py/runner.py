"""What the runners in Python share: what a scenario may say, and how it is told.
sdk <tab> library <tab> version
scenario <tab> id <tab> pass|fail|skip <tab> milliseconds <tab> text
end <tab> number of scenarios"""

import os
import sys
import threading
import time
import traceback

SOON = 20  # seconds to wait for what must come
QUIET = 1.2  # seconds to listen for what must not come

WIRE = os.environ.get("BUSBAR_WIRE", "plain")
CA = os.environ.get("BUSBAR_CA", "")

_said = threading.Lock()


def lines(name):
    return [line for line in os.environ.get(name, "").split("\n") if line]


class Skip(Exception):
    """The library has nothing like it."""


def check(condition, text="not so"):
    if not condition:
        raise AssertionError(text)


def equal(got, want, what="got"):
    if got != want:
        raise AssertionError(f"{what} {got!r}, want {want!r}")


def say(*fields):
    line = "\t".join(" ".join(str(f).split()) for f in fields)
    with _said:
        print(line, flush=True)


def chosen(modules):
    """The scenarios to run, by id."""
    every = {}
    for module in modules:
        every.update(module.SCENARIOS)
    only = os.environ.get("BUSBAR_ONLY", "").split()
    absent = os.environ.get("BUSBAR_ABSENT", "").split()
    return {k: f for k, f in every.items() if k not in absent and (not only or k in only)}


def listed(modules):
    """With --list, prints the ids of the scenarios and says so."""
    if sys.argv[1:2] != ["--list"]:
        return False
    for module in modules:
        for scenario in module.SCENARIOS:
            print(scenario)
    return True


class Told:
    """Tells of one scenario at the end of a with block, however it ended."""

    def __init__(self, scenario):
        self.scenario, self.began = scenario, time.monotonic()

    def __enter__(self):
        return self

    def __exit__(self, kind, err, trace):
        state, text = "pass", ""
        if isinstance(err, Skip):
            state, text = "skip", str(err)
        elif err is not None:  # whatever it is, it is told
            state, text = "fail", _story(err)
        say("scenario", self.scenario, state, int(1000 * (time.monotonic() - self.began)), text)
        return True


def _story(err):
    """The error, and the lines of the scenario that led to it."""
    here = os.path.dirname(os.path.abspath(sys.argv[0]))
    way = [f"{os.path.basename(f.filename)}:{f.lineno}" for f in traceback.extract_tb(err.__traceback__)
           if f.filename.startswith(here)]
    return f"{type(err).__name__}: {err} at {' '.join(way)}"
