package order;

import com.azure.core.amqp.AmqpRetryOptions;
import com.azure.messaging.servicebus.ServiceBusClientBuilder;
import com.azure.messaging.servicebus.ServiceBusMessage;
import com.azure.messaging.servicebus.ServiceBusReceiverClient;
import java.time.Duration;
import java.util.ArrayList;
import java.util.List;

/**
 * Three messages and two consumers, of which the first is slow. Without sessions the messages are handed out in order
 * and finished in another one. In a session they are finished in order, too.
 */
public class Main {
    static final Duration PATIENCE = Duration.ofMinutes(1);

    public static void main(String[] args) {
        without();
        within();
    }

    static ServiceBusClientBuilder client() {
        return new ServiceBusClientBuilder().connectionString(System.getenv("SERVICEBUS_CONNECTION_STRING"));
    }

    static void send(String queue) {
        try (var sender = client().sender().queueName(queue).buildClient()) {
            for (var body : List.of("1", "2", "3")) { // a queue without sessions takes the session's id for a property
                sender.sendMessage(new ServiceBusMessage(body).setSessionId("set-1"));
            }
        }
    }

    /** Takes and completes so many messages, and returns them in the order in which they were finished. */
    static List<String> finish(ServiceBusReceiverClient receiver, int count) {
        List<String> finished = new ArrayList<>();
        while (finished.size() < count) {
            for (var message : receiver.receiveMessages(1, PATIENCE)) {
                receiver.complete(message);
                finished.add(message.getBody().toString());
            }
        }
        return finished;
    }

    static void without() {
        send("order-plain");
        try (var slow = client().receiver().queueName("order-plain").buildClient();
             var quick = client().receiver().queueName("order-plain").buildClient()) {
            var first = slow.receiveMessages(1, PATIENCE).iterator().next();
            var finished = finish(quick, 2); // while the slow consumer works on the first
            slow.complete(first);
            System.out.println("without a session: " + String.join(" ", finished) + " " + first.getBody());
        }
    }

    static void within() {
        send("order-session");
        var impatient = new AmqpRetryOptions().setMaxRetries(0).setTryTimeout(Duration.ofSeconds(2));
        try (var sessions = client().sessionReceiver().queueName("order-session").buildClient();
             var others = client().retryOptions(impatient).sessionReceiver().queueName("order-session").buildClient();
             var slow = sessions.acceptNextSession()) {
            try (var second = others.acceptNextSession()) {
                throw new AssertionError("two consumers hold session " + second.getSessionId());
            } catch (IllegalStateException e) { // a receive that found nothing in time
                System.out.println("the second consumer gets nothing of the session");
            }
            System.out.println("within a session: " + String.join(" ", finish(slow, 3)));
        }
    }
}
