/* Debian's libusrsctp: the yardstick of `./x bench`.
 *
 *   usrsctp_bench receive PORT UDP-PORT                        prints "listening", then "BYTES MICROSECONDS"
 *   usrsctp_bench send ADDRESS PORT UDP-PORT SECONDS SIZE      messages of SIZE bytes for SECONDS
 *   usrsctp_bench serve PORT UDP-PORT                          prints "listening"; sends every message back, for ever
 *   usrsctp_bench ping ADDRESS PORT UDP-PORT COUNT SIZE        prints each round trip in microseconds
 *   usrsctp_bench connects ADDRESS PORT UDP-PORT COUNT         connects and closes; prints "COUNT MICROSECONDS"
 *
 * One stream, ordered, both UDP ports equal; UDP port 0 means IP protocol 132. The receiver's time runs from its
 * first to its last byte. Buffers of BUFFER bytes: the library's own default of 256 KiB makes it slower.
 */
#include <arpa/inet.h>
#include <errno.h>
#include <inttypes.h>
#include <netinet/in.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>
#include <usrsctp.h>

#define BUFFER (1 << 20)
#define FINISH_SECONDS_MAX 10
#define BACKLOG 64

static void fail(const char *what)
{
	fprintf(stderr, "usrsctp_bench: %s: %s\n", what, strerror(errno));
	exit(1);
}

static int64_t now_ns(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (int64_t)t.tv_sec * 1000000000 + t.tv_nsec;
}

static int64_t now_us(void)
{
	return now_ns() / 1000;
}

static void start(int udp_port)
{
	usrsctp_init(udp_port, NULL, NULL);
	usrsctp_sysctl_set_sctp_blackhole(2);
	usrsctp_sysctl_set_sctp_ecn_enable(0);
	usrsctp_sysctl_set_sctp_sendspace(BUFFER);
	usrsctp_sysctl_set_sctp_recvspace(BUFFER);
}

static struct socket *open_socket(int udp_port)
{
	struct sctp_udpencaps encaps;
	struct socket *s;
	int on = 1;

	s = usrsctp_socket(AF_INET, SOCK_STREAM, IPPROTO_SCTP, NULL, NULL, 0, NULL);
	if (!s)
		fail("socket");
	memset(&encaps, 0, sizeof encaps);
	encaps.sue_address.ss_family = AF_INET;
	encaps.sue_port = htons(udp_port);
	if (udp_port && usrsctp_setsockopt(s, IPPROTO_SCTP, SCTP_REMOTE_UDP_ENCAPS_PORT, &encaps, sizeof encaps))
		fail("SCTP_REMOTE_UDP_ENCAPS_PORT");
	if (usrsctp_setsockopt(s, IPPROTO_SCTP, SCTP_NODELAY, &on, sizeof on))
		fail("SCTP_NODELAY");
	return s;
}

static struct socket *open_listener(int port, int udp_port)
{
	struct sockaddr_in address = { .sin_family = AF_INET, .sin_port = htons(port) };
	struct socket *listener;

	start(udp_port);
	listener = open_socket(udp_port);
	if (usrsctp_bind(listener, (struct sockaddr *)&address, sizeof address) || usrsctp_listen(listener, BACKLOG))
		fail("listen");
	printf("listening\n");
	fflush(stdout);
	return listener;
}

static struct socket *open_connected(const char *to, int port, int udp_port)
{
	struct sockaddr_in address = { .sin_family = AF_INET, .sin_port = htons(port) };
	struct socket *s = open_socket(udp_port);

	if (inet_pton(AF_INET, to, &address.sin_addr) != 1)
		fail(to);
	if (usrsctp_connect(s, (struct sockaddr *)&address, sizeof address))
		fail("connect");
	return s;
}

/* The library's threads send what is queued; it can be finished once its associations have gone. */
static void finish(void)
{
	int rounds;

	for (rounds = 0; usrsctp_finish() != 0 && rounds < FINISH_SECONDS_MAX * 100; rounds++)
		usleep(10000);
}

