#!/bin/bash
# Second stage, process 1 on the real root: mounts the file systems (above all
# pure cgroup v2), runs /holdfast/job.sh in the checkout and reports to the
# host over virtio-serial ports:
#   holdfast.out, holdfast.err   output of the job
#   holdfast.ctl                 lines: kernel VERSION | ready UPTIME |
#                                results BASE64 | exit STATUS | fatal MESSAGE
export PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin
export HOME=/root LANG=C.UTF-8
umask 022
set +m

finish() {
  sync
  busybox poweroff -f
  sleep 60
}

fatal() {
  echo "stage2: $*"
  [[ -n ${ctl_open:-} ]] && echo "fatal $*" >&3
  finish
}

must() {
  "$@" || fatal "failed: $*"
}

must mount -t proc -o nosuid,nodev,noexec proc /proc
must mount -t sysfs -o nosuid,nodev,noexec sysfs /sys

# The ports first: from here on a failure can be told to the host.
must modprobe virtio_console
declare -A port
for ((try = 0; try < 100; try++)); do
  for dir in /sys/class/virtio-ports/*; do
    [[ -e $dir/name ]] || continue
    name=$(<"$dir/name")
    [[ -c /dev/${dir##*/} ]] && port[$name]=/dev/${dir##*/}
  done
  [[ -n ${port[holdfast.out]:-} && -n ${port[holdfast.err]:-} && -n ${port[holdfast.ctl]:-} ]] && break
  sleep 0.1
done
[[ -n ${port[holdfast.ctl]:-} ]] || fatal 'no virtio-serial ports'
exec 3> "${port[holdfast.ctl]}" && ctl_open=1
echo "kernel $(</proc/sys/kernel/osrelease)" >&3

mkdir -p /dev/pts /dev/shm
must mount -t devpts -o nosuid,noexec,gid=5,mode=620,ptmxmode=666 devpts /dev/pts
must mount -t tmpfs -o nosuid,nodev,mode=1777 tmpfs /dev/shm
must mount -t tmpfs -o nosuid,nodev,mode=755 tmpfs /run
ln -sfn /proc/self/fd /dev/fd
ln -sfn /proc/self/fd/0 /dev/stdin
ln -sfn /proc/self/fd/1 /dev/stdout
ln -sfn /proc/self/fd/2 /dev/stderr
mkdir -p /run/lock /run/holdfast
chmod 1777 /tmp /run/lock # /tmp stays on the (throw-away) disk: tests write big files

# Pure cgroup v2, mounted as systemd mounts it. The kernel runs with
# cgroup_no_v1=all, so that no controller can be bound to v1.
must mount -t cgroup2 -o nosuid,nodev,noexec,nsdelegate,memory_recursiveprot cgroup2 /sys/fs/cgroup
for controller in $(</sys/fs/cgroup/cgroup.controllers); do
  echo "+$controller" > /sys/fs/cgroup/cgroup.subtree_control || echo "stage2: cannot enable $controller"
done
[[ $(stat -fc %T /sys/fs/cgroup) == cgroup2fs ]] || fatal 'cgroup v2 is not mounted'
awk '$3 == "cgroup" { found = 1 } END { exit found }' /proc/mounts || fatal 'a cgroup v1 hierarchy is mounted'
enabled=" $(</sys/fs/cgroup/cgroup.subtree_control) "
for controller in memory pids cpu; do
  [[ $enabled == *" $controller "* ]] || fatal "controller $controller is not enabled at the root"
done

hostname holdfast-vm 2> /dev/null || echo holdfast-vm > /proc/sys/kernel/hostname
ip link set lo up || fatal 'cannot bring the loopback up'
ulimit -Hn 524288

# The modules that the engine needs. They can also be loaded on demand; doing
# it here keeps the cost out of the first test that meets them.
modprobe -a loop overlay squashfs tun veth bridge nf_tables fuse || fatal 'a kernel module is missing'
modprobe btrfs & btrfs=$! # its parity self-tests take a while

# The checkout: a read-only image below, the throw-away disk above.
mkdir -p /run/holdfast/repo /run/holdfast/node /var/holdfast/{upper,work} /srv/holdfast
must mount -t squashfs -o ro /dev/vdb /run/holdfast/repo
must mount -t squashfs -o ro /dev/vdc /run/holdfast/node
must mount -t overlay -o lowerdir=/run/holdfast/repo,upperdir=/var/holdfast/upper,workdir=/var/holdfast/work overlay /srv/holdfast
ln -sf /run/holdfast/node/bin/node /usr/local/bin/node
if compgen -G '/run/holdfast/node/lib/*' > /dev/null; then
  ln -sf /run/holdfast/node/lib/* /usr/local/lib/
  ldconfig
fi
wait $btrfs || fatal 'the kernel module btrfs is missing'

mkfifo /run/holdfast/out /run/holdfast/err
cat /run/holdfast/out > "${port[holdfast.out]}" 3>&- & out=$!
cat /run/holdfast/err > "${port[holdfast.err]}" 3>&- & err=$!

read -r uptime _ < /proc/uptime
echo "ready $uptime" >&3
cd /srv/holdfast || fatal 'no checkout'
/bin/bash /holdfast/job.sh < /dev/null > /run/holdfast/out 2> /run/holdfast/err 3>&- &
wait $!
status=$?

# Let the output drain. Whatever the job left running may hold the pipes open:
# it is not waited for longer than three seconds.
for ((try = 0; try < 30; try++)); do
  kill -0 $out 2> /dev/null || kill -0 $err 2> /dev/null || break
  sleep 0.1
done
[[ -f /run/holdfast/results.json ]] && echo "results $(base64 -w0 /run/holdfast/results.json)" >&3
echo "exit $status" >&3
finish
