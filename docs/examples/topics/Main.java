package topics;

import com.azure.messaging.servicebus.ServiceBusClientBuilder;
import com.azure.messaging.servicebus.ServiceBusMessage;
import java.time.Duration;

/** Publishes trades. Each subscription gets those that its rule selects, and one rule marks what it passes on. */
public class Main {
    static final String TOPIC = "topics-trades";

    public static void main(String[] args) {
        try (var sender = client().sender().topicName(TOPIC).buildClient()) {
            sender.sendMessage(trade("eu", 500));
            sender.sendMessage(trade("eu", 5000));
            sender.sendMessage(trade("us", 2000));
        }
        // How many of the trades each subscription gets; Config.json has their rules.
        show("all", 3);
        show("europe", 2);
        show("large", 2);
    }

    static ServiceBusClientBuilder client() {
        return new ServiceBusClientBuilder().connectionString(System.getenv("SERVICEBUS_CONNECTION_STRING"));
    }

    static ServiceBusMessage trade(String region, int amount) {
        var message = new ServiceBusMessage("").setSubject("trade");
        message.getApplicationProperties().put("region", region);
        message.getApplicationProperties().put("amount", amount);
        return message;
    }

    static void show(String subscription, int count) {
        try (var receiver = client().receiver().topicName(TOPIC).subscriptionName(subscription).buildClient()) {
            for (int shown = 0; shown < count;) {
                for (var message : receiver.receiveMessages(1, Duration.ofMinutes(1))) {
                    var trade = message.getApplicationProperties();
                    System.out.printf("%s: %s %s, %s%n", subscription,
                            trade.get("region"), trade.get("amount"), trade.getOrDefault("desk", "no desk"));
                    receiver.complete(message);
                    shown++;
                }
            }
            long left = receiver.peekMessages(10).stream().count();
            if (left > 0) {
                throw new IllegalStateException(subscription + " has " + left + " messages more than its rule selects");
            }
        }
    }
}
