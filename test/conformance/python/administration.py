import base64
import hashlib
import hmac
import re
import time
import urllib.parse
from datetime import datetime, timedelta, timezone

import azure.servicebus
from azure.core.exceptions import (ClientAuthenticationError, HttpResponseError, ResourceExistsError,
                                   ResourceNotFoundError)
from azure.servicebus.exceptions import (MessagingEntityDisabledError, ServiceBusAuthenticationError,
                                         ServiceBusAuthorizationError)

from env import CA, SOON, check, equal, message, text, until


def wrong_key(connection_string):
    return re.sub("SharedAccessKey=[^;]*", "SharedAccessKey=wrong", connection_string)


def signature(connection_string, queue, expiry):
    """Signs the queue's address as an application that hands out tokens does."""
    parts = dict(p.split("=", 1) for p in connection_string.split(";") if p)
    endpoint = parts["Endpoint"].rstrip("/")
    resource = urllib.parse.quote_plus(f"{endpoint}/{queue}")
    digest = hmac.new(parts["SharedAccessKey"].encode(), f"{resource}\n{expiry}".encode(), hashlib.sha256)
    sig = urllib.parse.quote_plus(base64.b64encode(digest.digest()))
    token = f"SharedAccessSignature sr={resource}&sig={sig}&se={expiry}&skn={parts['SharedAccessKeyName']}"
    emulator = ";UseDevelopmentEmulator=true" if "UseDevelopmentEmulator" in parts else ""
    return f"Endpoint={endpoint}/;SharedAccessSignature={token}{emulator}"


async def missing(e, name, node=0):
    await e.fails(ResourceNotFoundError, e.admin(node).get_queue, name)


async def admin_queue(e):
    a, name = e.admin(0), e.name()
    made = await e.do(a.create_queue, name, lock_duration=timedelta(seconds=45), user_metadata="note")
    equal((made.name, made.lock_duration, made.user_metadata), (name, timedelta(seconds=45), "note"))
    read = await e.do(e.admin(1).get_queue, name)
    equal(read.lock_duration, timedelta(seconds=45), "lock")
    read.max_delivery_count, read.user_metadata = 11, "changed"
    await e.do(a.update_queue, read)
    read = await e.do(e.admin(1).get_queue, name.upper())
    equal((read.max_delivery_count, read.user_metadata), (11, "changed"))
    await e.do(a.delete_queue, name)
    for i in range(3):
        await missing(e, name, i)


async def admin_queue_options(e):
    target = await e.queue()
    options = dict(
        lock_duration=timedelta(minutes=2), max_size_in_megabytes=2048, requires_duplicate_detection=True,
        requires_session=False, default_message_time_to_live=timedelta(minutes=90),
        dead_lettering_on_message_expiration=True, max_delivery_count=17, enable_batched_operations=False,
        duplicate_detection_history_time_window=timedelta(minutes=20), user_metadata='ü <&> "note"',
        auto_delete_on_idle=timedelta(days=1), enable_partitioning=False)
    q = await e.queue(forward_dead_lettered_messages_to=target, **options)
    got = await e.do(e.admin(1).get_queue, q)
    for key, want in options.items():
        equal(getattr(got, key), want, key)
    check(got.forward_dead_lettered_messages_to.endswith(target), got.forward_dead_lettered_messages_to)


async def admin_queue_list(e):
    names = {await e.queue() for _ in range(5)}

    async def listed():
        return names <= {q.name for q in await e.each(e.admin().list_queues())}
    await until("every queue is listed", listed)


async def admin_conflict(e):
    q = await e.queue()
    await e.fails(ResourceExistsError, e.admin(1).create_queue, q)


async def admin_missing(e):
    name = e.name()
    await missing(e, name)
    await e.fails(ResourceNotFoundError, e.admin().get_queue_runtime_properties, name)
    await e.fails(ResourceNotFoundError, e.admin().delete_queue, name)


