package busbar;

import static busbar.Env.check;
import static busbar.Env.equal;
import static busbar.Env.fails;
import static busbar.Env.list;
import static busbar.Env.none;
import static busbar.Env.one;
import static busbar.Env.take;
import static busbar.Env.text;
import static busbar.Env.until;

import jakarta.jms.CompletionListener;
import jakarta.jms.Message;
import jakarta.jms.Session;
import java.net.InetAddress;
import java.net.ServerSocket;
import java.net.Socket;
import java.util.List;
import java.util.Map;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.CopyOnWriteArrayList;

/** What the client does about connections, and what else it offers to those who send and receive. */
final class Clients {
    private Clients() {
    }

    static void add(Map<String, Runner.Scenario<Env>> all) {
        connections(all);
        producers(all);
        consumers(all);
        refused(all);
    }

    /** A way to the broker that can be broken. */
    private static final class Way implements AutoCloseable {
        private final ServerSocket here;
        private final String host;
        private final int port;
        private final List<Socket> open = new CopyOnWriteArrayList<>();

        Way(String address) throws Exception {
            host = address.substring(0, address.lastIndexOf(':'));
            port = Integer.parseInt(address.substring(address.lastIndexOf(':') + 1));
            here = new ServerSocket(0, 50, InetAddress.getByName("localhost"));
            new Thread(this::serve).start();
        }

        String address() {
            return "localhost:" + here.getLocalPort();
        }

        private void serve() {
            while (!here.isClosed()) {
                try {
                    Socket near = here.accept();
                    Socket far = new Socket(host, port);
                    open.addAll(List.of(near, far));
                    new Thread(() -> carry(near, far)).start();
                    new Thread(() -> carry(far, near)).start();
                } catch (Exception ended) {
                    // the next one may come
                }
            }
        }

        private static void carry(Socket from, Socket to) {
            try (from; to) {
                from.getInputStream().transferTo(to.getOutputStream());
            } catch (Exception broken) {
                // the other direction ends with this one
            }
        }

        void cut() throws Exception {
            for (Socket s : open) {
                s.close();
            }
            open.clear();
        }

        @Override
        public void close() throws Exception {
            here.close();
            cut();
        }
    }

    private static void connections(Map<String, Runner.Scenario<Env>> all) {
        all.put("jms-failover", e -> {
            String q = e.queue();
            Way way = e.keep(new Way(e.address(1)));
            // Nobody listens at the first address, and in the end nobody at the second.
            String nodes = String.join(",", e.uri("localhost:1"), e.uri(way.address()), e.uri(e.address(2)));
            Session s = e.over("failover:(" + nodes + ")?failover.reconnectDelay=50", e.key())
                .createSession(false, Session.AUTO_ACKNOWLEDGE);
            var p = s.createProducer(s.createQueue(q));
            var c = s.createConsumer(s.createQueue(q));
            for (String body : list("before", "between", "after", "elsewhere")) {
                p.send(s.createTextMessage(body));
                equal(text(one(c)), body, "body");
                way.cut();
                if (body.equals("after")) {
                    way.close();
                }
            }
            none(e.consumer(0, q));
        });
        all.put("amqp-idle", e -> {
            String q = e.queue();
            Session s = e.connect(0, "&amqp.idleTimeout=2000").createSession(false, Session.AUTO_ACKNOWLEDGE);
            var p = s.createProducer(s.createQueue(q));
            Thread.sleep(9000); // more than four times what the client tolerates
            p.send(s.createTextMessage("still here"));
            equal(text(one(s.createConsumer(s.createQueue(q)))), "still here", "body");
        });
    }

