"""The plugin for pytest: the fixture ``busbar`` is a broker for a test.

One broker serves a test run, or a process of pytest-xdist. It is empty when a test begins. The setting busbar_entities of pytest
names a file of entities. A report of a failed test has what the broker printed during the test.
"""

from __future__ import annotations

from typing import Any, Generator, Iterator

import pytest

import busbartest

_BROKER = pytest.StashKey[busbartest.Broker]()
_BEGAN = pytest.StashKey[int]()


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addini("busbar_entities", "file of entities that the fixture busbar begins with", type="paths", default=[])


@pytest.fixture(scope="session")
def busbar_of_session(pytestconfig: pytest.Config) -> Iterator[busbartest.Broker]:
    """The broker of the whole run. It is not emptied between tests."""
    files = pytestconfig.getini("busbar_entities")
    with busbartest.start(files[0] if files else None) as broker:
        yield broker


@pytest.fixture
def busbar(request: pytest.FixtureRequest, busbar_of_session: busbartest.Broker) -> busbartest.Broker:
    """The broker of the run, emptied before the test."""
    busbar_of_session.reset()
    request.node.stash[_BROKER] = busbar_of_session
    request.node.stash[_BEGAN] = len(busbar_of_session.log)
    return busbar_of_session


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item) -> Generator[None, Any, Any]:
    report = yield
    broker = item.stash.get(_BROKER, None)
    if report.failed and broker is not None:
        report.sections.append(("log of the broker", broker.log[item.stash[_BEGAN]:]))
    return report
