import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import java.io.BufferedReader;
import java.io.ByteArrayOutputStream;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.lang.reflect.InvocationTargetException;
import java.nio.charset.StandardCharsets;
import java.util.Map;
import org.apache.kafka.common.utils.Exit;

/** Runs Kafka's command-line tools in one JVM: a line of JSON asks for a call, a line answers. */
public final class Tools {
  private static final class Ended extends RuntimeException {
    final int code;

    Ended(int code) {
      super(null, null, false, false);
      this.code = code;
    }
  }

  public static void main(String[] args) throws Exception {
    ObjectMapper json = new ObjectMapper();
    PrintStream out = new PrintStream(System.out, true, StandardCharsets.UTF_8);
    Exit.setExitProcedure((code, message) -> {
      throw new Ended(code);
    });
    BufferedReader in = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
    for (String line = in.readLine(); line != null; line = in.readLine()) {
      JsonNode asked = json.readTree(line);
      ByteArrayOutputStream said = new ByteArrayOutputStream();
      PrintStream capture = new PrintStream(said, true, StandardCharsets.UTF_8);
      System.setOut(capture);
      System.setErr(capture);
      int code = 0;
      try {
        String[] words = json.convertValue(asked.get("args"), String[].class);
        Class.forName(asked.get("tool").asText()).getMethod("main", String[].class).invoke(null, (Object) words);
      } catch (InvocationTargetException error) {
        if (error.getCause() instanceof Ended ended) {
          code = ended.code;
        } else {
          code = 1;
          capture.println(error.getCause());
        }
      }
      out.println(json.writeValueAsString(Map.of("code", code, "said", said.toString(StandardCharsets.UTF_8))));
    }
    System.exit(0);
  }
}
