"""Runs the scenarios of plain AMQP 1.0 with Qpid Proton and prints one line for each:
scenario <tab> id <tab> pass|fail|skip <tab> milliseconds <tab> text"""

import sys
from concurrent.futures import ThreadPoolExecutor

import proton

import common
import delivering
import links
import passing
import sessions
import topics
from env import Env, hold
from runner import Told, chosen, listed, say

# What waits for a lock is cheap, so several scenarios run at once.
AT_ONCE = 8
MODULES = (common, delivering, links, passing, sessions, topics)


def run(scenario, function, index):
    env = Env(scenario, index)
    with Told(scenario):
        try:
            function(env)
        finally:
            env.close()


def main():
    say("sdk", "python3-qpid-proton", ".".join(str(n) for n in proton.VERSION))
    todo = chosen(MODULES)
    with ThreadPoolExecutor(AT_ONCE) as pool:
        for index, (scenario, function) in enumerate(todo.items()):
            pool.submit(run, scenario, function, index)
    say("end", len(todo))


if __name__ == "__main__":
    if sys.argv[1:2] == ["--hold"]:
        hold(sys.argv[2])
    if not listed(MODULES):
        main()
