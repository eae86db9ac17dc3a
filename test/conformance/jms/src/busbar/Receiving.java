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

import jakarta.jms.Message;
import jakarta.jms.MessageConsumer;
import jakarta.jms.Session;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.CopyOnWriteArrayList;

/** Receiving and acknowledging. */
final class Receiving {
    /** Acknowledges message by message, in the way that a property says: the client's own mode. */
    private static final int INDIVIDUALLY = 101;
    private static final int REJECTED = 2;
    private static final int RELEASED = 3;
    private static final int FAILED = 4;
    private static final int ELSEWHERE = 5;

    private Receiving() {
    }

    static void add(Map<String, Runner.Scenario<Env>> all) {
        receiving(all);
        listening(all);
        acknowledging(all);
        deciding(all);
    }

    private static String filled(Env e, String elements, String... bodies) throws Exception {
        String q = e.queue(elements);
        e.send(q, bodies);
        return q;
    }

    private static MessageConsumer consumer(Env e, int i, String q, int acknowledge) throws Exception {
        Session s = e.session(i, acknowledge);
        return s.createConsumer(s.createQueue(q));
    }

    /** Rejects a message, which dead-letters it. */
    static void reject(Env e, String q) throws Exception {
        decide(one(consumer(e, 1, q, INDIVIDUALLY)), REJECTED);
    }

    private static void decide(Message m, int outcome) throws Exception {
        m.setIntProperty("JMS_AMQP_ACK_TYPE", outcome);
        m.acknowledge();
    }

    private static void receiving(Map<String, Runner.Scenario<Env>> all) {
        all.put("receive-waits", e -> {
            String q = e.queue();
            var c = e.consumer(1, q);
            none(c); // the link is up
            var waiting = CompletableFuture.supplyAsync(() -> {
                try {
                    return text(one(c));
                } catch (Exception x) {
                    return x.toString();
                }
            });
            e.send(q, "late");
            equal(waiting.get(), "late", "body");
        });
        all.put("receive-empty", e -> {
            String q = e.queue();
            var c = e.consumer(1, q);
            for (int i = 0; i < 3; i++) {
                check(c.receive(300) == null && c.receiveNoWait() == null, "something came");
            }
            e.send(q, "x");
            equal(text(one(c)), "x", "and the link goes on:");
        });
        all.put("receive-prefetch", e -> {
            String q = filled(e, "", "m0", "m1", "m2", "m3", "m4", "m5");
            Session s = e.connect(1, "&jms.prefetchPolicy.all=4").createSession(false, Session.AUTO_ACKNOWLEDGE);
            var c = s.createConsumer(s.createQueue(q));
            equal(take(c, 6), list("m0", "m1", "m2", "m3", "m4", "m5"), "bodies");
            none(c);
        });
        all.put("receive-two", e -> {
            String[] bodies = new String[30];
            for (int i = 0; i < bodies.length; i++) {
                bodies[i] = "m" + (10 + i);
            }
            String q = filled(e, "", bodies);
            List<String> seen = new CopyOnWriteArrayList<>();
            for (int i = 0; i < 2; i++) {
                Session s = e.session(i);
                s.createConsumer(s.createQueue(q)).setMessageListener(m -> {
                    try {
                        seen.add(text(m));
                    } catch (Exception x) {
                        seen.add(x.toString());
                    }
                });
            }
            until("thirty messages", () -> seen.size() >= 30);
            equal(seen.stream().sorted().toList(), list(bodies), "bodies");
        });
        all.put("receive-missing", e -> fails(() -> e.consumer(0, e.name())));
        all.put("receive-counts", e -> {
            String q = filled(e, "", "x");
            Message m = one(e.consumer(1, q));
            equal(m.getIntProperty("JMSXDeliveryCount"), 1, "count");
            check(!m.getJMSRedelivered(), "delivered before");
        });
        all.put("receive-iterate", e -> { // one consumer of several sessions on one connection
            String q = filled(e, "", "a", "b");
            var c = e.connect(1, "&jms.prefetchPolicy.all=0");
            Session s1 = c.createSession(false, Session.AUTO_ACKNOWLEDGE);
            Session s2 = c.createSession(false, Session.AUTO_ACKNOWLEDGE);
            equal(text(one(s1.createConsumer(s1.createQueue(q)))) + text(one(s2.createConsumer(s2.createQueue(q)))),
                "ab", "one each");
        });
    }

