package busbar;

import static busbar.Env.equal;
import static busbar.Env.list;
import static busbar.Env.one;
import static busbar.Env.take;
import static busbar.Env.text;
import static busbar.Env.until;

import jakarta.jms.Message;
import jakarta.jms.QueueBrowser;
import jakarta.jms.Session;
import java.util.ArrayList;
import java.util.Enumeration;
import java.util.List;
import java.util.Map;

/** Looking at messages without taking them. */
final class Browsing {
    private Browsing() {
    }

    /** What a browser shows until it says that there is no more. */
    static List<Message> browsed(Session s, String queue) throws Exception {
        try (QueueBrowser b = s.createBrowser(s.createQueue(queue))) {
            List<Message> all = new ArrayList<>();
            for (Enumeration<?> left = b.getEnumeration(); left.hasMoreElements();) {
                all.add((Message) left.nextElement());
            }
            return all;
        }
    }

    private static List<String> bodies(Session s, String queue) throws Exception {
        List<String> all = new ArrayList<>();
        for (Message m : browsed(s, queue)) {
            all.add(text(m));
        }
        return all;
    }

    static void add(Map<String, Runner.Scenario<Env>> all) {
        all.put("jms-browser", e -> {
            String q = e.queue();
            e.send(q, "a", "b", "c");
            Session s = e.session(1);
            equal(bodies(s, q), list("a", "b", "c"), "browsed");
            equal(bodies(s, q), list("a", "b", "c"), "browsed again");
            var c = e.consumer(0, q);
            Message first = one(c);
            equal(text(first) + first.getIntProperty("JMSXDeliveryCount"), "a1", "taken, and counted once:");
            until("the first is gone", () -> bodies(s, q).equals(list("b", "c"))); // the client does not wait for that
            equal(take(c, 2), list("b", "c"), "taken");
        });
        all.put("peek", e -> {
            String[] many = new String[120]; // more than the client asks for at a time
            for (int i = 0; i < many.length; i++) {
                many[i] = "m" + i;
            }
            String q = e.queue();
            e.send(q, many);
            for (int page : new int[] {0, 50}) {
                Session s = e.connect(1, "&jms.prefetchPolicy.all=" + page).createSession(false,
                    Session.AUTO_ACKNOWLEDGE);
                equal(bodies(s, q), list(many), "browsed");
            }
        });
        all.put("peek-empty", e -> equal(bodies(e.session(0), e.queue()), list(), "browsed"));
        all.put("peek-dead-letters", e -> {
            String q = e.queue();
            e.send(q, "a", "b");
            Receiving.reject(e, q);
            Session s = e.session(0);
            until("a dead letter", () -> bodies(s, q + "/$DeadLetterQueue").equals(list("a")));
            equal(bodies(s, q), list("b"), "left");
        });
        all.put("jms-browser-states", e -> {
            String q = e.queue();
            e.send(q, "held", "free");
            Session s = e.session(0);
            var later = s.createProducer(s.createQueue(q));
            later.setDeliveryDelay(60_000);
            later.send(s.createTextMessage("scheduled"));
            Session holder = e.connect(1, "&jms.prefetchPolicy.all=0").createSession(false, Session.CLIENT_ACKNOWLEDGE);
            one(holder.createConsumer(holder.createQueue(q)));
            equal(bodies(s, q), list("held", "free"), "browsed");
        });
        all.put("jms-browser-sessions", e -> {
            String q = e.queue("<RequiresSession>true</RequiresSession>");
            Session s = e.session(0);
            var p = s.createProducer(s.createQueue(q));
            for (String group : list("A", "B", "A")) {
                Message m = s.createTextMessage("in " + group);
                m.setStringProperty("JMSXGroupID", group);
                p.send(m);
            }
            equal(bodies(e.session(1), q), list("in A", "in B", "in A"), "browsed");
        });
    }
}
