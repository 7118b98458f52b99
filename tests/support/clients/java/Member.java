import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.nio.charset.StandardCharsets;
import java.time.Duration;
import java.util.ArrayList;
import java.util.Collection;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.Properties;
import java.util.Set;
import java.util.TreeMap;
import java.util.concurrent.ConcurrentLinkedQueue;
import java.util.concurrent.ExecutionException;
import java.util.regex.Pattern;
import org.apache.kafka.clients.admin.Admin;
import org.apache.kafka.clients.admin.ConsumerGroupDescription;
import org.apache.kafka.clients.admin.GroupListing;
import org.apache.kafka.clients.consumer.ConsumerRebalanceListener;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.consumer.OffsetAndMetadata;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.errors.RetriableException;
import org.apache.kafka.common.serialization.ByteArrayDeserializer;

/** Kafka's own client as a member of a group; ../README.md has the protocol. */
public final class Member implements ConsumerRebalanceListener {
  private static final ObjectMapper JSON = new ObjectMapper();
  private static final PrintStream OUT = new PrintStream(System.out, false, StandardCharsets.UTF_8);

  private final String bootstrap;
  private final ConcurrentLinkedQueue<JsonNode> commands = new ConcurrentLinkedQueue<>();
  private final Map<TopicPartition, Long> positions = new LinkedHashMap<>();
  private final Set<TopicPartition> owned = new java.util.HashSet<>();
  private KafkaConsumer<byte[], byte[]> consumer;

  private Member(String bootstrap) {
    this.bootstrap = bootstrap;
  }

  public static void main(String[] args) throws Exception {
    new Member(args[0]).run();
  }

  private void run() throws Exception {
    Thread reader = new Thread(this::read);
    reader.setDaemon(true);
    reader.start();
    say("ready", Map.of());
    while (true) {
      JsonNode command = commands.poll();
      if (command != null && !obey(command)) {
        return;
      }
      if (consumer == null) {
        Thread.sleep(5);
        continue;
      }
      try {
        for (ConsumerRecord<byte[], byte[]> one : consumer.poll(Duration.ofMillis(50))) {
          positions.put(new TopicPartition(one.topic(), one.partition()), one.offset() + 1);
          Map<String, Object> facts = new TreeMap<>();
          facts.put("topic", one.topic());
          facts.put("partition", one.partition());
          facts.put("offset", one.offset());
          facts.put("value", one.value() == null ? null : new String(one.value(), StandardCharsets.UTF_8));
          say("record", facts);
        }
      } catch (RuntimeException error) {
        say("error", Map.of("error", name(error)));
        Thread.sleep(100);
      }
    }
  }

