#!/bin/busybox sh
# First process of the virtual machine, in the initramfs: loads what the root
# disk needs, mounts it and hands over to stage2.sh.
b=/bin/busybox
$b mkdir -p /proc /dev /newroot
$b mount -t proc proc /proc
$b mount -t devtmpfs dev /dev

while read -r module; do
  $b insmod "/modules/$module" || echo "stage1: cannot load $module"
done < /modules/order

tries=0
until [ -b /dev/vda ]; do
  tries=$((tries + 1))
  if [ "$tries" -gt 300 ]; then
    echo 'stage1: no root disk'
    $b poweroff -f
  fi
  $b sleep 0.1
done

if ! $b mount -t ext4 -o noatime,noinit_itable /dev/vda /newroot; then
  echo 'stage1: cannot mount the root disk'
  $b poweroff -f
fi
$b mkdir -p /newroot/holdfast
$b cp /stage2.sh /job.sh /newroot/holdfast/
$b umount /proc
$b mount --move /dev /newroot/dev
exec $b switch_root /newroot /bin/bash /holdfast/stage2.sh
