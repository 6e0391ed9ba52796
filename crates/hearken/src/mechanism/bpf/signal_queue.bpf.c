// SPDX-License-Identifier: MIT OR GPL-2.0-only
/*
 * Decides, where the kernel is about to send a readiness signal (O_ASYNC), whether it is sent.
 *
 * Every descriptor that a process watches has a slot, in an array that the process maps. The word
 * in it collects the reasons (POLL_IN and so on) and a mark that the descriptor is pending. What
 * follows depends on the slot:
 *
 *   signal-per-fd   the signal passes if the descriptor was not pending, and is refused if it was;
 *   kernel-queue    the slot is put on its queue if it was not pending, and the signal is refused
 *                   but for one that wakes the consumer who sleeps.
 *
 * User space exchanges the word with 0 before it looks at the descriptor: what arrives after the
 * exchange is pending anew. The arithmetic is the same as in ../layout.rs.
 *
 * a) The hook is not told the descriptor. The function that calls it is: a program at its entry
 *    leaves the number, marked with the task and the owner, for the hook on the same CPU.
 * b) On a kernel where that stretch can be preempted (PREEMPT_RT), another task may leave its note
 *    in between, or find the program active on this CPU and have it skipped. So the owner is taken
 *    off the note first and put there last, and is looked at after the rest was read. Where it is
 *    not the hook's own, the signal passes, and `strays` tells user space to look for it.
 * c) A program of the type LSM is never skipped so.
 * d) A kernel whose list of security modules lacks "bpf" attaches the hook and never calls it.
 *    User space tests that.
 * e) Numbers of processes are those of the outermost namespace here. The first signal that the
 *    process sends itself, in its own namespace, teaches the number.
 * f) The queue is a list of slots, put on at the head: it needs no room of its own, so it cannot
 *    overflow. Putting is tried a bounded number of times; should every one collide with another
 *    CPU, `sweep` tells user space to look at every slot.
 */
#include "kernel.h"

#define PENDING 0x80000000u
#define REFUSE (-1)
#define TRIES 64

/* Layouts known to user space. */
struct slot {
	u32 word;
	u32 next;	/* the slot put on before this one, plus 1 */
	u32 queue;	/* 0: signal-per-fd */
	u32 signal;	/* 0: not watched */
};

struct queue {
	u32 head;	/* the slot put on last, plus 1 */
	u32 sleeping;
	u32 sweep;
	u32 strays;	/* of the process, in queue 0 */
	u32 unused[12];	/* a cache line each */
};

struct {
	NUMBER(type, BPF_MAP_TYPE_ARRAY);
	NUMBER(map_flags, BPF_F_MMAPABLE);
	NUMBER(max_entries, 1);
	TYPE(key, u32);
	TYPE(value, struct slot);
} slots SEC(".maps");

struct {
	NUMBER(type, BPF_MAP_TYPE_ARRAY);
	NUMBER(map_flags, BPF_F_MMAPABLE);
	NUMBER(max_entries, 1);
	TYPE(key, u32);
	TYPE(value, struct queue);
} queues SEC(".maps");

struct note {
	volatile u64 owner, task;
	volatile u32 fd, reason;
};

struct {
	NUMBER(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	NUMBER(max_entries, 1);
	TYPE(key, u32);
	TYPE(value, struct note);
} notes SEC(".maps");

/* Set before loading: the process, and its namespace of processes. */
volatile const u64 namespace_device = 0, namespace_inode = 0;
volatile const u32 process = 0;

/* The process in the outermost namespace, once it is known. */
static volatile u32 tgid;

/* void send_sigio_to_task(struct task_struct *, struct fown_struct *, int fd, int reason, ...) */
SEC("fentry/send_sigio_to_task")
int leave_note(u64 *context)
{
	u32 zero = 0;
	struct note *note = bpf_map_lookup_elem(&notes, &zero);

	if (!note)
		return 0;
	note->owner = 0; /* (b) */
	note->fd = context[2];
	note->reason = context[3];
	note->task = bpf_get_current_task();
	note->owner = context[1];
	return 0;
}

static int is_ours(struct task_struct *task)
{
	struct bpf_pidns_info info;

	if (tgid)
		return (u32)task->tgid == tgid;
	/* (e) */
	if ((u64)task != bpf_get_current_task())
		return 0;
	if (bpf_get_ns_current_pid_tgid(namespace_device, namespace_inode, &info, sizeof(info)))
		return 0;
	if (info.tgid != process)
		return 0;
	tgid = task->tgid;
	return 1;
}

/* int file_send_sigiotask(struct task_struct *, struct fown_struct *, int signal) */
SEC("lsm/file_send_sigiotask")
int decide(u64 *context)
{
	u32 zero = 0, signal = context[2], fd, old, number, try;
	struct queue *queue;
	struct slot *slot;
	struct note *note;

	if (!is_ours((struct task_struct *)context[0]))
		return 0;
	note = bpf_map_lookup_elem(&notes, &zero);
	if (!note)
		return 0;
	fd = note->fd;
	number = note->reason & 7;
	if (note->owner != context[1] || note->task != bpf_get_current_task()) { /* (b) */
		queue = bpf_map_lookup_elem(&queues, &zero);
		if (queue)
			__sync_fetch_and_add(&queue->strays, 1);
		return 0;
	}
	note->owner = 0;

	slot = bpf_map_lookup_elem(&slots, &fd);
	if (!slot || slot->signal != signal)
		return 0;
	old = __sync_fetch_and_or(&slot->word, PENDING | 1u << number);
	number = slot->queue;
	if (old & PENDING)
		return REFUSE;
	if (!number)
		return 0;

	queue = bpf_map_lookup_elem(&queues, &number);
	if (!queue)
		return 0;
	for (try = 0; try < TRIES; try++) { /* (f) */
		old = *(volatile u32 *)&queue->head;
		slot->next = old;
		if (__sync_val_compare_and_swap(&queue->head, old, fd + 1) == old)
			break;
	}
	if (try == TRIES)
		__sync_lock_test_and_set(&queue->sweep, 1);
	/* The consumer says that it sleeps, and then looks at the queue once more. */
	if (*(volatile u32 *)&queue->sleeping && __sync_lock_test_and_set(&queue->sleeping, 0))
		return 0;
	return REFUSE;
}

char LICENSE[] SEC("license") = "Dual MIT/GPL";
