package workflow;

import com.azure.messaging.servicebus.ServiceBusClientBuilder;
import com.azure.messaging.servicebus.ServiceBusMessage;
import com.azure.messaging.servicebus.ServiceBusReceiverClient;
import java.nio.charset.StandardCharsets;
import java.nio.file.Path;
import java.time.Duration;
import java.util.LinkedHashMap;
import java.util.Map;

/**
 * Runs an order as a state machine. Its state is the state of its session, so another process goes on where one has
 * crashed.
 */
public class Main {
    static final String QUEUE = "workflow-orders";
    /** The state machine: the state in which each message leaves an order. */
    static final Map<String, String> NEXT = new LinkedHashMap<>();

    static {
        NEXT.put("order", "ordered");
        NEXT.put("pay", "paid");
        NEXT.put("ship", "shipped");
        NEXT.put("close", "closed");
    }

    public static void main(String[] args) throws Exception {
        if (args.length > 0) {
            handle(args[0]); // a process that handles orders; it crashes in the middle of one step
            return;
        }
        try (var sender = client().sender().queueName(QUEUE).buildClient()) {
            for (var step : NEXT.keySet()) {
                sender.sendMessage(new ServiceBusMessage("").setSessionId("order-7").setMessageId(step));
            }
        }
        System.out.println("the process ended with code " + process("pay"));
        if (process("never") != 0) {
            throw new IllegalStateException("the second process failed");
        }
    }

    static ServiceBusClientBuilder client() {
        return new ServiceBusClientBuilder().connectionString(System.getenv("SERVICEBUS_CONNECTION_STRING"));
    }

    /** Runs this program once more, as a process that handles orders, and returns its exit code. */
    static int process(String crash) throws Exception {
        var java = Path.of(System.getProperty("java.home"), "bin", "java").toString();
        return new ProcessBuilder(java, "-cp", System.getProperty("java.class.path"), Main.class.getName(), crash)
                .inheritIO().start().waitFor();
    }

    /** What the session keeps: a state, and the id of the last message whose work is in it. */
    record Order(String state, String last) {
        static Order of(ServiceBusReceiverClient session) {
            byte[] kept = session.getSessionState();
            if (kept == null || kept.length == 0) {
                return new Order("new", "");
            }
            var words = new String(kept, StandardCharsets.UTF_8).split(" ");
            return new Order(words[0], words[1]);
        }

        byte[] bytes() {
            return (state + " " + last).getBytes(StandardCharsets.UTF_8);
        }
    }

    static void handle(String crash) {
        try (var sessions = client().sessionReceiver().queueName(QUEUE).buildClient();
             var session = sessions.acceptNextSession()) { // waits until the session of a dead process is free
            var order = Order.of(session);
            System.out.println(session.getSessionId() + ": a process finds it " + order.state());
            while (!order.state().equals("closed")) {
                for (var message : session.receiveMessages(1, Duration.ofMinutes(1))) {
                    var step = message.getMessageId();
                    if (step.equals(order.last())) {
                        System.out.println(step + ": skipped, the state has it");
                    } else {
                        order = new Order(NEXT.get(step), step);
                        // A session without messages and state is gone.
                        session.setSessionState(order.state().equals("closed") ? null : order.bytes());
                        System.out.println(step + ": the order is " + order.state());
                    }
                    if (step.equals(crash)) {
                        Runtime.getRuntime().halt(3); // between the state and the completion
                    }
                    session.complete(message);
                }
            }
        }
    }
}
