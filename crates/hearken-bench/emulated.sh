#!/usr/bin/env bash
# Runs the benchmark in an unmodified Debian kernel on one emulated processor, QEMU's -icount
# shift=0, where a nanosecond of CPU time is one instruction: exact counts, user and kernel, on a
# machine without hardware counters.
#
#   emulated.sh OUT [ARGUMENTS OF dispatch...]       e.g. emulated.sh /tmp/dispatch --only epoll,mio
#
# It writes OUT/results.json and OUT/table.md. Needs qemu-system-x86, busybox-static and cpio. The
# kernel is $KERNEL, or the newest linux-image-*-amd64 package, which apt-get downloads once into
# ${CACHE:-~/.cache/hearken-emulated} without installing it.
set -euo pipefail
out=${1:?usage: emulated.sh OUT [ARGUMENTS OF dispatch...]}
shift
here=$(cd "$(dirname "$0")" && pwd)
target=${CARGO_TARGET_DIR:-$here/../../target}
cache=${CACHE:-$HOME/.cache/hearken-emulated}

for tool in qemu-system-x86_64 busybox cpio; do
    command -v $tool >/dev/null || {
        echo "$tool is not installed: apt-get install qemu-system-x86 busybox-static cpio" >&2
        exit 1
    }
done
mkdir -p "$out"
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

if [ -z "${KERNEL:-}" ]; then
    if ! ls "$cache"/boot/vmlinuz-* >/dev/null 2>&1; then
        mkdir -p "$cache"
        image=$(apt-cache depends linux-image-amd64 | sed -n 's/.*Depends: \(linux-image-[0-9].*\)/\1/p')
        (cd "$work" && apt-get download "$image" && dpkg-deb -x linux-image-*.deb "$cache")
    fi
    KERNEL=$(ls "$cache"/boot/vmlinuz-* | sort -V | tail -1)
fi

cargo build --release --features ebpf --manifest-path "$here/Cargo.toml"
root=$work/root
mkdir -p "$root"/{bin,dev,proc,sys,tmp,peers}
cp "$(command -v busybox)" "$root/bin/busybox"
cp "$target/release/dispatch" "$root/bin/dispatch"
"$target/release/dispatch" peers "$work/peers"
for peer in "$work"/peers/*; do
    [ -x "$peer" ] && cp "$peer" "$root/peers/"
done
# The programs' libraries, where they look for them.
for program in "$root"/bin/* "$root"/peers/*; do
    { ldd "$program" 2>/dev/null || true; } | { grep -o "/[^ ]*" || true; } | while read -r library; do
        mkdir -p "$root$(dirname "$library")"
        cp -Lu "$library" "$root$library"
    done
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
stty -F /dev/ttyS1 raw
cat /tmp/results.json >/dev/ttyS1
poweroff -f
INIT
chmod +x "$root/init"
(cd "$root" && find . | cpio -o -H newc --quiet | gzip -1) >"$work/initrd"

timeout "${LIMIT:-7200}" qemu-system-x86_64 \
    -accel tcg -icount shift=0,sleep=off -cpu max -smp 1 -m 2048 -nodefaults -no-reboot \
    -display none -serial file:"$out/console.log" -serial file:"$out/results.json" \
    -kernel "$KERNEL" -initrd "$work/initrd" \
    -append "console=ttyS0 quiet mitigations=off tsc=reliable init_on_alloc=0 random.trust_cpu=on loglevel=3 lsm=lockdown,yama,bpf"

tail -n 5 "$out/console.log"
"$target/release/dispatch" show "$out/results.json" >"$out/table.md"
cat "$out/table.md"
# As the guest's `dispatch` ended.
grep -q 'dispatch ended with 0' "$out/console.log"