  private void read() {
    try (BufferedReader in = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8))) {
      for (String line = in.readLine(); line != null; line = in.readLine()) {
        commands.add(JSON.readTree(line));
      }
      commands.add(JSON.readTree("{\"do\": \"close\"}"));
    } catch (java.io.IOException error) {
      throw new java.io.UncheckedIOException(error);
    }
  }

  private boolean obey(JsonNode command) {
    switch (command.get("do").asText()) {
      case "subscribe" -> subscribe(command);
      case "commit" -> commit(command);
      case "committed" -> committed(command);
      case "admin" -> admin(command);
      case "close" -> {
        if (consumer != null) {
          consumer.close();
        }
        say("closed", Map.of());
        return false;
      }
      default -> say("error", Map.of("error", "what is " + command));
    }
    return true;
  }

  private void subscribe(JsonNode command) {
    String strategy = command.path("strategy").asText("range");
    Map<String, String> assignors = Map.of(
        "range", "RangeAssignor", "roundrobin", "RoundRobinAssignor", "sticky", "StickyAssignor",
        "cooperative-sticky", "CooperativeStickyAssignor");
    Properties settings = new Properties();
    settings.put("bootstrap.servers", bootstrap);
    settings.put("group.id", command.get("group").asText());
    settings.put("group.protocol", "classic");
    settings.put("partition.assignment.strategy",
        "org.apache.kafka.clients.consumer." + assignors.get(strategy));
    settings.put("session.timeout.ms", command.path("session_ms").asInt(6000));
    settings.put("heartbeat.interval.ms", 500);
    settings.put("auto.offset.reset", command.path("reset").asText("earliest"));
    settings.put("enable.auto.commit", false);
    settings.put("metadata.max.age.ms", 1000);
    if (command.hasNonNull("instance")) {
      settings.put("group.instance.id", command.get("instance").asText());
    }
    consumer = new KafkaConsumer<>(settings, new ByteArrayDeserializer(), new ByteArrayDeserializer());
    if (command.hasNonNull("pattern")) {
      consumer.subscribe(Pattern.compile(command.get("pattern").asText()), this);
    } else {
      List<String> topics = new ArrayList<>();
      command.get("topics").forEach(topic -> topics.add(topic.asText()));
      consumer.subscribe(topics, this);
    }
  }

  @Override
  public void onPartitionsAssigned(Collection<TopicPartition> fresh) {
    owned.addAll(fresh);
    say("assigned", Map.of("new", pairs(fresh), "owned", pairs(owned)));
  }

  @Override
  public void onPartitionsRevoked(Collection<TopicPartition> gone) {
    gone("revoked", gone);
  }

  @Override
  public void onPartitionsLost(Collection<TopicPartition> gone) {
    gone("lost", gone);
  }

  private void gone(String event, Collection<TopicPartition> gone) {
    owned.removeAll(gone);
    gone.forEach(positions::remove);
    say(event, Map.of("gone", pairs(gone), "owned", pairs(owned)));
  }

  private void commit(JsonNode command) {
    Map<TopicPartition, OffsetAndMetadata> wanted = offsetsOf(command);
    if (!command.hasNonNull("offsets")) {
      positions.forEach((at, offset) -> wanted.put(at, new OffsetAndMetadata(offset)));
    }
    Map<String, Object> facts = new TreeMap<>();
    facts.put("error", null);
    try {
      if (!wanted.isEmpty()) {
        consumer.commitSync(wanted, Duration.ofSeconds(20));
      }
    } catch (RuntimeException error) {
      facts.put("error", name(error));
    }
    facts.put("offsets", rows(wanted));
    say("committed", facts);
  }

  private void committed(JsonNode command) {
    Set<TopicPartition> asked = new java.util.HashSet<>(partitionsOf(command));
    List<Object> found = new ArrayList<>();
    consumer.committed(asked, Duration.ofSeconds(20)).forEach((at, one) -> found.add(List.of(
        at.topic(), at.partition(), one == null ? -1 : one.offset(), one == null ? "" : one.metadata())));
    say("offsets", Map.of("offsets", found));
  }

  private void admin(JsonNode command) {
    Map<String, Object> facts = new TreeMap<>();
    facts.put("what", command.get("what").asText());
    facts.put("answer", null);
    facts.put("error", null);
    Properties settings = new Properties();
    settings.put("bootstrap.servers", bootstrap);
    try (Admin admin = Admin.create(settings)) {
      facts.put("answer", ask(admin, command));
    } catch (ExecutionException error) {
      facts.put("error", name(error.getCause()));
    } catch (InterruptedException error) {
      facts.put("error", name(error));
    }
    say("admin", facts);
  }

  private Object ask(Admin admin, JsonNode command) throws ExecutionException, InterruptedException {
    String group = command.path("group").asText();
    switch (command.get("what").asText()) {
      case "list": {
        List<Object> found = new ArrayList<>();
        for (GroupListing one : admin.listGroups().all().get()) {
          found.add(List.of(one.groupId(), one.groupState().map(Object::toString).orElse("")));
        }
        return found;
      }
      case "describe": {
        ConsumerGroupDescription one =
            admin.describeConsumerGroups(List.of(group)).describedGroups().get(group).get();
        return Map.of("state", one.groupState().toString(), "members", one.members().size());
      }
      case "delete":
        admin.deleteConsumerGroups(List.of(group)).all().get();
        return null;
      case "offsets":
        return rows(admin.listConsumerGroupOffsets(group).partitionsToOffsetAndMetadata().get());
      case "alter":
        admin.alterConsumerGroupOffsets(group, offsetsOf(command)).all().get();
        return null;
      case "delete_offsets":
        admin.deleteConsumerGroupOffsets(group, new java.util.HashSet<>(partitionsOf(command))).all().get();
        return null;
      default:
        return null;
    }
  }

  private static Map<TopicPartition, OffsetAndMetadata> offsetsOf(JsonNode command) {
    Map<TopicPartition, OffsetAndMetadata> found = new LinkedHashMap<>();
    command.path("offsets").forEach(one -> found.put(
        new TopicPartition(one.get(0).asText(), one.get(1).asInt()),
        new OffsetAndMetadata(one.get(2).asLong(), one.get(3).asText())));
    return found;
  }

  private static List<TopicPartition> partitionsOf(JsonNode command) {
    List<TopicPartition> found = new ArrayList<>();
    command.path("partitions").forEach(one -> found.add(new TopicPartition(one.get(0).asText(), one.get(1).asInt())));
    return found;
  }

  private static List<Object> rows(Map<TopicPartition, OffsetAndMetadata> offsets) {
    List<Object> found = new ArrayList<>();
    offsets.forEach((at, one) -> found.add(List.of(at.topic(), at.partition(), one.offset(), one.metadata())));
    return found;
  }

  private static List<Object> pairs(Collection<TopicPartition> partitions) {
    return partitions.stream()
        .sorted(java.util.Comparator.comparing(TopicPartition::topic).thenComparing(TopicPartition::partition))
        .map(one -> (Object) List.of(one.topic(), one.partition()))
        .toList();
  }

  private static String name(Throwable error) {
    String cause = error.getCause() == null ? "" : " of " + error.getCause().getClass().getSimpleName();
    return error.getClass().getSimpleName() + cause + (error instanceof RetriableException ? ", to be tried again" : "");
  }

  private static synchronized void say(String event, Map<String, ?> facts) {
    Map<String, Object> line = new TreeMap<>(facts);
    line.put("event", event);
    try {
      OUT.println(JSON.writeValueAsString(line));
      OUT.flush();
    } catch (com.fasterxml.jackson.core.JsonProcessingException error) {
      throw new IllegalStateException(error);
    }
  }
}
