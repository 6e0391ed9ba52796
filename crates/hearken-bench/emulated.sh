#!/usr/bin/env bash
# Runs the benchmark in an unmodified Debian kernel on one emulated processor with QEMU -icount shift=0,
# where a nanosecond of CPU time is one instruction. This gives exact user and kernel counts on machines
# without hardware counters.
#
#   emulated.sh OUT [DISPATCH ARGUMENTS...]       e.g. emulated.sh /tmp/dispatch --only epoll,mio
#
# Writes OUT/results.json and OUT/table.md. Requires qemu-system-x86, busybox-static and cpio, and either
# apt-get to download a kernel or a kernel image in $KERNEL.
set -euo pipefail
out=${1:?usage: emulated.sh OUT [DISPATCH ARGUMENTS...]}
shift
here=$(cd "$(dirname "$0")" && pwd)
target=${CARGO_TARGET_DIR:-$here/../../target}
. "$here/../../scripts/lib/emulated.sh"

emulated_tools
mkdir -p "$out"
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

KERNEL=${KERNEL:-$(emulated_kernel linux-image-amd64)}

cargo build --release --features ebpf --manifest-path "$here/Cargo.toml"
root=$work/root
emulated_guest "$root"
mkdir "$root/peers"
cp "$target/release/dispatch" "$root/bin/dispatch"
"$target/release/dispatch" peers "$work/peers"
for peer in "$work"/peers/*; do
    [ -x "$peer" ] && cp "$peer" "$root/peers/"
done
# Copy the libraries of the programs to the same paths.
for program in "$root"/bin/* "$root"/peers/*; do
    emulated_libraries "$root" "$program"
done
printf '%q ' dispatch "$@" --icount --peers /peers --json >"$work/command"
cat >"$root/init" <<INIT
#!/bin/busybox sh
/bin/busybox --install -s /bin
export PATH=/bin
mount -t proc proc /proc
mount -t sysfs sys /sys
mount -t devtmpfs dev /dev
mount -t securityfs securityfs /sys/kernel/security
ip link set lo up 2>/dev/null
ulimit -n 20000
$(cat "$work/command") >/tmp/results.json 2>/dev/console
echo "dispatch ended with \$?"
stty -F /dev/ttyS1 measurement
cat /tmp/results.json >/dev/ttyS1
poweroff -f
INIT
chmod +x "$root/init"
emulated_pack "$root" "$work/initrd"
emulated_counting "$KERNEL" "$work/initrd" "$out/results.json" 'init_on_alloc=0 lsm=lockdown,yama,bpf' \
    -cpu max -m 2048 >"$out/console.log"

tail -n 5 "$out/console.log"
"$target/release/dispatch" show "$out/results.json" >"$out/table.md"
cat "$out/table.md"
# Succeed only if `dispatch` in the guest succeeded.
grep -q 'dispatch ended with 0' "$out/console.log"