async def admin_counts(e):
    q = await e.queue()
    await e.send(q, *(message(b) for b in "abcd"))
    s = e.sender(e.client(0), q)
    await e.do(s.schedule_messages, message("later"), datetime.now(timezone.utc) + timedelta(minutes=1))
    r = e.receiver(q)
    await e.do(r.dead_letter_message, await e.one(r))

    async def counted():
        p = await e.do(e.admin(2).get_queue_runtime_properties, q)
        return p if p.active_message_count == 3 else None
    p = await until("the counts", counted)
    equal((p.dead_letter_message_count, p.scheduled_message_count, p.total_message_count), (1, 1, 5), "counts")
    equal((p.transfer_message_count, p.transfer_dead_letter_message_count), (0, 0), "counts of transfers")
    check(p.size_in_bytes > 0 and p.created_at_utc and p.updated_at_utc and p.accessed_at_utc, "size and times")


async def admin_namespace(e):
    p = await e.do(e.admin().get_namespace_properties)
    check(p.name and p.messaging_sku in ("Basic", "Standard", "Premium"), f"{p.name} {p.messaging_sku}")


async def admin_refused(e):
    for options in ({"lock_duration": timedelta(minutes=6)}, {"lock_duration": timedelta(seconds=1)},
                    {"max_delivery_count": 0}):
        err = await e.fails(HttpResponseError, e.admin().create_queue, e.name(), **options)
        equal(err.status_code, 400, "status")
        check(len(str(err)) > 20, f"no reason: {err}")
    q = await e.queue()
    p = await e.do(e.admin().get_queue, q)
    p.requires_session = True
    err = await e.fails(HttpResponseError, e.admin().update_queue, p)
    equal(err.status_code, 400, "status")


async def admin_names(e):
    for tail in ("/a/b", ".x-y_z", "-" + "n" * 150):
        name, a = e.name() + tail, e.admin(0)
        await e.do(a.create_queue, name)
        e.later(a.delete_queue, name)
        equal((await e.do(e.admin(1).get_queue, name)).name, name, "name")
        await e.send(name, message(tail))
        r = e.receiver(name)
        m = await e.one(r)
        equal(text(m), tail)
        await e.complete(r, m)
        await e.peek(r)


async def admin_disabled(e):
    q = await e.queue()

    async def become(status):
        p = await e.do(e.admin().get_queue, q)
        p.status = status
        await e.do(e.admin().update_queue, p)
    await e.send(q, message("before"))
    await become("Disabled")
    await e.fails(MessagingEntityDisabledError, e.sender(e.client(), q).send_messages, message())
    await e.fails(MessagingEntityDisabledError, e.receiver(q).receive_messages, max_wait_time=SOON)
    await become("SendDisabled")
    await e.fails(MessagingEntityDisabledError, e.sender(e.client(), q).send_messages, message())
    r = e.receiver(q)
    await e.complete(r, await e.one(r))
    await become("Active")
    await e.send(q, message("after"))
    await e.complete(r, await e.one(r))


REFUSED = (ServiceBusAuthenticationError, ServiceBusAuthorizationError)


async def auth_wrong_key(e):
    q = await e.queue()
    c = e.client_for(wrong_key(e.data_string()))
    await e.fails(REFUSED, c.get_queue_sender(q).send_messages, message())
    await e.fails(REFUSED, c.get_queue_receiver(q).receive_messages, max_wait_time=SOON)


async def auth_signature(e):
    q, now = await e.queue(), int(time.time())
    good = e.client_for(signature(e.data_string(), q, now + 3600))
    await e.do(good.get_queue_sender(q).send_messages, message("signed"))
    r = e.receiver(q)
    await e.complete(r, await e.one(r))
    old = e.client_for(signature(e.data_string(), q, now - 3600))
    await e.fails(REFUSED, old.get_queue_sender(q).send_messages, message("stale"))


async def auth_admin(e):
    a = e.management.ServiceBusAdministrationClient.from_connection_string(
        wrong_key(e.admin_string()), connection_verify=CA)
    e.later(a.close)
    err = await e.fails(HttpResponseError, a.create_queue, e.name())
    # Version 7.8 raises the general error for everything but 404 and 409.
    kind = HttpResponseError if azure.servicebus.__version__.startswith("7.8.") else ClientAuthenticationError
    equal(type(err), kind, "error")
    equal(err.status_code, 401, "status")


SCENARIOS = {f.__name__.replace("_", "-"): f for f in (
    admin_queue, admin_queue_options, admin_queue_list, admin_conflict, admin_missing, admin_counts,
    admin_namespace, admin_refused, admin_names, admin_disabled, auth_wrong_key, auth_signature, auth_admin)}
