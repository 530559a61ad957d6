/*
 * TCP's and the sockets' options, and what they do to a connection; see cases.h.
 */
#include "cases.h"
#include <linux/sockios.h>
#include <time.h>

static unsigned char sent[BULK], got[BULK];

static int ms_now(void) {
	struct timespec now;
	clock_gettime(CLOCK_MONOTONIC, &now);
	return now.tv_sec * 1000 + now.tv_nsec / 1000000;
}

static int set(int fd, int level, int option, int value) {
	return setsockopt(fd, level, option, &value, sizeof value) == 0;
}

static int get(int fd, int level, int option) {
	int value = -1;
	socklen_t length = sizeof value;
	return getsockopt(fd, level, option, &value, &length) == 0 ? value : -1;
}

static int still_works(int fd) {
	return write_all(fd, sent, 1000) && read_all(fd, got, 1000) == 1000 && is_filled(got, 1000);
}

/* More than a peer with a small buffer takes before it reads, and less than a large buffer holds. */
enum { HELD = BULK / 2 };

/* Answers each pair of bytes by one. */
static void answer_pairs(int fd) {
	char pair[2];
	set(fd, IPPROTO_TCP, TCP_NODELAY, 1);
	while (read_all(fd, pair, 2) == 2 && write_all(fd, pair, 1)) {}
}

/* Two writes and one read, which Nagle's algorithm and late acknowledgements together make slow. */
static void nodelay(int fd) {
	enum { ROUNDS = 25, MS_OF_A_LATE_ACK = 40 };
	want(get(fd, IPPROTO_TCP, TCP_NODELAY) == 0 && set(fd, IPPROTO_TCP, TCP_NODELAY, 1));
	want(get(fd, IPPROTO_TCP, TCP_NODELAY) == 1);
	int begun = ms_now();
	for (int round = 0; round < ROUNDS; round++)
		want(write(fd, "a", 1) == 1 && write(fd, "b", 1) == 1 && read_all(fd, got, 1) == 1);
	want(ms_now() - begun < ROUNDS * MS_OF_A_LATE_ACK / 2);
}

static void cork(int fd) {
	want(set(fd, IPPROTO_TCP, TCP_CORK, 1) && write(fd, sent, 100) == 100);
	pause_ms(100);
	want(has_come(fd, 0) && set(fd, IPPROTO_TCP, TCP_CORK, 0));
	want(has_come(fd, 100));
}

static void msg_more(int fd) {
	want(send(fd, sent, 100, MSG_MORE) == 100);
	pause_ms(100);
	want(has_come(fd, 0) && send(fd, sent + 100, 100, 0) == 100);
	want(has_come(fd, 200) && read_all(fd, got, 200) == 200 && is_filled(got, 200));
}

static int connected_by(int option, int value) {
	int fd = socket(AF_INET, SOCK_STREAM, 0);
	if (!set(fd, IPPROTO_TCP, option, value)) return -1;
	return connect(fd, (struct sockaddr *)&server_address, sizeof server_address) == 0 ? fd : -1;
}

static void maxseg_before(int fd) {
	close(fd);
	int other = connected_by(TCP_MAXSEG, 500);
	want(other >= 0 && get(other, IPPROTO_TCP, TCP_MAXSEG) <= 500 && get(other, IPPROTO_TCP, TCP_MAXSEG) >= 480);
}

static void maxseg(int fd) {
	want(get(fd, IPPROTO_TCP, TCP_MAXSEG) > 500);
	saw("set: %s", outcome(setsockopt(fd, IPPROTO_TCP, TCP_MAXSEG, &(int){500}, sizeof(int))));
	want(write_all(fd, sent, BULK) && all_came(fd, BULK));
}

static int set_linger(int fd, int seconds) {
	struct linger linger = {.l_onoff = 1, .l_linger = seconds};
	return setsockopt(fd, SOL_SOCKET, SO_LINGER, &linger, sizeof linger) == 0;
}

static void leave_by_reset(int fd) {
	char byte;
	set_linger(fd, 0);
	read(fd, &byte, 1);
}

static void linger_zero(int fd) {
	want(write(fd, "x", 1) == 1 && read(fd, got, 1) == -1 && errno == ECONNRESET);
	want(send(fd, "x", 1, MSG_NOSIGNAL) == -1 && errno == EPIPE);
}

static void speak_and_linger(int fd) {
	set_linger(fd, 10);
	write_all(fd, sent, BULK);
}

