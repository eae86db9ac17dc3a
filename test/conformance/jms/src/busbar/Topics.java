package busbar;

import static busbar.Env.check;
import static busbar.Env.equal;
import static busbar.Env.fails;
import static busbar.Env.list;
import static busbar.Env.none;
import static busbar.Env.one;
import static busbar.Env.take;
import static busbar.Env.text;

import jakarta.jms.Message;
import jakarta.jms.MessageConsumer;
import jakarta.jms.Session;
import jakarta.jms.TextMessage;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;

/** Topics with subscriptions and rules, and forwarding. */
final class Topics {
    private Topics() {
    }

    static void add(Map<String, Runner.Scenario<Env>> all) {
        subscriptions(all);
        choosing(all);
        forwarding(all);
    }

    /** A text with properties: name, value, name, value. */
    private static TextMessage with(Session s, String body, Object... properties) throws Exception {
        TextMessage m = s.createTextMessage(body);
        for (int i = 0; i < properties.length; i += 2) {
            m.setObjectProperty((String) properties[i], properties[i + 1]);
        }
        return m;
    }

    private static void publish(Session s, String topic, Message... messages) throws Exception {
        var p = s.createProducer(s.createTopic(topic));
        for (Message m : messages) {
            p.send(m);
        }
    }

    private static String rule(String filter, String action) {
        return "<DefaultRuleDescription><Filter i:type=" + filter + "</Filter>" + action
            + "<Name>only</Name></DefaultRuleDescription>";
    }

    private static String sql(String expression) {
        return "\"SqlFilter\"><SqlExpression>" + expression.replace("<", "&lt;").replace(">", "&gt;")
            + "</SqlExpression><CompatibilityLevel>20</CompatibilityLevel>";
    }

    private static List<String> chosen(Env e, String subscription) throws Exception {
        MessageConsumer c = e.consumer(1, subscription);
        List<String> got = new ArrayList<>();
        for (Message m = c.receive(5000); m != null; m = c.receive(Env.QUIET)) {
            got.add(text(m));
        }
        return got;
    }

    private static void subscriptions(Map<String, Runner.Scenario<Env>> all) {
        all.put("jms-topic", e -> {
            String t = e.topic();
            String sub = e.subscription(t, "s", "");
            Session s = e.session(0);
            publish(s, t, s.createTextMessage("by topic"));
            Session r = e.session(1);
            Message m = one(r.createConsumer(r.createTopic(sub)));
            equal(text(m) + " " + m.getJMSDestination(), "by topic " + t, "received, and where it was sent");
        });
        all.put("topic-fan-out", e -> {
            String t = e.topic();
            List<String> addresses = new ArrayList<>();
            for (String name : list("a", "b", "c")) {
                addresses.add(e.subscription(t, name, ""));
            }
            Session s = e.session(0);
            publish(s, t, s.createTextMessage("m0"), s.createTextMessage("m1"));
            for (int i = 0; i < 3; i++) {
                var c = e.consumer(i, addresses.get(i));
                equal(take(c, 2), list("m0", "m1"), addresses.get(i));
                none(c);
            }
        });
        all.put("topic-dead-letter", e -> {
            String t = e.topic();
            String sub = e.subscription(t, "s", "");
            Session s = e.session(0);
            publish(s, t, s.createTextMessage("bad"));
            Receiving.reject(e, sub);
            equal(text(one(e.consumer(0, sub + "/$DeadLetterQueue"))), "bad", "the dead letter");
        });
        all.put("topic-schedule", e -> {
            String t = e.topic();
            String sub = e.subscription(t, "s", "");
            Session s = e.session(0);
            var p = s.createProducer(s.createTopic(t));
            p.setDeliveryDelay(3000);
            long sent = System.currentTimeMillis();
            p.send(s.createTextMessage("later"));
            equal(text(one(e.consumer(1, sub))), "later", "body");
            check(System.currentTimeMillis() >= sent + 3000, "came before its time");
        });
        all.put("topic-receive", e -> {
            String t = e.topic();
            fails(() -> e.consumer(0, t));
        });
    }

