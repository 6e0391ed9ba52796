# Common functions of scripts that boot an unmodified Debian kernel under QEMU's software emulation: the
# kernel, the file system in memory, and a machine whose clock counts instructions. To be sourced by bash.
#
# Kernels are extracted from Debian packages into ${HEARKEN_EMULATED:-~/.cache/hearken/emulated}. They
# are downloaded once with apt-get and not installed.
emulated_cache=${HEARKEN_EMULATED:-${XDG_CACHE_HOME:-$HOME/.cache}/hearken/emulated}

# Exits with status 3 if a required tool is missing.
emulated_tools() {
    local tool missing=()
    for tool in qemu-system-x86_64 busybox cpio dpkg-deb; do
        command -v "$tool" >/dev/null || missing+=("$tool")
    done
    [[ ${#missing[@]} -eq 0 ]] && return
    echo "$0: not installed: ${missing[*]} (apt-get install" \
        "--no-install-recommends qemu-system-x86 busybox-static cpio)"
    exit 3
}

# Prints the path of the vmlinuz of a package or of its dependency. Downloads the package if necessary.
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

# Creates an empty file system with busybox.
emulated_guest() { # directory
    mkdir -p "$1"/{bin,dev,proc,sys,tmp,lib64}
    cp "$(command -v busybox)" "$1/bin/busybox"
}

# Copies the libraries of a program.
emulated_libraries() { # directory program
    local library
    { ldd "$2" 2>/dev/null || true; } | { grep -o '/[^ :]*' || true; } | while read -r library; do
        mkdir -p "$1/$(dirname "$library")"
        cp -Lu "$library" "$1$library"
    done
}

# Packs the file system as an initramfs.
emulated_pack() { # directory initramfs
    (cd "$1" && find . | cpio -o -H newc --quiet | gzip -1) >"$2"
}

# Boots one processor whose clock advances by one nanosecond per instruction, so that CPU time equals
# instructions in user mode and kernel, independent of the load of this machine. Standard output is the
# console (ttyS0); output of the guest to ttyS1 goes to a file. The machine ends with the parent of this script.
emulated_counting() { # image initramfs file kernel-parameters options-of-qemu...
    local image=$1 initramfs=$2 file=$3 parameters=$4
    shift 4
    timeout "${LIMIT:-7200}" qemu-system-x86_64 -accel tcg -icount shift=0,sleep=off -smp 1 \
        -nodefaults -no-reboot -display none -serial stdio -serial "file:$file" \
        -kernel "$image" -initrd "$initramfs" \
        -append "console=ttyS0 quiet loglevel=3 mitigations=off tsc=reliable random.trust_cpu=on $parameters" \
        "$@" </dev/null > >(sed -u 's|\r||g') &
    local machine=$!
    while kill -0 "$machine" 2>/dev/null; do
        kill -0 "$PPID" 2>/dev/null || kill "$machine"
        sleep 0.5
    done
    wait "$machine"
}