    private static void listening(Map<String, Runner.Scenario<Env>> all) {
        all.put("jms-listener", e -> {
            String q = e.queue();
            List<String> seen = new CopyOnWriteArrayList<>();
            e.consumer(1, q).setMessageListener(m -> {
                try {
                    seen.add(text(m));
                } catch (Exception x) {
                    seen.add(x.toString());
                }
            });
            e.send(q, "a", "b", "c");
            until("three messages", () -> seen.size() == 3);
            equal(seen, list("a", "b", "c"), "in order");
            none(e.consumer(0, q));
        });
        all.put("process-abandon", e -> { // a listener that throws gets the message again
            String q = filled(e, "", "x");
            List<Message> seen = new CopyOnWriteArrayList<>();
            e.consumer(1, q).setMessageListener(m -> {
                seen.add(m);
                if (seen.size() < 3) {
                    throw new IllegalStateException("again"); // the client releases the message
                }
            });
            until("three deliveries", () -> seen.size() == 3);
            none(e.consumer(0, q));
        });
        all.put("process-stop", e -> {
            String q = e.queue();
            List<Message> seen = new CopyOnWriteArrayList<>();
            var c = e.connect(1, "");
            Session s = c.createSession(false, Session.AUTO_ACKNOWLEDGE);
            s.createConsumer(s.createQueue(q)).setMessageListener(seen::add);
            e.send(q, "before");
            until("a message", () -> seen.size() == 1);
            c.close();
            e.send(q, "after");
            equal(text(one(e.consumer(0, q))), "after", "left for others");
            equal(seen.size(), 1, "deliveries");
        });
    }

    private static void acknowledging(Map<String, Runner.Scenario<Env>> all) {
        all.put("jms-acknowledge-client", e -> {
            String q = filled(e, "", "a", "b", "c");
            var c = e.connect(1, "&jms.prefetchPolicy.all=0");
            Session s = c.createSession(false, Session.CLIENT_ACKNOWLEDGE);
            var r = s.createConsumer(s.createQueue(q));
            one(r);
            one(r).acknowledge(); // both
            one(r);
            c.close(); // releases what was not acknowledged
            var other = e.consumer(0, q);
            equal(text(one(other)), "c", "left");
            none(other);
        });
        all.put("jms-recover", e -> {
            String q = filled(e, "", "a", "b");
            Session s = e.session(1, Session.CLIENT_ACKNOWLEDGE);
            var r = s.createConsumer(s.createQueue(q));
            equal(take(r, 2), list("a", "b"), "first");
            s.recover();
            Message again = one(r);
            equal(text(again) + again.getJMSRedelivered() + again.getIntProperty("JMSXDeliveryCount"), "atrue2",
                "again");
            one(r).acknowledge();
            none(r);
        });
        all.put("settle-elsewhere", e -> {
            String q = filled(e, "<LockDuration>PT30S</LockDuration>", "x");
            one(consumer(e, 1, q, Session.CLIENT_ACKNOWLEDGE));
            none(e.consumer(0, q)); // it is locked
        });
        all.put("lock-lost", e -> {
            String q = filled(e, "<LockDuration>PT5S</LockDuration>", "x");
            Session s = e.connect(1, "&jms.prefetchPolicy.all=0").createSession(false, Session.CLIENT_ACKNOWLEDGE);
            one(s.createConsumer(s.createQueue(q)));
            Message again = one(e.consumer(0, q)); // waits for the expiry
            equal(again.getIntProperty("JMSXDeliveryCount"), 2, "count");
        });
    }

    private static void deciding(Map<String, Runner.Scenario<Env>> all) {
        all.put("abandon", e -> {
            String q = filled(e, "", "x");
            var r = consumer(e, 1, q, INDIVIDUALLY);
            decide(one(r), FAILED);
            Message again = one(r);
            equal(again.getIntProperty("JMSXDeliveryCount"), 2, "count");
            again.acknowledge();
            none(r);
        });
        all.put("amqp-released", e -> {
            String q = filled(e, "", "x");
            var r = consumer(e, 1, q, INDIVIDUALLY);
            decide(one(r), RELEASED);
            equal(one(r).getIntProperty("JMSXDeliveryCount"), 1, "count");
        });
        all.put("defer", e -> {
            String q = filled(e, "", "x");
            var r = consumer(e, 1, q, INDIVIDUALLY);
            decide(one(r), ELSEWHERE);
            none(r);
        });
        all.put("dead-letter", e -> {
            String q = filled(e, "", "x");
            var r = consumer(e, 1, q, INDIVIDUALLY);
            decide(one(r), REJECTED);
            none(r);
            var d = e.consumer(0, q + "/$DeadLetterQueue");
            equal(text(one(d)), "x", "the dead letter");
            none(d);
        });
        all.put("max-delivery", e -> {
            String q = filled(e, "<MaxDeliveryCount>3</MaxDeliveryCount>", "x");
            var r = consumer(e, 1, q, INDIVIDUALLY);
            List<Integer> counts = new ArrayList<>();
            for (int i = 0; i < 3; i++) {
                Message m = one(r);
                counts.add(m.getIntProperty("JMSXDeliveryCount"));
                decide(m, FAILED);
            }
            equal(counts, List.of(1, 2, 3), "counts");
            none(r);
            equal(one(e.consumer(0, q + "/$DeadLetterQueue")).getStringProperty("DeadLetterReason"),
                "MaxDeliveryCountExceeded", "reason");
        });
    }
}
