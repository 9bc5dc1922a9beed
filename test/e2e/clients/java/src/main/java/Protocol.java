import com.google.gson.Gson;
import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.util.LinkedHashMap;
import java.util.Map;
import java.util.function.Supplier;

/** What the test reads and writes, see protocol_test.go. */
final class Protocol {
  static final String SELECTOR = "seen=true";
  private static final Gson gson = new Gson();

  static synchronized void say(Map<String, Object> line) {
    System.out.println(gson.toJson(line));
  }

  static void synced() {
    say(Map.of("what", "synced"));
  }

  static void event(String what, String name, Map<String, String> annotations) {
    Map<String, Object> line = new LinkedHashMap<>();
    line.put("what", what);
    line.put("name", name);
    line.put("value", value(annotations));
    say(line);
  }

  static String value(Map<String, String> annotations) {
    return annotations == null ? "" : annotations.getOrDefault("value", "");
  }

  /** Answers each line of standard input with the state, and returns at its end. */
  static void answer(Supplier<Map<String, String>> state) throws Exception {
    var in = new BufferedReader(new InputStreamReader(System.in));
    while (in.readLine() != null) {
      say(Map.of("what", "state", "objects", state.get()));
    }
  }
}