    private static void choosing(Map<String, Runner.Scenario<Env>> all) {
        all.put("topic-sql", e -> {
            String t = e.topic();
            String dear = e.subscription(t, "dear", rule(sql("price > 10"), ""));
            String red = e.subscription(t, "red", rule(sql("colour = 'red' OR sys.Label LIKE 'r%'"), ""));
            String bare = e.subscription(t, "bare", rule(sql("price IS NULL"), ""));
            String nothing = e.subscription(t, "nothing", rule("\"FalseFilter\"><SqlExpression>1=0</SqlExpression>"
                + "<CompatibilityLevel>20</CompatibilityLevel>", ""));
            Session s = e.session(0);
            TextMessage rose = with(s, "c", "price", 20.5);
            rose.setJMSType("rose"); // the label
            publish(s, t, with(s, "a", "price", 5, "colour", "red"), with(s, "b", "price", 15, "colour", "blue"), rose,
                with(s, "d"));
            equal(chosen(e, dear), list("b", "c"), "dear");
            equal(chosen(e, red), list("a", "c"), "red");
            equal(chosen(e, bare), list("d"), "bare");
            equal(chosen(e, nothing), list(), "nothing");
        });
        all.put("topic-correlation", e -> {
            String t = e.topic();
            String sub = e.subscription(t, "s",
                rule("\"CorrelationFilter\"><CorrelationId>c</CorrelationId>", ""));
            Session s = e.session(0);
            TextMessage right = with(s, "right");
            right.setJMSCorrelationID("c");
            publish(s, t, with(s, "wrong"), right);
            equal(chosen(e, sub), list("right"), "chosen");
        });
        all.put("topic-action", e -> {
            String t = e.topic();
            String sub = e.subscription(t, "s", rule(sql("1=1"), "<Action i:type=\"SqlRuleAction\"><SqlExpression>"
                + "SET total = price * 2; REMOVE secret</SqlExpression><CompatibilityLevel>20</CompatibilityLevel>"
                + "</Action>"));
            Session s = e.session(0);
            publish(s, t, with(s, "x", "price", 21, "secret", "s"));
            Message m = one(e.consumer(1, sub));
            check(m.getLongProperty("total") == 42 && !m.propertyExists("secret"), "properties of the copy");
        });
        all.put("jms-selector", e -> {
            String q = e.queue();
            e.send(q, "x");
            Session s = e.session(0);
            Exception why = fails(() -> s.createConsumer(s.createQueue(q), "colour = 'red'"));
            check(why.getMessage().contains("filter"), "failed with " + why); // and not taken in silence
            fails(() -> s.createBrowser(s.createQueue(q), "colour = 'red'").getEnumeration());
            equal(text(one(s.createConsumer(s.createQueue(q)))), "x", "the connection goes on:");
        });
    }

    private static void forwarding(Map<String, Runner.Scenario<Env>> all) {
        all.put("forward", e -> {
            String last = e.queue();
            String first = e.queue("<ForwardTo>" + last + "</ForwardTo>");
            e.send(first, "x");
            equal(text(one(e.consumer(1, last))), "x", "forwarded");
            fails(() -> e.consumer(1, first));
        });
        all.put("forward-topic", e -> {
            String q = e.queue();
            String t = e.topic();
            e.subscription(t, "s", "<ForwardTo>" + q + "</ForwardTo>");
            Session s = e.session(0);
            publish(s, t, s.createTextMessage("x"));
            equal(text(one(e.consumer(1, q))), "x", "forwarded");
        });
        all.put("forward-dead-letters", e -> {
            String graves = e.queue();
            String q = e.queue("<ForwardDeadLetteredMessagesTo>" + graves
                + "</ForwardDeadLetteredMessagesTo>");
            e.send(q, "bad");
            Receiving.reject(e, q);
            equal(text(one(e.consumer(0, graves))), "bad", "the dead letter");
        });
    }
}