static ssize_t receive_some(struct socket *s, char *buffer, size_t size)
{
	struct sctp_rcvinfo info;
	socklen_t info_length = sizeof info;
	unsigned type;
	int flags = 0;

	return usrsctp_recvv(s, buffer, size, NULL, NULL, &info, &info_length, &type, &flags);
}

static void send_whole(struct socket *s, const char *message, size_t size)
{
	if (usrsctp_sendv(s, message, size, NULL, 0, NULL, 0, SCTP_SENDV_NOINFO, 0) != (ssize_t)size)
		fail("send");
}

static int receive(int port, int udp_port)
{
	struct socket *s = usrsctp_accept(open_listener(port, udp_port), NULL, NULL);
	static char buffer[1 << 18];
	int64_t bytes = 0, first = 0, last = 0;

	if (!s)
		fail("accept");
	for (;;) {
		ssize_t n = receive_some(s, buffer, sizeof buffer);

		if (n < 0)
			fail("receive");
		if (n == 0)
			break;
		last = now_us();
		if (!bytes)
			first = last;
		bytes += n;
	}
	printf("%lld %lld\n", (long long)bytes, (long long)(last - first));
	fflush(stdout);
	usrsctp_close(s);
	return 0;
}

static int send_for(const char *to, int port, int udp_port, double seconds, int size)
{
	char *message = calloc(1, size);
	struct socket *s;
	int64_t end;

	if (!message)
		fail("calloc");
	start(udp_port);
	s = open_connected(to, port, udp_port);
	end = now_us() + (int64_t)(seconds * 1000000);
	while (now_us() < end)
		send_whole(s, message, size);
	usrsctp_close(s);
	finish();
	return 0;
}

static int serve(int port, int udp_port)
{
	struct socket *listener = open_listener(port, udp_port), *s;
	static char buffer[1 << 18];
	ssize_t n;

	while ((s = usrsctp_accept(listener, NULL, NULL))) {
		while ((n = receive_some(s, buffer, sizeof buffer)) > 0)
			send_whole(s, buffer, n);
		usrsctp_close(s);
	}
	fail("accept");
	return 1;
}

static int ping(const char *to, int port, int udp_port, int count, int size)
{
	char *message = calloc(1, size);
	struct socket *s;
	int64_t begin;
	int n;

	if (!message)
		fail("calloc");
	start(udp_port);
	s = open_connected(to, port, udp_port);
	for (n = 0; n < count; n++) {
		begin = now_ns();
		send_whole(s, message, size);
		if (receive_some(s, message, size) != size)
			fail("receive");
		printf("%.1f\n", (now_ns() - begin) / 1000.0);
	}
	usrsctp_close(s);
	finish();
	return 0;
}

static int connects(const char *to, int port, int udp_port, int count)
{
	int64_t begin, end;
	int n;

	start(udp_port);
	begin = now_us();
	for (n = 0; n < count; n++)
		usrsctp_close(open_connected(to, port, udp_port));
	end = now_us();
	finish();
	printf("%d %" PRId64 "\n", count, end - begin);
	return 0;
}

int main(int argc, char **argv)
{
	const char *mode = argc > 1 ? argv[1] : "";

	if (argc == 4 && !strcmp(mode, "receive"))
		return receive(atoi(argv[2]), atoi(argv[3]));
	if (argc == 4 && !strcmp(mode, "serve"))
		return serve(atoi(argv[2]), atoi(argv[3]));
	if (argc == 7 && !strcmp(mode, "send"))
		return send_for(argv[2], atoi(argv[3]), atoi(argv[4]), atof(argv[5]), atoi(argv[6]));
	if (argc == 7 && !strcmp(mode, "ping"))
		return ping(argv[2], atoi(argv[3]), atoi(argv[4]), atoi(argv[5]), atoi(argv[6]));
	if (argc == 6 && !strcmp(mode, "connects"))
		return connects(argv[2], atoi(argv[3]), atoi(argv[4]), atoi(argv[5]));
	fprintf(stderr, "usage: usrsctp_bench receive|serve PORT UDP-PORT | send ADDRESS PORT UDP-PORT SECONDS SIZE |\n"
			"       ping ADDRESS PORT UDP-PORT COUNT SIZE | connects ADDRESS PORT UDP-PORT COUNT\n");
	return 2;
}
