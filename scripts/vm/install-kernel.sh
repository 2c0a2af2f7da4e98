#!/bin/sh
# Customise hook of mmdebstrap: unpacks Debian's cloud kernel and its modules
# into the root file system given as $1, with the package lists (hence the
# signatures) of the bootstrap itself.
set -eu
root=$1
export APT_CONFIG="$MMDEBSTRAP_APT_CONFIG"

meta=linux-image-cloud-amd64
kernel=$(apt-cache depends --important "$meta" |
  sed -n 's/^ *Depends: \(linux-image-[0-9].*-cloud-amd64\)$/\1/p' | head -n 1)
[ -n "$kernel" ] || { echo "install-kernel: $meta names no kernel package" >&2; exit 1; }

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
(cd "$work" && apt-get -q -o APT::Sandbox::User=root download "$kernel")
dpkg-deb -x "$work"/*.deb "$work/tree"
version=$(ls "$work/tree/lib/modules")
mkdir -p "$root/lib/modules"
cp -a "$work/tree/lib/modules/$version" "$root/lib/modules/"
cp "$work/tree/boot/vmlinuz-$version" "$root/boot/vmlinuz"
chroot "$root" depmod -a "$version"

ln -sf /proc/self/mounts "$root/etc/mtab"
echo holdfast-vm > "$root/etc/hostname"
printf '127.0.0.1 localhost holdfast-vm\n::1 localhost\n' > "$root/etc/hosts"
: > "$root/etc/resolv.conf"
