"""The wire protocol: primitives, framing, the schema-driven codec, a module of schemas an API."""
