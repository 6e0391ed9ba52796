/* SPDX-License-Identifier: MIT OR GPL-2.0-only */
/*
 * The parts of the kernel's headers that the programs need, in place of a vmlinux.h of three megabytes:
 * the fields that they read, whose offsets the loader adjusts to the running kernel (CO-RE), and the
 * helpers that they call, by their numbers in the stable interface.
 */
#ifndef HEARKEN_KERNEL_H
#define HEARKEN_KERNEL_H

typedef unsigned int u32;
typedef unsigned long long u64;

#define SEC(name) __attribute__((section(name), used))
#define NULL ((void *)0)

/* The form in which a map's description is read from its type. */
#define NUMBER(name, value) int(*name)[value]
#define TYPE(name, value) typeof(value) *name

enum { BPF_MAP_TYPE_ARRAY = 2, BPF_MAP_TYPE_PERCPU_ARRAY = 6 };
enum { BPF_F_MMAPABLE = 1024 };

struct task_struct {
	int tgid;
} __attribute__((preserve_access_index));

struct bpf_pidns_info {
	u32 pid, tgid;
};

static void *(*bpf_map_lookup_elem)(void *map, const void *key) = (void *)1;
static u64 (*bpf_get_current_task)(void) = (void *)35;
static long (*bpf_get_ns_current_pid_tgid)(u64 dev, u64 ino, struct bpf_pidns_info *info,
					   u32 size) = (void *)120;

#endif
