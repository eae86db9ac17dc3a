package busbar;

import static busbar.Env.check;
import static busbar.Env.equal;
import static busbar.Env.list;
import static busbar.Env.none;
import static busbar.Env.one;
import static busbar.Env.take;
import static busbar.Env.text;

import jakarta.jms.Message;
import jakarta.jms.Session;
import java.util.Map;

/** Transacted sessions. */
final class Transactions {
    private Transactions() {
    }

    static void add(Map<String, Runner.Scenario<Env>> all) {
        all.put("jms-transacted", e -> {
            String q = e.queue();
            Session s = e.transacted(0);
            var p = s.createProducer(s.createQueue(q));
            var c = e.consumer(1, q);
            p.send(s.createTextMessage("dropped"));
            s.rollback();
            p.send(s.createTextMessage("a"));
            p.send(s.createTextMessage("b"));
            none(c);
            s.commit();
            equal(take(c, 2), list("a", "b"), "after the commit");
            none(c);
        });
        all.put("transaction-commit", e -> {
            String q = e.queue();
            e.send(q, "in");
            Session s = e.connect(1, "&jms.prefetchPolicy.all=0").createSession(true, Session.SESSION_TRANSACTED);
            Message m = one(s.createConsumer(s.createQueue(q)));
            s.createProducer(s.createQueue(q)).send(s.createTextMessage("after " + text(m)));
            s.commit();
            var c = e.consumer(0, q);
            equal(text(one(c)), "after in", "left");
            none(c);
        });
        all.put("transaction-rollback", e -> {
            String q = e.queue("<LockDuration>PT5M</LockDuration><MaxDeliveryCount>3</MaxDeliveryCount>");
            e.send(q, "in");
            Session s = e.transacted(1);
            var c = s.createConsumer(s.createQueue(q));
            var p = s.createProducer(s.createQueue(q));
            one(c);
            p.send(s.createTextMessage("out"));
            s.rollback();
            for (int i = 2; i <= 3; i++) { // at once, though the lock is long
                Message again = one(c);
                equal(text(again) + again.getIntProperty("JMSXDeliveryCount") + again.getJMSRedelivered(),
                    "in" + i + "true", "again");
                s.rollback();
            }
            none(c);
            s.rollback();
            equal(text(one(e.consumer(0, q + "/$DeadLetterQueue"))), "in", "in the end it is a dead letter:");
        });
        all.put("jms-rollback-order", e -> {
            String q = e.queue("<LockDuration>PT5M</LockDuration>");
            e.send(q, "a", "b", "c", "d", "e");
            Session s = e.connect(1, "&jms.prefetchPolicy.all=10").createSession(true, Session.SESSION_TRANSACTED);
            var c = s.createConsumer(s.createQueue(q));
            equal(take(c, 2), list("a", "b"), "before");
            s.rollback(); // the client gives back what it had fetched ahead
            equal(take(c, 5), list("a", "b", "c", "d", "e"), "after");
            s.commit();
            none(e.consumer(0, q));
        });
        all.put("transaction-schedule", e -> {
            String q = e.queue();
            Session s = e.transacted(0);
            var p = s.createProducer(s.createQueue(q));
            p.setDeliveryDelay(3000);
            p.send(s.createTextMessage("dropped"));
            s.rollback();
            long sent = System.currentTimeMillis();
            p.send(s.createTextMessage("kept"));
            s.commit();
            var c = e.consumer(1, q);
            equal(text(one(c)), "kept", "came");
            check(System.currentTimeMillis() >= sent + 3000, "came before its time");
            none(c);
        });
        all.put("transaction-cross-entity", e -> {
            String in = e.queue();
            String one = e.queue();
            String two = e.queue();
            e.send(in, "m");
            Session s = e.transacted(1);
            one(s.createConsumer(s.createQueue(in)));
            s.createProducer(s.createQueue(one)).send(s.createTextMessage("to-one"));
            s.createProducer(s.createQueue(two)).send(s.createTextMessage("to-two"));
            var c = e.consumer(0, one);
            none(c);
            s.commit();
            equal(text(one(c)) + text(one(e.consumer(0, two))), "to-oneto-two", "sent");
            none(e.consumer(0, in));
        });
    }
}