    private static void producers(Map<String, Runner.Scenario<Env>> all) {
        all.put("jms-anonymous", e -> { // the client attaches a link for each
            List<String> queues = list(e.queue(), e.queue());
            Session s = e.session(0);
            var p = s.createProducer(null);
            for (String q : queues) {
                p.send(s.createQueue(q), s.createTextMessage("to " + q));
            }
            fails(() -> {
                p.send(s.createQueue(e.name()), s.createTextMessage("to nobody"));
                return null;
            });
            for (String q : queues) {
                equal(text(one(e.consumer(1, q))), "to " + q, "body");
            }
        });
        all.put("jms-completion", e -> {
            String plain = e.queue();
            String grouped = e.queue("<RequiresSession>true</RequiresSession>");
            Session s = e.session(0);
            for (String q : list(plain, grouped)) {
                CompletableFuture<String> told = new CompletableFuture<>();
                s.createProducer(s.createQueue(q)).send(s.createTextMessage("x"), new CompletionListener() {
                    @Override
                    public void onCompletion(Message m) {
                        told.complete("sent");
                    }

                    @Override
                    public void onException(Message m, Exception why) {
                        told.complete("refused");
                    }
                });
                equal(told.get(), q.equals(plain) ? "sent" : "refused", "without a group the message was");
            }
        });
        all.put("send-partitioned", e -> {
            String q = e.queue("<EnablePartitioning>true</EnablePartitioning>");
            Session s = e.session(0);
            var p = s.createProducer(s.createQueue(q));
            for (int i = 0; i < 12; i++) {
                Message m = s.createTextMessage("m" + i / 4);
                m.setStringProperty("JMSXGroupID", "key-" + i % 4);
                p.send(m);
            }
            var c = e.consumer(1, q);
            StringBuilder[] byKey = {new StringBuilder(), new StringBuilder(), new StringBuilder(), new StringBuilder()};
            for (int i = 0; i < 12; i++) {
                Message m = one(c);
                byKey[Integer.parseInt(m.getStringProperty("JMSXGroupID").substring(4))].append(text(m));
            }
            for (StringBuilder got : byKey) {
                equal(got.toString(), "m0m1m2", "in order by key");
            }
            none(c);
        });
    }

    private static void consumers(Map<String, Runner.Scenario<Env>> all) {
        all.put("receive-delete", e -> {
            String q = e.queue();
            e.send(q, "a", "b", "c");
            var c = e.connect(1, "&jms.presettlePolicy.presettleConsumers=true");
            Session s = c.createSession(false, Session.CLIENT_ACKNOWLEDGE);
            equal(take(s.createConsumer(s.createQueue(q)), 3), list("a", "b", "c"), "bodies");
            c.close(); // without an acknowledgement
            none(e.consumer(0, q));
        });
        all.put("jms-dups-ok", e -> {
            String q = e.queue();
            e.send(q, "a", "b");
            Session s = e.session(1, Session.DUPS_OK_ACKNOWLEDGE);
            var c = s.createConsumer(s.createQueue(q));
            equal(take(c, 2), list("a", "b"), "bodies");
            until("nothing is left", () -> Browsing.browsed(e.session(0), q).isEmpty());
        });
        all.put("jms-durable", e -> {
            String t = e.topic();
            String sub = e.subscription(t, "s", "");
            Session s = e.session(0);
            var p = s.createProducer(s.createTopic(t));
            for (String body : list("a", "b")) {
                p.send(s.createTextMessage(body));
                Session r = e.connect(1, "&jms.clientID=" + e.name()).createSession(false, Session.AUTO_ACKNOWLEDGE);
                var c = r.createDurableConsumer(r.createTopic(sub), "mine");
                equal(text(one(c)), body, "since the last time"); // it takes, though it asks for copies
                none(c);
                c.close(); // the subscription stays
            }
            fails(() -> e.session(0).createConsumer(s.createTopic(t))); // a topic has no messages of its own
        });
    }

    private static void refused(Map<String, Runner.Scenario<Env>> all) {
        all.put("jms-temporary", e -> {
            Session s = e.session(0);
            fails(s::createTemporaryQueue);
            fails(s::createTemporaryTopic);
            String q = e.queue();
            s.createProducer(s.createQueue(q)).send(s.createTextMessage("the connection goes on"));
        });
        all.put("jms-shared", e -> {
            String t = e.topic();
            String sub = e.subscription(t, "s", "");
            Session s = e.session(0);
            Exception why = fails(() -> s.createSharedConsumer(s.createTopic(sub), "shared"));
            check(why.getMessage().contains("shared subscriptions"), "failed with " + why);
            s.createProducer(s.createTopic(t)).send(s.createTextMessage("x"));
            equal(text(one(s.createConsumer(s.createTopic(sub)))), "x", "several take by the address:");
        });
    }
}
