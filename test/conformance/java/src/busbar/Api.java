package busbar;

import com.azure.core.util.Configuration;
import com.azure.messaging.servicebus.ServiceBusClientBuilder;
import com.azure.messaging.servicebus.ServiceBusMessage;
import com.azure.messaging.servicebus.ServiceBusReceivedMessage;
import com.azure.messaging.servicebus.ServiceBusReceiverClient;
import com.azure.messaging.servicebus.ServiceBusSenderClient;
import com.azure.messaging.servicebus.ServiceBusTransactionContext;
import com.azure.messaging.servicebus.administration.ServiceBusAdministrationClient;
import com.azure.messaging.servicebus.administration.models.CreateQueueOptions;
import com.azure.messaging.servicebus.administration.models.CreateRuleOptions;
import com.azure.messaging.servicebus.administration.models.CreateSubscriptionOptions;
import com.azure.messaging.servicebus.administration.models.RuleProperties;
import java.lang.module.ModuleDescriptor.Version;
import java.lang.reflect.InvocationTargetException;
import java.time.Duration;
import java.util.Arrays;
import java.util.List;
import java.util.Map;
import java.util.function.Supplier;

/**
 * What the oldest version of the library lacks. It is called by reflection, so that one source compiles against
 * every version. A call that the version lacks fails with NoSuchMethodException.
 */
final class Api {
    /** Version 7.4.2, which tells no state of a message. */
    static final boolean OLDEST = Arrays.stream(ServiceBusReceivedMessage.class.getMethods())
        .noneMatch(m -> m.getName().equals("getState"));

    /** Versions before 7.17.1, whose blocking receivers give one credit more than messages are asked for. */
    static final boolean FETCHES_AHEAD = Version.parse(Runner.version("azure-messaging-servicebus-"))
        .compareTo(Version.parse("7.17.1")) < 0;

    /**
     * Versions before 7.17.1, whose blocking session receivers are closed before their link is (`doFinally` in
     * `getSession` of `ServiceBusSessionManager`).
     */
    static final boolean CLOSES_LATE = FETCHES_AHEAD;

    /**
     * How long a blocking receiver may wait in one call. A call of 7.17.0 can wait in vain for a message that is
     * there. The message of a call that had ended is given back to the broker (`drainQueue` of
     * `SynchronousMessageSubscriber`), and is counted as asked for meanwhile. A call of that moment asks for nothing,
     * so the link has no credit. The next call asks again.
     */
    static final Duration ONE_WAIT = FETCHES_AHEAD && !OLDEST ? Duration.ofSeconds(2) : Env.SOON;

    private Api() {
    }

    /**
     * Sends messages together. A batch of version 7.4.2 has its messages in any order
     * (Azure/azure-sdk-for-java 25599), so there they go one by one.
     */
    static void send(ServiceBusSenderClient s, List<ServiceBusMessage> messages, ServiceBusTransactionContext tx) {
        if (OLDEST) {
            messages.forEach(m -> s.sendMessage(m, tx));
        } else {
            s.sendMessages(messages, tx);
        }
    }

    static void send(ServiceBusSenderClient s, List<ServiceBusMessage> messages) {
        if (OLDEST) {
            messages.forEach(s::sendMessage);
        } else {
            s.sendMessages(messages);
        }
    }

    /**
     * A scenario with transactions. Version 7.4.2 opens the AMQP session of transactions on the thread of the caller
     * (`createSession` of `ReactorConnection`), while its reactor uses the same connection. One begin of some 400 is
     * never written: the node gets no byte of it, and no transaction begins on that connection any more. Then the
     * scenario starts again with other clients, once.
     */
    static Runner.Scenario<Env> transacting(Runner.Scenario<Env> scenario) {
        return !OLDEST ? scenario : e -> {
            try {
                scenario.run(e);
            } catch (NotBegun x) {
                scenario.run(e);
            }
        };
    }

