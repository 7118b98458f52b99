#!/bin/sh
# Starts a broker on a directory that may be new; the arguments are those of `tidemark start`.
set -eu
tidemark format --standalone --ignore-formatted "$@"
exec tidemark start "$@"
