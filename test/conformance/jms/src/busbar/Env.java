package busbar;

import jakarta.jms.BytesMessage;
import jakarta.jms.Connection;
import jakarta.jms.JMSException;
import jakarta.jms.Message;
import jakarta.jms.MessageConsumer;
import jakarta.jms.Session;
import jakarta.jms.TextMessage;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.List;
import java.util.concurrent.Callable;
import org.apache.qpid.jms.JmsConnectionFactory;

/** What a scenario gets: connections and entities of its own, and words for what it expects. */
final class Env extends Scene {
    /** Bounds the wait for a message that must come, in milliseconds. */
    static final long SOON = SOON_MS;
    /** How long a scenario listens for what must not come. */
    static final long QUIET = 1_500;

    Env(String id, int index) {
        super("jms", id, index);
    }

    Admin admin() {
        return new Admin(line("BUSBAR_ADMIN", index));
    }

    String name() {
        return name("e");
    }

    private String entity(String kind, String elements) throws Exception {
        String name = name();
        admin().put(name, kind, elements);
        keep(() -> admin().delete(name));
        return name;
    }

    String queue(String elements) throws Exception {
        return entity("QueueDescription", elements);
    }

    String queue() throws Exception {
        return queue("");
    }

    String topic() throws Exception {
        return entity("TopicDescription", "");
    }

    /** Adds a subscription and returns its address. */
    String subscription(String topic, String name, String elements) throws Exception {
        admin().put(topic + "/Subscriptions/" + name, "SubscriptionDescription", elements);
        return topic + "/Subscriptions/" + name;
    }

    /** A started connection to node i. */
    Connection connect(int i, String options) throws JMSException {
        return connect(i, options, key());
    }

    Connection connect(int i, String options, String key) throws JMSException {
        return over(uri(address(i)) + options, key);
    }

    /** How the client calls a node; options may follow. */
    String uri(String address) {
        String scheme = "tls".equals(System.getenv("BUSBAR_WIRE")) ? "amqps" : "amqp";
        return scheme + "://" + address + "?amqp.saslMechanisms=PLAIN";
    }

    String key() {
        return System.getenv("BUSBAR_KEY");
    }

    /** Host and port of node i. */
    String address(int i) {
        return line("BUSBAR_ADDRESSES", index + i).replace("127.0.0.1", "localhost");
    }

    Connection over(String uri, String key) throws JMSException {
        var factory = new JmsConnectionFactory(System.getenv("BUSBAR_KEY_NAME"), key, uri);
        Connection c = factory.createConnection();
        keep(c);
        c.start();
        return c;
    }

    Session session(int i, int acknowledge) throws JMSException {
        return connect(i, "").createSession(false, acknowledge);
    }

    Session session(int i) throws JMSException {
        return session(i, Session.AUTO_ACKNOWLEDGE);
    }

    Session transacted(int i) throws JMSException {
        return connect(i, "").createSession(true, Session.SESSION_TRANSACTED);
    }

    MessageConsumer consumer(int i, String queue) throws JMSException {
        Session s = session(i);
        return s.createConsumer(s.createQueue(queue));
    }

    void send(String queue, String... bodies) throws JMSException {
        try (Connection c = connect(0, "")) {
            Session s = c.createSession(false, Session.AUTO_ACKNOWLEDGE);
            var p = s.createProducer(s.createQueue(queue));
            for (String b : bodies) {
                p.send(s.createTextMessage(b));
            }
        }
    }

    static String text(Message m) throws JMSException {
        if (m instanceof BytesMessage b) {
            byte[] all = new byte[(int) b.getBodyLength()];
            b.readBytes(all);
            return new String(all, java.nio.charset.StandardCharsets.UTF_8);
        }
        return ((TextMessage) m).getText();
    }

    static Message one(MessageConsumer c) throws JMSException {
        Message m = c.receive(SOON);
        check(m != null, "received nothing");
        return m;
    }

    static List<String> take(MessageConsumer c, int n) throws JMSException {
        List<String> got = new ArrayList<>();
        for (int i = 0; i < n; i++) {
            got.add(text(one(c)));
        }
        return got;
    }

    static void none(MessageConsumer c) throws JMSException {
        Message m = c.receive(QUIET);
        check(m == null, "received " + (m == null ? "" : text(m)));
    }

    static List<String> list(String... all) {
        return Arrays.asList(all);
    }

    static Exception fails(Callable<?> call) {
        try {
            call.call();
        } catch (Exception t) {
            return t;
        }
        throw new AssertionError("succeeded, want a failure");
    }
}
