/* Joins two interfaces like a long cable: every frame that enters by one leaves by the other, later.
 *
 *   delay INTERFACE INTERFACE MICROSECONDS
 *
 * Prints "ready" and runs until it is ended. Delay only: no rate, no loss but that of a full queue of
 * QUEUE_MAX frames each way, which is told on standard error, and that of a queueing discipline on the interface
 * that a frame leaves by. Frames larger than FRAME_MAX are not taken: segmentation offload must be off at the far
 * ends.
 */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <errno.h>
#include <linux/if_ether.h>
#include <linux/if_packet.h>
#include <net/if.h>
#include <poll.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <time.h>

#define QUEUE_MAX 8192
#define FRAME_MAX 1600

struct frame {
	int64_t due_ns;
	int length;
	unsigned char bytes[FRAME_MAX];
};

struct queue {
	struct frame *frames;
	unsigned first, count;
	int from, to;
	int was_full;
};

static void fail(const char *what)
{
	fprintf(stderr, "delay: %s: %s\n", what, strerror(errno));
	exit(1);
}

static int64_t now_ns(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (int64_t)t.tv_sec * 1000000000 + t.tv_nsec;
}

static int open_interface(const char *name)
{
	struct sockaddr_ll address = { .sll_family = AF_PACKET, .sll_protocol = htons(ETH_P_ALL) };
	/* A queueing discipline shall drop by its own limit, not by that of the socket. */
	int on = 1, room = 64 << 20, fd = socket(AF_PACKET, SOCK_RAW | SOCK_NONBLOCK, htons(ETH_P_ALL));

	if (fd < 0)
		fail("packet socket");
	address.sll_ifindex = if_nametoindex(name);
	if (!address.sll_ifindex || bind(fd, (struct sockaddr *)&address, sizeof address))
		fail(name);
	if (setsockopt(fd, SOL_PACKET, PACKET_IGNORE_OUTGOING, &on, sizeof on))
		fail("PACKET_IGNORE_OUTGOING");
	if (setsockopt(fd, SOL_SOCKET, SO_SNDBUFFORCE, &room, sizeof room))
		fail("SO_SNDBUFFORCE");
	return fd;
}

static void take_in(struct queue *queue, int64_t delay_ns)
{
	while (queue->count < QUEUE_MAX) {
		struct frame *frame = &queue->frames[(queue->first + queue->count) % QUEUE_MAX];
		ssize_t length = recv(queue->from, frame->bytes, sizeof frame->bytes, MSG_TRUNC);

		if (length < 0)
			return;
		if (length > FRAME_MAX)
			continue;
		frame->due_ns = now_ns() + delay_ns;
		frame->length = (int)length;
		queue->count++;
	}
	if (!queue->was_full)
		fprintf(stderr, "delay: the queue is full, frames may be lost\n");
	queue->was_full = 1;
}

static void give_out(struct queue *queue)
{
	while (queue->count && queue->frames[queue->first].due_ns <= now_ns()) {
		struct frame *frame = &queue->frames[queue->first];

		if (send(queue->to, frame->bytes, frame->length, 0) < 0 && errno != ENOBUFS && errno != ENETDOWN)
			fail("send");
		queue->first = (queue->first + 1) % QUEUE_MAX;
		queue->count--;
	}
}

int main(int argc, char **argv)
{
	struct queue queues[2] = { { 0 }, { 0 } };
	int64_t delay_ns;
	int i;

	if (argc != 4) {
		fprintf(stderr, "usage: delay INTERFACE INTERFACE MICROSECONDS\n");
		return 2;
	}
	delay_ns = atoll(argv[3]) * 1000;
	prctl(PR_SET_TIMERSLACK, 1);
	for (i = 0; i < 2; i++) {
		queues[i].from = open_interface(argv[1 + i]);
		queues[i].frames = malloc(QUEUE_MAX * sizeof(struct frame));
		if (!queues[i].frames)
			fail("malloc");
	}
	queues[0].to = queues[1].from;
	queues[1].to = queues[0].from;
	printf("ready\n");
	fflush(stdout);
	for (;;) {
		struct pollfd fds[2] = { { queues[0].from, POLLIN, 0 }, { queues[1].from, POLLIN, 0 } };
		struct timespec wait = { 1, 0 };
		int64_t now = now_ns();

		for (i = 0; i < 2; i++) {
			int64_t left = queues[i].count ? queues[i].frames[queues[i].first].due_ns - now : 1000000000;

			if (left < 0)
				left = 0;
			if (left < wait.tv_sec * 1000000000LL + wait.tv_nsec) {
				wait.tv_sec = left / 1000000000;
				wait.tv_nsec = left % 1000000000;
			}
		}
		ppoll(fds, 2, &wait, NULL);
		for (i = 0; i < 2; i++) {
			take_in(&queues[i], delay_ns);
			give_out(&queues[i]);
		}
	}
}
