package dev.busbar.test;

import java.nio.file.Path;
import org.junit.jupiter.api.extension.AfterEachCallback;
import org.junit.jupiter.api.extension.BeforeEachCallback;
import org.junit.jupiter.api.extension.ExtensionContext;
import org.junit.jupiter.api.extension.ExtensionContext.Namespace;
import org.junit.jupiter.api.extension.ExtensionContext.Store.CloseableResource;
import org.junit.jupiter.api.extension.ParameterContext;
import org.junit.jupiter.api.extension.ParameterResolver;

/**
 * Gives the tests of JUnit a {@link Broker} as a parameter. One broker serves a run, and is empty when a test begins, so the tests
 * of such a run go one after the other. The setting {@code busbar.entities} of JUnit names a file of entities. When a test fails,
 * the log of the broker since the beginning of the test is printed to the standard error.
 */
public final class BusbarExtension implements BeforeEachCallback, AfterEachCallback, ParameterResolver {
    private static final Namespace OURS = Namespace.create(BusbarExtension.class);

    /** A broker that ends with the run. */
    private record Held(Broker broker) implements CloseableResource {
        @Override
        public void close() {
            broker.close();
        }
    }

    private static Broker brokerOf(ExtensionContext context) {
        return context.getRoot().getStore(OURS).getOrComputeIfAbsent(Held.class, of ->
                new Held(Broker.start(context.getConfigurationParameter("busbar.entities").map(Path::of).orElse(null))), Held.class).broker();
    }

    @Override
    public void beforeEach(ExtensionContext context) {
        var broker = brokerOf(context);
        broker.reset();
        context.getStore(OURS).put("began", broker.log().length());
    }

    @Override
    public void afterEach(ExtensionContext context) {
        if (context.getExecutionException().isPresent()) {
            var log = brokerOf(context).log();
            var began = context.getStore(OURS).getOrDefault("began", Integer.class, 0);
            System.err.println("log of the broker during " + context.getDisplayName() + ":\n" + log.substring(began));
        }
    }

    @Override
    public boolean supportsParameter(ParameterContext parameter, ExtensionContext context) {
        return parameter.getParameter().getType() == Broker.class;
    }

    @Override
    public Object resolveParameter(ParameterContext parameter, ExtensionContext context) {
        return brokerOf(context);
    }
}
