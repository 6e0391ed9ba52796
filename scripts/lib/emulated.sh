# What the scripts have in common that boot an unmodified Debian kernel under QEMU's software
# emulation: the kernel, the file system in memory, and a machine whose clock counts instructions.
# To be sourced, by bash.
#
# Kernels are taken from packages that apt-get downloads, once, into
# ${HEARKEN_EMULATED:-~/.cache/hearken/emulated}, without installing them.
emulated_cache=${HEARKEN_EMULATED:-${XDG_CACHE_HOME:-$HOME/.cache}/hearken/emulated}

# Ends with 3 where something is missing that every such machine needs.
emulated_tools() {
    local tool missing=()
    for tool in qemu-system-x86_64 busybox cpio dpkg-deb; do
        command -v "$tool" >/dev/null || missing+=("$tool")
    done
    [[ ${#missing[@]} -eq 0 ]] && return
    echo "$0: nothing was run: ${missing[*]} not installed (apt-get install" \
        "--no-install-recommends qemu-system-x86 busybox-static cpio)"
    exit 3
}

# The vmlinuz of a package, or of what it depends on; from the cache if it is there.
emulated_kernel() { # package
    local package=$1 image
    image=$(apt-cache depends "$package" 2>/dev/null | awk '/Depends: linux-image-[0-9]/ {print $2; exit}')
    image=${image:-$package}
    local dir=$emulated_cache/$image
    if ! compgen -G "$dir/boot/vmlinuz-*" >/dev/null; then
        mkdir -p "$emulated_cache"
        (
            cd "$emulated_cache"
            compgen -G "${image}_*.deb" >/dev/null || apt-get download "$image" >/dev/null
            rm -rf "$dir.part" && dpkg-deb -x "${image}"_*.deb "$dir.part" && rm -rf "$dir.part/lib" "$dir.part/usr"
            mv "$dir.part" "$dir" && rm -f "${image}"_*.deb
        ) >&2 || return
    fi
    compgen -G "$dir/boot/vmlinuz-*" | head -n 1
}

# An empty file system, with busybox.
emulated_guest() { # directory
    mkdir -p "$1"/{bin,dev,proc,sys,tmp,lib64}
    cp "$(command -v busybox)" "$1/bin/busybox"
}

# The libraries of a program, where it looks for them.
emulated_libraries() { # directory program
    local library
    { ldd "$2" 2>/dev/null || true; } | { grep -o '/[^ :]*' || true; } | while read -r library; do
        mkdir -p "$1/$(dirname "$library")"
        cp -Lu "$library" "$1$library"
    done
}

# The file system as the kernel takes it.
emulated_pack() { # directory initramfs
    (cd "$1" && find . | cpio -o -H newc --quiet | gzip -1) >"$2"
}

# Boots one processor whose clock advances by a nanosecond with each instruction, so that CPU time is
# instructions: user and kernel, exact, whatever else the machine outside does. Standard output is the
# console (ttyS0); what the guest writes to ttyS1 goes into a file.
emulated_counting() { # image initramfs file kernel-parameters options-of-qemu...
    local image=$1 initramfs=$2 file=$3 parameters=$4
    shift 4
    timeout "${LIMIT:-7200}" qemu-system-x86_64 -accel tcg -icount shift=0,sleep=off -smp 1 \
        -nodefaults -no-reboot -display none -serial stdio -serial "file:$file" \
        -kernel "$image" -initrd "$initramfs" \
        -append "console=ttyS0 quiet loglevel=3 mitigations=off tsc=reliable random.trust_cpu=on $parameters" \
        "$@" </dev/null | sed -u 's|\r||g'
}
