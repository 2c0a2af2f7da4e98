#!/bin/sh
# Runs a command so that several test runs can share one machine without taking each other's work for leaks: a PID and
# a mount namespace of its own, /run/holdfast of its own, and cgroups below a parent of its own.
#   tests/helpers/isolated.sh npx vitest run tests/engine/smoke.test.ts
set -eu
HOLDFAST_CGROUP_PARENT="test-$(od -An -N6 -tx1 /dev/urandom | tr -d ' \n')"
export HOLDFAST_CGROUP_PARENT
trap 'find /sys/fs/cgroup -depth -type d -path "*/$HOLDFAST_CGROUP_PARENT*" -exec rmdir {} + 2>/dev/null || true' EXIT
unshare --pid --fork --mount --mount-proc --kill-child sh -c '
  mkdir -p /run/holdfast && mount -t tmpfs tmpfs /run/holdfast
  exec "$@"' isolated "$@"
