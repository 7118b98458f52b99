"""A broker inside somebody's test suite: `tidemark.Broker`, its processes, its pytest plugin.

The modules that the test's process imports (all but `child` and `settings`) import the standard
library and `tidemark.dev.settings` only, which is as light, and confluent_kafka when a client is
asked for: the test's process stays what it is, and starts as fast. So they do without `runtime`,
and `os` and `time` are used here.
"""
