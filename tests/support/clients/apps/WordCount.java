import java.util.Arrays;
import java.util.Properties;
import java.util.concurrent.CountDownLatch;
import org.apache.kafka.common.serialization.Serdes;
import org.apache.kafka.streams.KafkaStreams;
import org.apache.kafka.streams.StreamsBuilder;
import org.apache.kafka.streams.StreamsConfig;
import org.apache.kafka.streams.kstream.Produced;

/** Counts the words of topic `text` into topic `counts`: WordCount BOOTSTRAP STATE_DIR. */
public final class WordCount {
  public static void main(String[] args) throws Exception {
    Properties settings = new Properties();
    settings.put(StreamsConfig.APPLICATION_ID_CONFIG, "word-count");
    settings.put(StreamsConfig.BOOTSTRAP_SERVERS_CONFIG, args[0]);
    settings.put(StreamsConfig.STATE_DIR_CONFIG, args[1]);
    settings.put(StreamsConfig.COMMIT_INTERVAL_MS_CONFIG, 200);
    settings.put(StreamsConfig.REPLICATION_FACTOR_CONFIG, 1);
    settings.put(StreamsConfig.DEFAULT_KEY_SERDE_CLASS_CONFIG, Serdes.StringSerde.class);
    settings.put(StreamsConfig.DEFAULT_VALUE_SERDE_CLASS_CONFIG, Serdes.StringSerde.class);
    settings.put("auto.offset.reset", "earliest");
    StreamsBuilder builder = new StreamsBuilder();
    builder.<String, String>stream("text")
        .flatMapValues(line -> Arrays.asList(line.split(" ")))
        .groupBy((key, word) -> word)
        .count()
        .toStream()
        .mapValues(String::valueOf)
        .to("counts", Produced.with(Serdes.String(), Serdes.String()));
    KafkaStreams streams = new KafkaStreams(builder.build(), settings);
    CountDownLatch over = new CountDownLatch(1);
    streams.setUncaughtExceptionHandler(error -> {
      error.printStackTrace();
      return org.apache.kafka.streams.errors.StreamsUncaughtExceptionHandler.StreamThreadExceptionResponse.SHUTDOWN_CLIENT;
    });
    Runtime.getRuntime().addShutdownHook(new Thread(() -> {
      streams.close();
      over.countDown();
    }));
    streams.start();
    over.await();
  }
}