static void linger(int fd) {
	pause_ms(300);
	want(read_all(fd, got, sizeof got) == BULK && is_filled(got, BULK) && read(fd, got, 1) == 0);
}

static void late_reader(int fd) {
	set(fd, SOL_SOCKET, SO_RCVBUF, 65536);
	pause_ms(1500);
	until_end(fd);
}

static void linger_close(int fd) {
	want(set(fd, SOL_SOCKET, SO_SNDBUFFORCE, BULK) && set_linger(fd, 10) && write_all(fd, sent, HELD));
	int begun = ms_now();
	want(close(fd) == 0);
	saw("close waits for the peer: %s", ms_now() - begun > 500 ? "yes" : "no");
}

static int set_time(int fd, int option, int ms) {
	struct timeval time = {.tv_usec = ms * 1000};
	return setsockopt(fd, SOL_SOCKET, option, &time, sizeof time) == 0;
}

static void rcvtimeo(int fd) {
	int begun = ms_now();
	want(set_time(fd, SO_RCVTIMEO, 200) && read(fd, got, 1) == -1 && errno == EAGAIN);
	want(ms_now() - begun >= 190 && ms_now() - begun < 1000 && still_works(fd));
}

static void sleeper(int fd) {
	pause_ms(2500);
	until_end(fd);
}

static void sndtimeo(int fd) {
	int begun = 0;
	ssize_t written = BULK;
	want(set_time(fd, SO_SNDTIMEO, 200));
	while (written == BULK) {
		begun = ms_now();
		written = write(fd, sent, BULK);
	}
	int error = errno;
	want(written > 0 || error == EAGAIN);
	want(ms_now() - begun >= 190 && ms_now() - begun < 1500);
}

static void keepalive(int fd) {
	want(set(fd, SOL_SOCKET, SO_KEEPALIVE, 1) && set(fd, IPPROTO_TCP, TCP_KEEPIDLE, 1) &&
		 set(fd, IPPROTO_TCP, TCP_KEEPINTVL, 1) && set(fd, IPPROTO_TCP, TCP_KEEPCNT, 1));
	want(get(fd, SOL_SOCKET, SO_KEEPALIVE) == 1 && get(fd, IPPROTO_TCP, TCP_KEEPIDLE) == 1);
	pause_ms(3500);
	want(still_works(fd));
}

static void user_timeout(int fd) {
	want(set(fd, IPPROTO_TCP, TCP_USER_TIMEOUT, 500) && get(fd, IPPROTO_TCP, TCP_USER_TIMEOUT) == 500);
	pause_ms(1000);
	want(still_works(fd));
}

static void buffers(int fd) {
	want(set(fd, SOL_SOCKET, SO_RCVBUF, 8192) && get(fd, SOL_SOCKET, SO_RCVBUF) == 16384);
	want(set(fd, SOL_SOCKET, SO_SNDBUF, 8192) && get(fd, SOL_SOCKET, SO_SNDBUF) == 16384);
	want(write_all(fd, sent, BULK) && all_came(fd, BULK));
}

static int unsent(int fd) {
	int count = -1;
	return ioctl(fd, SIOCOUTQ, &count) == 0 ? count : -1;
}

static int is_sent(int fd) {
	for (int ms = 0; ms < WAIT_MS && unsent(fd) > 0; ms++) pause_ms(1);
	return unsent(fd) == 0;
}

static void outq(int fd) {
	want(is_sent(fd) && set(fd, SOL_SOCKET, SO_SNDBUFFORCE, BULK) && write_all(fd, sent, HELD));
	pause_ms(300);
	saw("before the peer reads: %s", unsent(fd) == 0 ? "empty" : "not empty");
	want(is_sent(fd));
}

static void info(int fd) {
	struct tcp_info info = {0};
	socklen_t length = sizeof info;
	want(still_works(fd));
	want(getsockopt(fd, IPPROTO_TCP, TCP_INFO, &info, &length) == 0 && info.tcpi_state == TCP_ESTABLISHED && info.tcpi_rtt > 0);
	want(shutdown(fd, SHUT_WR) == 0 && read(fd, got, 1) == 0);
	want(getsockopt(fd, IPPROTO_TCP, TCP_INFO, &info, &length) == 0);
	saw("at the end state %u", info.tcpi_state);
}

static void quickack(int fd) {
	want(set(fd, IPPROTO_TCP, TCP_QUICKACK, 1) && set(fd, IPPROTO_TCP, TCP_NOTSENT_LOWAT, 16384) && still_works(fd));
}

