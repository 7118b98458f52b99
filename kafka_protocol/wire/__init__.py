"""The wire protocol: primitives, the schema-driven codec, framing, and one module of schemas an API."""
