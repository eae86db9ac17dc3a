package requestreply;

import com.azure.messaging.servicebus.ServiceBusClientBuilder;
import com.azure.messaging.servicebus.ServiceBusMessage;
import java.time.Duration;
import java.util.UUID;
import java.util.concurrent.CompletableFuture;

/**
 * Two requesters and one responder. All answers go through one queue; each requester gets its own, for each has a
 * session of the reply queue.
 */
public class Main {
    static final Duration PATIENCE = Duration.ofMinutes(1);
    static final String REQUESTS = "reply-requests";
    static final String REPLIES = "reply-replies"; // requires sessions

    public static void main(String[] args) {
        var responder = CompletableFuture.runAsync(() -> respond(2));
        var ann = CompletableFuture.supplyAsync(() -> ask("ann"));
        var bob = CompletableFuture.supplyAsync(() -> ask("bob"));
        System.out.println("ann was answered: " + ann.join());
        System.out.println("bob was answered: " + bob.join());
        responder.join();
    }

    static ServiceBusClientBuilder client() {
        return new ServiceBusClientBuilder().connectionString(System.getenv("SERVICEBUS_CONNECTION_STRING"));
    }

    /** Accepts its reply session before it sends: a session that is held is given to nobody else. */
    static String ask(String name) {
        var instance = UUID.randomUUID().toString();
        try (var sessions = client().sessionReceiver().queueName(REPLIES).buildClient();
             var session = sessions.acceptSession(instance);
             var sender = client().sender().queueName(REQUESTS).buildClient()) {
            sender.sendMessage(new ServiceBusMessage(name).setReplyTo(REPLIES).setReplyToSessionId(instance));
            var reply = session.receiveMessages(1, PATIENCE).iterator().next();
            session.complete(reply);
            return reply.getBody().toString();
        }
    }

    /** Answers count requests. A request says where its answer goes. */
    static void respond(int count) {
        try (var receiver = client().receiver().queueName(REQUESTS).buildClient()) {
            for (int answered = 0; answered < count; answered++) {
                var request = receiver.receiveMessages(1, PATIENCE).iterator().next();
                try (var sender = client().sender().queueName(request.getReplyTo()).buildClient()) {
                    sender.sendMessage(new ServiceBusMessage("good day, " + request.getBody())
                            .setSessionId(request.getReplyToSessionId()).setCorrelationId(request.getMessageId()));
                }
                receiver.complete(request);
            }
        }
    }
}