static void congestion(int fd) {
	char name[16] = "reno";
	socklen_t length = sizeof name;
	want(setsockopt(fd, IPPROTO_TCP, TCP_CONGESTION, "reno", 4) == 0 && getsockopt(fd, IPPROTO_TCP, TCP_CONGESTION, name, &length) == 0);
	want(strcmp(name, "reno") == 0 && still_works(fd));
}

static void tos(int fd) {
	want(set(fd, IPPROTO_IP, IP_TOS, 0xb8) && get(fd, IPPROTO_IP, IP_TOS) == 0xb8);
	want(set(fd, IPPROTO_IP, IP_TTL, 7) && set(fd, SOL_SOCKET, SO_PRIORITY, 5) && still_works(fd));
}

static void mark(int fd) {
	want(set(fd, SOL_SOCKET, SO_MARK, 42) && get(fd, SOL_SOCKET, SO_MARK) == 42 && still_works(fd));
}

static void mark_before(int fd) {
	int other = socket(AF_INET, SOCK_STREAM, 0);
	(void)fd;
	want(set(other, SOL_SOCKET, SO_MARK, 42) && connect(other, (struct sockaddr *)&server_address, sizeof server_address) == 0);
}

/* The number of the case that the server is to help with, in the first bytes of a connection. */
static struct order order_of(const char *name);

/* The first bytes go with the SYN where they can; the server's answer shows that they came. */
static void fastopen(int fd) {
	struct order order = order_of("TCP_QUICKACK");
	close(fd);
	for (int count = 0; count < 2; count++) {
		int other = socket(AF_INET, SOCK_STREAM, 0);
		want(sendto(other, &order, sizeof order, MSG_FASTOPEN, (struct sockaddr *)&server_address, sizeof server_address) == sizeof order);
		want(is_taken(other) && still_works(other));
		close(other);
	}
}

static void fastopen_connect(int fd) {
	struct order order = order_of("TCP_QUICKACK");
	close(fd);
	int other = connected_by(TCP_FASTOPEN_CONNECT, 1);
	want(other >= 0 && write_all(other, &order, sizeof order) && is_taken(other) && still_works(other));
}

static void nothing_asked(int fd) {
	want(get(fd, SOL_SOCKET, SO_ERROR) == 0 && get(fd, SOL_SOCKET, SO_TYPE) == SOCK_STREAM);
	want(get(fd, SOL_SOCKET, SO_PROTOCOL) == IPPROTO_TCP && get(fd, SOL_SOCKET, SO_DOMAIN) == AF_INET);
	want(get(fd, SOL_SOCKET, SO_ACCEPTCONN) == 0);
	saw("protocol TCP");
}

const struct one_case cases[] = {
	{"TCP_NODELAY", nodelay, answer_pairs},
	{"TCP_CORK", cork, echo},
	{"MSG_MORE", msg_more, echo},
	{"TCP_MAXSEG", maxseg, digest},
	{"TCP_MAXSEG-before", maxseg_before, until_end, CONNECTING_ONLY},
	{"SO_LINGER-0", linger_zero, leave_by_reset},
	{"SO_LINGER", linger, speak_and_linger},
	{"SO_LINGER-close", linger_close, late_reader},
	{"SO_RCVTIMEO", rcvtimeo, echo},
	{"SO_SNDTIMEO", sndtimeo, sleeper},
	{"SO_KEEPALIVE", keepalive, echo},
	{"TCP_USER_TIMEOUT", user_timeout, echo},
	{"SO_RCVBUF", buffers, digest},
	{"SIOCOUTQ", outq, late_reader},
	{"TCP_INFO", info, echo},
	{"TCP_QUICKACK", quickack, echo},
	{"TCP_CONGESTION", congestion, echo},
	{"IP_TOS", tos, echo},
	{"SO_MARK", mark, echo},
	{"SO_MARK-before", mark_before, until_end, CONNECTING_ONLY},
	{"TCP_FASTOPEN", fastopen, until_end, CONNECTING_ONLY},
	{"TCP_FASTOPEN_CONNECT", fastopen_connect, until_end, CONNECTING_ONLY},
	{"SO_PROTOCOL", nothing_asked, until_end},
};
const int case_count = sizeof cases / sizeof cases[0];

static struct order order_of(const char *name) {
	int number = 0;
	while (strcmp(cases[number].name, name) != 0) number++;
	return (struct order){number, 0};
}

int main(int count, char **words) {
	fill(sent, sizeof sent);
	return run_cases(count, words);
}
