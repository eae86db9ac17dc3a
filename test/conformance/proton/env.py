"""What a scenario gets: queues of its own and connections of its own, with every delivery in its own
hand."""

import base64
import collections
import hashlib
import hmac
import os
import ssl
import subprocess
import sys
import time
import urllib.parse
import urllib.request
import uuid

from proton import Delivery, Message, SSLDomain, Terminus, Timeout, symbol
from proton.handlers import IncomingMessageHandler
from proton.reactor import LinkOption
from proton.utils import BlockingConnection

from runner import CA, QUIET, SOON, WIRE, Skip, check, equal, lines

KEY_NAME = os.environ.get("BUSBAR_KEY_NAME", "")
KEY = os.environ.get("BUSBAR_KEY", "")


class Kept(IncomingMessageHandler):
    """Keeps every delivery and decides nothing."""

    def __init__(self):
        super().__init__(auto_accept=False)
        self.arrived = collections.deque()

    def on_message(self, event):
        self.arrived.append((event.message, event.delivery))

    def on_settled(self, event):
        pass


class Modes(LinkOption):
    """Settlement modes, distribution mode, and a session's filter, of a receiver."""

    def __init__(self, presettled=False, second=False, session=None, no_filter=True, copies=False):
        self.presettled, self.second = presettled, second
        self.session, self.no_filter, self.copies = session, no_filter, copies

    def apply(self, link):
        link.snd_settle_mode = 1 if self.presettled else 0
        link.rcv_settle_mode = 1 if self.second else 0
        if self.copies:
            link.source.distribution_mode = Terminus.DIST_MODE_COPY
        if not self.no_filter:
            link.source.filter.put_dict({symbol("com.microsoft:session-filter"): self.session})


class Receiver:
    def __init__(self, connection, address, credit=0, name=None, **modes):
        self.c, self.kept = connection, Kept()
        self.blocking = connection.b.create_receiver(
            address, credit=credit, handler=self.kept, name=name, options=Modes(**modes))
        self.link = self.blocking.link

    def flow(self, n):
        self.link.flow(n)

    def take(self, n=1, credit=True):
        if credit:
            self.link.flow(n)
        try:
            self.c.until(lambda: len(self.kept.arrived) >= n, f"{n} messages")
        except Timeout as late:
            raise Timeout(f"{late}; arrived {len(self.kept.arrived)}, credit {self.link.credit}, unsettled "
                          f"{self.link.unsettled}, to send {self.c.b.conn.transport.pending()}") from late
        return [self.kept.arrived.popleft() for _ in range(n)]

    def one(self, credit=True):
        return self.take(1, credit)[0]

    def none(self, seconds=QUIET):
        """Listens with the credit that there is."""
        self.c.idle(seconds)
        equal([m.body for m, _ in self.kept.arrived], [], "arrived")

    def settle(self, delivery, state, settled=True):
        delivery.update(state)
        if settled:
            delivery.settle()
            self.c.flush()
            return
        self.c.until(lambda: delivery.settled, "the broker settles")
        delivery.settle()

    def accept(self, delivery):
        self.settle(delivery, Delivery.ACCEPTED)

    def close(self):
        self.blocking.close()


class Connection:
    def __init__(self, address, user=None, password=None, **kw):
        scheme, domain = "amqp", None
        if WIRE == "tls":
            scheme, domain = "amqps", SSLDomain(SSLDomain.MODE_CLIENT)
            domain.set_trusted_ca_db(CA)
            domain.set_peer_authentication(SSLDomain.VERIFY_PEER_NAME)
        self.b = BlockingConnection(
            f"{scheme}://{address}", timeout=SOON, ssl_domain=domain, allowed_mechs="PLAIN",
            user=user or KEY_NAME, password=password or KEY, allow_insecure_mechs=True, **kw)

    def until(self, condition, what, timeout=SOON):
        self.b.wait(condition, timeout=timeout, msg=what)

    def idle(self, seconds):
        """Lets the connection live for a while."""
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            self.b.container.timeout = 0.05
            self.b.container.process()

    def flush(self):
        """Brings out what was written: a round trip of the connection's own."""
        transport = self.b.conn.transport
        self.until(lambda: transport.pending() <= 0, "what was written is sent")

    def receiver(self, address, **kw):
        return Receiver(self, address, **kw)

    def sender(self, address, **kw):
        return self.b.create_sender(address, **kw)

    def send(self, address, *bodies, **properties):
        s = self.sender(address)
        for body in bodies:
            s.send(Message(body=body, **properties), timeout=SOON)
        s.close()

    def request(self, node, operation, body):
        """One request to the management node; the answer's code and body. The links come and go."""
        reply_to = str(uuid.uuid4())
        answers = Kept()
        r = self.b.create_receiver(node + "/$management", credit=1, handler=answers,
                                   options=ReplyTo(reply_to))
        s = self.sender(node + "/$management")
        s.send(Message(id=reply_to, reply_to=reply_to, body=body, inferred=False,
                       properties={"operation": "com.microsoft:" + operation}), timeout=SOON)
        self.until(lambda: answers.arrived, "an answer")
        answer, delivery = answers.arrived.popleft()
        if not delivery.settled:
            delivery.update(Delivery.ACCEPTED)
            delivery.settle()
        equal(answer.correlation_id, reply_to, "correlation id")
        s.close()
        r.close()
        return answer.properties["statusCode"], answer.body

    def close(self):
        self.b.close()


