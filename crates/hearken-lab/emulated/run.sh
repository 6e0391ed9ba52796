#!/usr/bin/env bash
# Runs `hearken lab run` without hardware counters: in an unmodified Debian kernel on one processor
# emulated by QEMU, whose clock counts instructions. The counts are exact, include user mode and kernel,
# and do not depend on the load of this machine. Needs no root.
#
#   scripts/peers-emulated OUT EXPERIMENT [OPTIONS of lab run...]
#   scripts/peers-emulated /tmp/peers peers --variant emulated-short         a few minutes
#   scripts/peers-emulated /tmp/peers peers --server hearken,nginx --set workload=1b --set idle=0
#   scripts/peers-emulated /tmp/proxies proxies                              proxies instead of servers
#
# Writes the output of `lab run`, table.txt and console.log to OUT. Measures the servers installed on
# this machine, and the programs in the commands of recipes given with --recipe. HEARKEN is a program to
# use instead of building it.
#
# Requires: qemu-system-x86 busybox-static cpio util-linux, and apt-get for a kernel (or KERNEL, a kernel
# image); cc for the recipes 'floor*'.
set -euo pipefail
own=$(dirname "$(realpath "$0")")
. "$own/machine.sh"
case ${1:-} in
    -h | --help) sed -n '2,16s/^# \{0,1\}//p' "$0"; exit 0 ;;
    '' | -*) sed -n '2,16s/^# \{0,1\}//p' "$0" >&2; exit 2 ;;
esac
out=$1
shift
emulated_tools
image=${KERNEL:-$(emulated_kernel linux-image-amd64)} || image=
if [[ -z $image ]]; then
    echo "$0: linux-image-amd64 is not available; set KERNEL to a kernel image"
    exit 3
fi
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
mkdir -p "$out"
rm -f "$out"/{results.json,report.html,table.txt,console.log}

hearken=${HEARKEN:-}
if [[ -z $hearken ]]; then
    root=$own/../../..
    cargo build --locked --release -p hearken-cli --manifest-path "$root/Cargo.toml"
    hearken=${CARGO_TARGET_DIR:-$root/target}/release/hearken
fi
# Without erms and fsrm, small copies are loops of moves. `rep movsb` would count each byte as an
# instruction, which no hardware does.
cpu=max,-erms,-fsrm
emulator="$(qemu-system-x86_64 --version | head -n 1), -icount shift=0 -cpu $cpu"

guest=$work/guest
emulated_guest "$guest"
install() { # path: copies a program with its libraries
    mkdir -p "$guest$(dirname "$1")"
    cp -L "$1" "$guest$1"
    emulated_libraries "$guest" "$1"
}
mkdir -p "$guest"/{usr/bin,built,etc,var/log/nginx,var/lib/nginx}
cp "$hearken" "$guest/usr/bin/hearken"
strip --strip-debug "$guest/usr/bin/hearken" 2>/dev/null || true
emulated_libraries "$guest" "$hearken"
# Busybox's chrt has different options.
if ! chrt=$(command -v chrt); then
    echo "$0: chrt is not installed (apt-get install util-linux)"
    exit 3
fi
cp "$chrt" "$guest/usr/bin/chrt"
emulated_libraries "$guest" "$chrt"

# The programs of the recipes, and their modules.
recipes=() previous=
for argument in "$@"; do
    if [[ $previous == --recipe ]]; then recipes+=("$argument"); fi
    if [[ $argument == --recipe=* ]]; then recipes+=("${argument#*=}"); fi
    previous=$argument
done
for recipe in ${recipes[@]+"${recipes[@]}"}; do
    mkdir -p "$guest$(realpath "$(dirname "$recipe")")"
    cp "$recipe" "$guest$(realpath "$recipe")"
done
{
    "$hearken" lab list --recipes | while read -r kind name _; do
        option=--recipe
        if [[ $kind == proxy ]]; then option=--proxy; fi
        "$hearken" lab print "$option" "$name" | sed -n 's/^command *= *\["\([^"{]*\)".*/\1/p'
    done
    for recipe in ${recipes[@]+"${recipes[@]}"}; do
        sed -n 's/^command *= *\["\([^"{]*\)".*/\1/p' "$recipe"
    done
} | sort -u | while read -r program; do
    path=$(PATH=$PATH:/usr/local/sbin:/usr/sbin:/sbin command -v "$program") || continue
    install "$path"
done
for module in /usr/lib/lighttpd/*.so; do
    if [[ -e $guest/usr/sbin/lighttpd && -e $module ]]; then install "$module"; fi
done
# The guest has no compiler, so programs of recipes are built here with the same options.
if command -v cc >/dev/null; then
    for source in "$own"/../recipes/*.c; do
        [[ -e $source ]] || continue
        name=$(basename "$source" .c)
        cc -O2 -o "$guest/built/$name" "$source"
        emulated_libraries "$guest" "$guest/built/$name"
    done
    cat >"$guest/usr/bin/cc" <<'CC'
#!/bin/sh
# cc -O2 -o {dir}/NAME {dir}/NAME.c
for source; do :; done
name=${source##*/}
exec cp "/built/${name%.c}" "$3"
CC
    chmod +x "$guest/usr/bin/cc"
fi
for user in root:x:0:0 nobody:x:65534:65534 www-data:x:33:33; do
    echo "$user::/:/bin/sh" >>"$guest/etc/passwd"
    echo "${user%:*}:" >>"$guest/etc/group"
done
echo 'nogroup:x:65534:' >>"$guest/etc/group"

mkdir -p "$guest$PWD"
printf '%q ' hearken lab run --out /out --clock-is-instructions "$emulator" "$@" >"$guest/command"
printf '%q' "$PWD" >"$guest/where"
cat >"$guest/init" <<'INIT'
#!/bin/busybox sh
/bin/busybox --install -s /bin
export PATH=/usr/bin:/bin:/usr/local/bin:/usr/local/sbin:/usr/sbin:/sbin
mount -t proc proc /proc
mount -t sysfs sys /sys
mount -t devtmpfs dev /dev
# Required to count system calls.
mount -t tracefs none /sys/kernel/tracing
mkdir -p /out
ip link set lo up
# Twice the number of idle connections, for servers that need two descriptors for each.
ulimit -n 32768
eval "cd $(cat /where)"
# Through a pipe, because the progress on a terminal is a bar.
{ eval "$(cat /command)" >/out/table.txt; echo "lab exited with $?"; } 2>&1 | cat
stty -F /dev/ttyS1 raw
tar -C /out -czf - . >/dev/ttyS1
poweroff -f
INIT
chmod +x "$guest/init"
emulated_pack "$guest" "$work/initramfs"

echo "peers-emulated: ${image##*/} under ${emulator%%,*}; a second in the guest is 1,000,000,000 instructions"
# Without huge pages, whose number depends on chance and equals the memory of 20,000 idle connections.
emulated_counting "$image" "$work/initramfs" "$work/out.tar.gz" transparent_hugepage=never -cpu "$cpu" -m "${MEMORY:-3072}" |
    sed -u 's/, about [^;]* remaining$//' | tee "$out/console.log" | sed -u 's/^/    /'
status=$(sed -n 's/.*lab exited with \([0-9]*\).*/\1/p' "$out/console.log")
if [[ -z $status ]]; then
    echo "$0: the guest did not finish; see $out/console.log" >&2
    exit 1
fi
tar -C "$out" -xzf "$work/out.tar.gz"
sed -i "s|^wrote /out/|wrote $out/|" "$out/table.txt"
cat "$out/table.txt"
exit "$status"
