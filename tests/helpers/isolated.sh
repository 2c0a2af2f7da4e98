#!/bin/sh
# Runs a command so that several test runs can share one machine without taking each other's work for leaks: a PID and
# a mount namespace of its own, /run of its own, and cgroups below a parent of its own. All of /run, because whoever
# removes /run/holdfast outside would take a mount on it away from us; the names of nameservers are often kept there.
#   tests/helpers/isolated.sh npx vitest run tests/engine/smoke.test.ts
# HOLDFAST_TEST_CGROUP names the cgroup that the parent is made in; the root of each hierarchy when it is not set.
set -eu
HOLDFAST_CGROUP_PARENT="${HOLDFAST_TEST_CGROUP:+$HOLDFAST_TEST_CGROUP/}test-$(od -An -N6 -tx1 /dev/urandom | tr -d ' \n')"
export HOLDFAST_CGROUP_PARENT
trap 'find /sys/fs/cgroup -depth -type d -path "*/$HOLDFAST_CGROUP_PARENT*" -exec rmdir {} + 2>/dev/null || true' EXIT
# However this shell ends, everything below ends with it. The inner one stays, as PID 1 that reaps orphans.
setpriv --pdeathsig KILL unshare --pid --fork --mount --mount-proc --kill-child sh -c '
  nameservers=$(readlink -f /etc/resolv.conf) && text=$(cat "$nameservers") || nameservers=
  mount -t tmpfs -o mode=755 tmpfs /run && mkdir /run/holdfast || exit
  case "$nameservers" in
    /run/*) mkdir -p "${nameservers%/*}" && printf "%s\n" "$text" >"$nameservers" ;;
  esac
  "$@"
  exit' isolated "$@"
