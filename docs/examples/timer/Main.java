package timer;

import com.azure.messaging.servicebus.ServiceBusClientBuilder;
import com.azure.messaging.servicebus.ServiceBusMessage;
import com.azure.messaging.servicebus.ServiceBusSenderClient;
import java.nio.charset.StandardCharsets;
import java.time.Duration;
import java.time.OffsetDateTime;

/**
 * Runs logins with a time limit. Each login schedules the message that ends it, and keeps the number of that message in
 * the state of its session. It cancels the message when the code comes in time.
 */
public class Main {
    static final String QUEUE = "timer-logins";
    static final Duration LIMIT = Duration.ofSeconds(5);

    public static void main(String[] args) {
        try (var sender = client().sender().queueName(QUEUE).buildClient()) {
            // Ann asks for a code and enters it. Bob asks for one and goes away.
            sender.sendMessage(of("ann", "ask"));
            sender.sendMessage(of("ann", "enter"));
            sender.sendMessage(of("bob", "ask"));
            login(sender, "ann");
            login(sender, "bob");
        }
    }

    static ServiceBusClientBuilder client() {
        return new ServiceBusClientBuilder().connectionString(System.getenv("SERVICEBUS_CONNECTION_STRING"));
    }

    static ServiceBusMessage of(String user, String subject) {
        return new ServiceBusMessage("").setSessionId(user).setSubject(subject);
    }

    /** Handles the messages of one user until the user is in or the time is over. */
    static void login(ServiceBusSenderClient sender, String user) {
        try (var sessions = client().sessionReceiver().queueName(QUEUE).buildClient();
             var session = sessions.acceptSession(user)) {
            for (boolean over = false; !over;) {
                for (var message : session.receiveMessages(1, Duration.ofMinutes(1))) {
                    switch (message.getSubject()) {
                        case "ask" -> {
                            long number = sender.scheduleMessage(of(user, "lapse"), OffsetDateTime.now().plus(LIMIT));
                            session.setSessionState(Long.toString(number).getBytes(StandardCharsets.UTF_8));
                            System.out.printf("%s: has a code for %d s%n", user, LIMIT.toSeconds());
                        }
                        case "enter" -> {
                            var number = new String(session.getSessionState(), StandardCharsets.UTF_8);
                            sender.cancelScheduledMessage(Long.parseLong(number));
                            System.out.println(user + ": is in, the timer is cancelled");
                        }
                        default -> System.out.println(user + ": the code has lapsed");
                    }
                    session.complete(message);
                    over = !message.getSubject().equals("ask");
                }
            }
            session.setSessionState(null);
        }
    }
}
