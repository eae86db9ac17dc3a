package deadletters;

import com.azure.messaging.servicebus.ServiceBusClientBuilder;
import com.azure.messaging.servicebus.ServiceBusMessage;
import com.azure.messaging.servicebus.ServiceBusSenderClient;
import com.azure.messaging.servicebus.models.DeadLetterOptions;
import com.azure.messaging.servicebus.models.SubQueue;
import java.time.Duration;
import java.util.List;

/**
 * A worker dead-letters an order that it cannot read, and a repairer reads dead letters, repairs them and sends them
 * again.
 */
public class Main {
    static final Duration PATIENCE = Duration.ofMinutes(1);
    static final String QUEUE = "deadletters-orders";

    public static void main(String[] args) {
        try (var sender = client().sender().queueName(QUEUE).buildClient()) {
            for (var amount : List.of("10", "twenty")) {
                sender.sendMessage(new ServiceBusMessage(amount).setMessageId("order-" + amount));
            }
            work(2);
            repair(sender);
            work(1);
        }
    }

    static ServiceBusClientBuilder client() {
        return new ServiceBusClientBuilder().connectionString(System.getenv("SERVICEBUS_CONNECTION_STRING"));
    }

    /** Handles so many orders. To try again would not help an amount that is no number, so it is rejected at once. */
    static void work(int orders) {
        try (var receiver = client().receiver().queueName(QUEUE).buildClient()) {
            while (orders > 0) {
                for (var message : receiver.receiveMessages(1, PATIENCE)) {
                    orders--;
                    try {
                        int amount = Integer.parseInt(message.getBody().toString());
                        System.out.printf("%s: paid %d%n", message.getMessageId(), amount);
                        receiver.complete(message);
                    } catch (NumberFormatException e) {
                        System.out.println(message.getMessageId() + ": rejected");
                        receiver.deadLetter(message, new DeadLetterOptions().setDeadLetterReason("NoNumber")
                                .setDeadLetterErrorDescription("\"" + message.getBody() + "\" is no number"));
                    }
                }
            }
        }
    }

    /**
     * Repairs one dead letter. It completes the dead letter after the new message is stored: a crash in between leaves
     * both, not neither.
     */
    static void repair(ServiceBusSenderClient sender) {
        try (var receiver = client().receiver().queueName(QUEUE).subQueue(SubQueue.DEAD_LETTER_QUEUE).buildClient()) {
            var dead = receiver.receiveMessages(1, PATIENCE).iterator().next();
            System.out.printf("%s: %s, %s; sent again as 20%n",
                    dead.getMessageId(), dead.getDeadLetterReason(), dead.getDeadLetterErrorDescription());
            sender.sendMessage(new ServiceBusMessage("20").setMessageId(dead.getMessageId()));
            receiver.complete(dead);
        }
    }
}
