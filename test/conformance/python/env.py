"""What a scenario gets: clients and entities of its own. A scenario is written once: do() awaits what
the asynchronous clients return and runs what the blocking ones would block on in a thread."""

import asyncio
import inspect
import time
import uuid
from datetime import datetime, timedelta, timezone

import azure.servicebus
import azure.servicebus.aio
import azure.servicebus.aio.management
import azure.servicebus.management
from azure.servicebus import ServiceBusMessage, ServiceBusSubQueue, TransportType
from azure.servicebus.exceptions import (MessageLockLostError, MessagingEntityNotFoundError,
                                         ServiceBusAuthenticationError, ServiceBusConnectionError, ServiceBusError)

from runner import CA, QUIET, SOON, WIRE, Skip, check, equal, lines

# The library tells a token refused with 404 as a failure to authenticate.
MISSING = (MessagingEntityNotFoundError, ServiceBusAuthenticationError)
LOCK_LOST = MessageLockLostError
if azure.servicebus.__version__.startswith("7.8."):  # it stands on another library, whose errors it lets through
    from uamqp.errors import TokenAuthFailure
    MISSING += (TokenAuthFailure,)
    LOCK_LOST = ServiceBusError
elif azure.servicebus.__version__.startswith("7.14."):
    from azure.servicebus._pyamqp.error import TokenAuthFailure
    MISSING += (TokenAuthFailure,)


def text(message):
    return b"".join(message.body).decode(errors="replace")


def texts(messages):
    return [text(m) for m in messages]


def message(body="x", **properties):
    return ServiceBusMessage(body, **properties)


def seconds(n):
    """The date n seconds from now, in whole milliseconds, as AMQP carries it."""
    now = datetime.now(timezone.utc)
    return now.replace(microsecond=now.microsecond // 1000 * 1000) + timedelta(seconds=n)


def on_time(at):
    """Fails when it is not yet the date that a message was scheduled for."""
    now = datetime.now(timezone.utc)
    check(now >= at, f"received {at - now} before its time")


def skip(reason):
    async def scenario(e):
        raise Skip(reason)
    return scenario


class Env:
    def __init__(self, scenario, index, mode):
        self.index, self.made, self.closers = index, 0, []
        self.prefix = f"py-{mode}-{scenario}-{uuid.uuid4().hex[:8]}"
        self.aio = mode == "aio"
        self.bus = azure.servicebus.aio if self.aio else azure.servicebus
        self.management = azure.servicebus.aio.management if self.aio else azure.servicebus.management

    async def do(self, function, *args, **kw):
        """Calls a method of the library, whichever kind of client it belongs to."""
        if not self.aio:
            return await asyncio.to_thread(function, *args, **kw)
        result = function(*args, **kw)
        return await result if inspect.isawaitable(result) else result

    def data_string(self, i=0):
        every = lines("BUSBAR_DATA")
        return every[(self.index + i) % len(every)]

    def admin_string(self, i=0):
        every = lines("BUSBAR_ADMIN")
        return every[(self.index + i) % len(every)]

    def client(self, i=0, **kw):
        return self.client_for(self.data_string(i), **kw)

    def client_for(self, connection_string, **kw):
        options = {"retry_total": 2, "retry_backoff_factor": 0.2, **kw}
        if WIRE != "plain":
            options["connection_verify"] = CA
        if WIRE == "websocket":
            endpoint = connection_string.split(";")[0].removeprefix("Endpoint=").rstrip("/")
            options.update(custom_endpoint_address=endpoint, transport_type=TransportType.AmqpOverWebsocket)
        c = self.bus.ServiceBusClient.from_connection_string(connection_string, **options)
        self.later(c.close)
        return c

    def admin(self, i=0):
        """The management client speaks https only, whatever the data goes over."""
        a = self.management.ServiceBusAdministrationClient.from_connection_string(
            self.admin_string(i), connection_verify=CA)
        self.later(a.close)
        return a

    def later(self, function, *args):
        self.closers.append((function, args))

    def name(self, kind="q"):
        self.made += 1
        return f"{self.prefix}-{kind}{self.made}"

    async def queue(self, **options):
        name, a = self.name(), self.admin()
        await self.do(a.create_queue, name, **options)
        self.later(a.delete_queue, name)
        return name

    async def session_queue(self, **options):
        return await self.queue(requires_session=True, **options)

    async def topic(self, **options):
        name, a = self.name("t"), self.admin()
        await self.do(a.create_topic, name, **options)
        self.later(a.delete_topic, name)
        return name

    def sender(self, client, queue):
        return client.get_queue_sender(queue)

    async def send(self, queue, *messages, node=0):
        s = self.client(node).get_queue_sender(queue)
        await self.do(s.send_messages, list(messages))
        await self.do(s.close)

    def receiver(self, queue, node=1, **kw):
        return self.client(node).get_queue_receiver(queue, **kw)

    def dead_letters(self, queue, node=0):
        return self.client(node).get_queue_receiver(queue, sub_queue=ServiceBusSubQueue.DEAD_LETTER)

    async def accept(self, queue, session, node=1, **kw):
        """Accepts a session now: the library does it when the receiver is entered."""
        options = {k: kw.pop(k) for k in ("retry_total",) if k in kw}
        r = self.client(node, **options).get_queue_receiver(queue, session_id=session, **kw)
        await self.open(r)
        return r

    async def close(self):
        for function, args in reversed(self.closers):
            try:
                await self.do(function, *args)
            except Exception:  # the scenario has done it itself, or has failed already
                pass

    async def receive(self, receiver, n, wait):
        return await self.do(receiver.receive_messages, max_message_count=n, max_wait_time=wait)

    async def take(self, receiver, n):
        got, end = [], time.monotonic() + SOON
        while len(got) < n:
            left = end - time.monotonic()
            check(left > 0, f"received {len(got)} of {n}: {texts(got)}")
            got += await self.receive(receiver, n - len(got), left)
        return got

    async def one(self, receiver):
        return (await self.take(receiver, 1))[0]

    async def open(self, receiver):
        """Attaches the link now, in its own time; otherwise the first receive's time has to do."""
        await self.do(receiver.__aenter__ if self.aio else receiver.__enter__)
        self.later(receiver.close)

    async def none(self, receiver):
        if not receiver._running:
            await self.open(receiver)
        equal(texts(await self.receive(receiver, 1, QUIET)), [], "received")

    async def complete(self, receiver, *messages):
        for m in messages:
            await self.do(receiver.complete_message, m)

    async def peek(self, receiver, n=10, sequence_number=1):
        return await self.do(receiver.peek_messages, max_message_count=n, sequence_number=sequence_number)

    async def fails(self, kinds, function, *args, **kw):
        try:
            await self.do(function, *args, **kw)
        except kinds as err:
            return err
        except ServiceBusConnectionError as err:
            # Of an endpoint of one's own, the library tells a refused token in this way.
            check(WIRE != "plain" and "TokenAuthFailure" in repr(err.inner_exception), str(err))
            return err
        raise AssertionError(f"succeeded, want {kinds}")

    async def each(self, paged):
        """Everything of a paged list."""
        if self.aio:
            return [x async for x in paged]
        return await asyncio.to_thread(list, paged)


async def until(what, function):
    """Polls for what the broker does at a time of its own."""
    end = time.monotonic() + SOON
    while True:
        got = await function()
        if got:
            return got
        check(time.monotonic() < end, f"waited in vain: {what}")
        await asyncio.sleep(0.1)