class ReplyTo(LinkOption):
    """Names the target that answers are addressed to."""

    def __init__(self, address):
        self.address = address

    def apply(self, link):
        link.target.address = self.address
        link.snd_settle_mode = 1


class Env:
    def __init__(self, scenario, index):
        self.index, self.made, self.closers = index, 0, []
        self.prefix = f"proton-{scenario}-{uuid.uuid4().hex[:8]}"

    def skip(self, reason):
        raise Skip(reason)

    def address(self, i=0):
        all_nodes = lines("BUSBAR_ADDRESSES")
        return all_nodes[(self.index + i) % len(all_nodes)].replace("127.0.0.1", "localhost")

    def connect(self, i=0, **kw):
        c = Connection(self.address(i), **kw)
        self.closers.append(c.close)
        return c

    def queue(self, **options):
        return self.entity("Queue", options)

    def topic(self, **options):
        return self.entity("Topic", options)

    def entity(self, kind, options):
        self.made += 1
        name = f"{self.prefix}-{kind[0].lower()}{self.made}"
        admin("PUT", name, options, kind)
        self.closers.append(lambda: admin("DELETE", name))
        return name

    def subscription(self, topic, name, **options):
        """Adds a subscription and returns its address."""
        admin("PUT", f"{topic}/Subscriptions/{name}", options, "Subscription")
        return f"{topic}/Subscriptions/{name}"

    def holder(self, queue):
        """Another process that holds a message of the queue, and can be killed."""
        p = subprocess.Popen([sys.executable, "-B", os.path.join(os.path.dirname(__file__), "main.py"),
                              "--hold", queue], stdout=subprocess.PIPE, text=True)
        self.closers.append(p.kill)
        equal(p.stdout.readline().strip(), "holding", "the other process says")
        return p

    def close(self):
        for f in reversed(self.closers):
            try:
                f()
            except Exception:  # the scenario has closed it, or has failed already
                pass


def hold(queue):
    """What the other process does: it takes a message and waits to be killed."""
    c = Connection(lines("BUSBAR_ADDRESSES")[0].replace("127.0.0.1", "localhost"))
    r = c.receiver(queue)
    r.one()
    print("holding", flush=True)
    c.idle(3600)


# The elements of a description have an order.
ELEMENTS = ["LockDuration", "RequiresDuplicateDetection", "RequiresSession", "DefaultMessageTimeToLive",
            "DeadLetteringOnMessageExpiration", "DefaultRuleDescription", "MaxDeliveryCount", "ForwardTo",
            "ForwardDeadLetteredMessagesTo"]


def admin(verb, name, options=None, kind="Queue"):
    """Creates or deletes an entity: AMQP has no words for that."""
    cs = dict(part.split("=", 1) for part in lines("BUSBAR_ADMIN")[0].split(";") if part)
    host = cs["Endpoint"].removeprefix("sb://").rstrip("/")
    url = f"https://{host}/{name}?api-version=2021-05"
    expiry = str(int(time.time()) + 600)
    resource = urllib.parse.quote_plus(f"https://{host}/")
    digest = hmac.new(cs["SharedAccessKey"].encode(), f"{resource}\n{expiry}".encode(), hashlib.sha256)
    signature = urllib.parse.quote_plus(base64.b64encode(digest.digest()))
    token = f"SharedAccessSignature sr={resource}&sig={signature}&se={expiry}&skn={cs['SharedAccessKeyName']}"
    inside = "".join(f"<{e}>{options[e]}</{e}>" for e in ELEMENTS if e in (options or {}))
    body = ('<entry xmlns="http://www.w3.org/2005/Atom"><content type="application/xml">'
            f'<{kind}Description xmlns="http://schemas.microsoft.com/netservices/2010/10/servicebus/connect" '
            f'xmlns:i="http://www.w3.org/2001/XMLSchema-instance">{inside}</{kind}Description>'
            "</content></entry>").encode()
    request = urllib.request.Request(url, method=verb, data=body if verb == "PUT" else None, headers={
        "Authorization": token, "Content-Type": "application/atom+xml",
        # For what forwards: the right to send to the target.
        "ServiceBusSupplementaryAuthorization": token, "ServiceBusDlqSupplementaryAuthorization": token})
    with urllib.request.urlopen(request, context=ssl.create_default_context(cafile=CA), timeout=SOON) as r:
        r.read()
