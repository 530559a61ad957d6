/* Bulk throughput of Debian's libusrsctp inside UDP: the yardstick of `./x bench shim`.
 *
 *   usrsctp_bulk receive PORT UDP-PORT                        prints "listening", then "BYTES MICROSECONDS"
 *   usrsctp_bulk send ADDRESS PORT UDP-PORT SECONDS SIZE      messages of SIZE bytes for SECONDS
 *
 * One association, one stream, ordered, both UDP ports equal. The receiver's time runs from its first to its
 * last byte. Buffers of BUFFER bytes: the library's own default of 256 KiB makes it slower.
 */
#include <arpa/inet.h>
#include <errno.h>
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

static void fail(const char *what)
{
	fprintf(stderr, "usrsctp_bulk: %s: %s\n", what, strerror(errno));
	exit(1);
}

static int64_t now_us(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (int64_t)t.tv_sec * 1000000 + t.tv_nsec / 1000;
}

static struct socket *open_socket(int udp_port)
{
	struct sctp_udpencaps encaps;
	struct socket *s;
	int on = 1;

	usrsctp_init(udp_port, NULL, NULL);
	usrsctp_sysctl_set_sctp_blackhole(2);
	usrsctp_sysctl_set_sctp_ecn_enable(0);
	usrsctp_sysctl_set_sctp_sendspace(BUFFER);
	usrsctp_sysctl_set_sctp_recvspace(BUFFER);
	s = usrsctp_socket(AF_INET, SOCK_STREAM, IPPROTO_SCTP, NULL, NULL, 0, NULL);
	if (!s)
		fail("socket");
	memset(&encaps, 0, sizeof encaps);
	encaps.sue_address.ss_family = AF_INET;
	encaps.sue_port = htons(udp_port);
	if (usrsctp_setsockopt(s, IPPROTO_SCTP, SCTP_REMOTE_UDP_ENCAPS_PORT, &encaps, sizeof encaps))
		fail("SCTP_REMOTE_UDP_ENCAPS_PORT");
	if (usrsctp_setsockopt(s, IPPROTO_SCTP, SCTP_NODELAY, &on, sizeof on))
		fail("SCTP_NODELAY");
	return s;
}

static int receive(int port, int udp_port)
{
	struct sockaddr_in address = { .sin_family = AF_INET, .sin_port = htons(port) };
	struct socket *listener = open_socket(udp_port), *s;
	static char buffer[1 << 18];
	int64_t bytes = 0, first = 0, last = 0;

	if (usrsctp_bind(listener, (struct sockaddr *)&address, sizeof address) || usrsctp_listen(listener, 1))
		fail("listen");
	printf("listening\n");
	fflush(stdout);
	s = usrsctp_accept(listener, NULL, NULL);
	if (!s)
		fail("accept");
	for (;;) {
		struct sctp_rcvinfo info;
		socklen_t info_length = sizeof info;
		unsigned type;
		int flags = 0;
		ssize_t n = usrsctp_recvv(s, buffer, sizeof buffer, NULL, NULL, &info, &info_length, &type, &flags);

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
	struct sockaddr_in address = { .sin_family = AF_INET, .sin_port = htons(port) };
	struct socket *s = open_socket(udp_port);
	char *message = calloc(1, size);
	int64_t end;
	int rounds;

	if (!message || inet_pton(AF_INET, to, &address.sin_addr) != 1)
		fail(to);
	if (usrsctp_connect(s, (struct sockaddr *)&address, sizeof address))
		fail("connect");
	end = now_us() + (int64_t)(seconds * 1000000);
	while (now_us() < end) {
		if (usrsctp_sendv(s, message, size, NULL, 0, NULL, 0, SCTP_SENDV_NOINFO, 0) != size)
			fail("send");
	}
	usrsctp_close(s);
	/* The library's threads send what is queued; it can be finished once the association has gone. */
	for (rounds = 0; usrsctp_finish() != 0 && rounds < FINISH_SECONDS_MAX * 100; rounds++)
		usleep(10000);
	return 0;
}

int main(int argc, char **argv)
{
	if (argc == 4 && !strcmp(argv[1], "receive"))
		return receive(atoi(argv[2]), atoi(argv[3]));
	if (argc == 7 && !strcmp(argv[1], "send"))
		return send_for(argv[2], atoi(argv[3]), atoi(argv[4]), atof(argv[5]), atoi(argv[6]));
	fprintf(stderr, "usage: usrsctp_bulk receive PORT UDP-PORT | send ADDRESS PORT UDP-PORT SECONDS SIZE\n");
	return 2;
}
