#!/bin/sh
# Starts a node on a directory that may be new; the arguments are those of `tidemark start`.
# TIDEMARK_FORMAT: what `tidemark format` is told of the cluster; not set: the node is its own.
set -eu
# shellcheck disable=SC2086  # several options
tidemark format ${TIDEMARK_FORMAT:---standalone} --ignore-formatted "$@"
exec tidemark start "$@"
