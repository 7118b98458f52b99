"""One layout of a segment over any store of objects: what most plugins stand on."""
