// SPDX-License-Identifier: MIT OR GPL-2.0-only
/*
 * Decides whether a readiness signal (O_ASYNC) is sent, when the kernel is about to send it.
 *
 * Every watched descriptor has a slot, in an array that the process maps. Its word collects the
 * reasons (POLL_IN and so on) and a mark that the descriptor is pending. The action depends on the
 * slot:
 *
 *   signal-per-fd   the signal passes unless the descriptor was already pending;
 *   kernel-queue    the slot is put on its queue unless it was already pending, and the signal is
 *                   refused, except for one that wakes a sleeping consumer.
 *
 * User space exchanges the word with 0 before it checks the descriptor: later arrivals make it
 * pending again. layout.rs performs the same operations.
 *
 * a) The hook does not receive the descriptor, but the function that calls it does. A program at
 *    its entry stores the number, with the task and the owner, for the hook on the same CPU.
 * b) Where that section can be preempted (PREEMPT_RT), another task may overwrite the note, or find
 *    the program active on this CPU and skip it. The owner is therefore cleared first and stored
 *    last, and checked after the rest was read. If it is not the hook's own, the signal passes, and
 *    `strays` makes user space look for it.
 * c) A program of the type LSM is never skipped that way.
 * d) A kernel whose list of security modules lacks "bpf" attaches the hook and never calls it.
 *    User space tests that.
 * e) Process IDs are those of the outermost namespace. The first signal that the process sends to
 *    itself, in its own namespace, reveals its ID.
 * f) The queue is a linked list of slots with insertion at the head. It needs no space of its own
 *    and cannot overflow. The number of attempts is bounded. If all of them collide with another
 *    CPU, `sweep` makes user space check every slot.
 */
#include "kernel.h"

#define PENDING 0x80000000u
#define REFUSE (-1)
#define TRIES 64

/* Layouts shared with user space. */
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

/* Set before loading: the process ID and its PID namespace. */
volatile const u64 namespace_device = 0, namespace_inode = 0;
volatile const u32 process = 0;

/* The process ID in the outermost namespace, once it is known. */
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
	/* The consumer announces that it sleeps, and then checks the queue once more. */
	if (*(volatile u32 *)&queue->sleeping && __sync_lock_test_and_set(&queue->sleeping, 0))
		return 0;
	return REFUSE;
}

char LICENSE[] SEC("license") = "Dual MIT/GPL";
