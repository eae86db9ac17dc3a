package busbar;

import java.util.Map;

final class Topics {
    private Topics() {
    }

    static void add(Map<String, Main.Scenario> all) {
    }
}