    /** Begins a transaction. */
    static ServiceBusTransactionContext begin(Supplier<ServiceBusTransactionContext> call) {
        try {
            return call.get();
        } catch (RuntimeException x) {
            throw OLDEST && String.valueOf(x.getMessage()).contains("Timeout ") ? new NotBegun(x) : x;
        }
    }

    /** No transaction began within the time-out. */
    private static final class NotBegun extends RuntimeException {
        NotBegun(RuntimeException cause) {
            super(cause);
        }
    }

    /** The session of a receiver that has received m. Version 7.4.2 tells it with the messages only. */
    static String session(ServiceBusReceiverClient r, ServiceBusReceivedMessage m) throws Exception {
        return has(r, "getSessionId") ? (String) call(r, "getSessionId") : m.getSessionId();
    }

    /** The state of a message, or otherwise where the version has none (7.4.2). */
    static String state(ServiceBusReceivedMessage m, String otherwise) throws Exception {
        return has(m, "getState") ? call(m, "getState").toString() : otherwise;
    }

    /** Settings of the library. Version 7.4.2, which has none of them, gets the ones of the environment. */
    static Configuration configuration(Map<String, String> settings) throws Exception {
        if (OLDEST) {
            return Configuration.getGlobalConfiguration();
        }
        Object builder = Class.forName("com.azure.core.util.ConfigurationBuilder").getConstructor().newInstance();
        for (var s : settings.entrySet()) {
            call(builder, "putProperty", s.getKey(), s.getValue());
        }
        return (Configuration) call(builder, "build");
    }

    /** Creates a subscription with one rule. Version 7.4.2 always creates the rule $Default first. */
    static void subscribe(ServiceBusAdministrationClient a, String topic, String name, String ruleName,
        CreateSubscriptionOptions options, CreateRuleOptions rule) throws Exception {
        var types = new Class<?>[] {String.class, String.class, String.class, CreateSubscriptionOptions.class,
            CreateRuleOptions.class};
        try {
            invoke(a, a.getClass().getMethod("createSubscription", types), topic, name, ruleName, options, rule);
        } catch (NoSuchMethodException e) {
            a.createSubscription(topic, name, options);
            a.deleteRule(topic, name, "$Default");
            a.createRule(topic, ruleName, name, rule);
        }
    }

    /** Sets the largest message of a queue, which version 7.4.2 cannot. */
    static void setMaxMessageSize(CreateQueueOptions options, long kilobytes) throws Exception {
        invoke(options, options.getClass().getMethod("setMaxMessageSizeInKilobytes", long.class), kilobytes);
    }

    /** The rules of a subscription over the data connection. */
    record Rules(AutoCloseable client) {
        static Rules of(Env e, ServiceBusClientBuilder b, String topic, String subscription) throws Exception {
            Object builder = call(b, "ruleManager");
            call(builder, "topicName", topic);
            call(builder, "subscriptionName", subscription);
            return new Rules(e.keep((AutoCloseable) call(builder, "buildClient")));
        }

        void create(String name, CreateRuleOptions rule) throws Exception {
            call(client, "createRule", name, rule);
        }

        void delete(String name) throws Exception {
            call(client, "deleteRule", name);
        }

        @SuppressWarnings("unchecked")
        Iterable<RuleProperties> list() throws Exception {
            return (Iterable<RuleProperties>) call(client, "listRules");
        }
    }

    private static boolean has(Object o, String name) {
        return Arrays.stream(o.getClass().getMethods()).anyMatch(m -> m.getName().equals(name));
    }

    private static Object call(Object o, String name, Object... args) throws Exception {
        var types = Arrays.stream(args).map(Object::getClass).toArray(Class<?>[]::new);
        return invoke(o, o.getClass().getMethod(name, types), args);
    }

    private static Object invoke(Object o, java.lang.reflect.Method m, Object... args) throws Exception {
        try {
            return m.invoke(o, args);
        } catch (InvocationTargetException e) {
            throw e.getCause() instanceof Exception cause ? cause : e;
        }
    }
}
