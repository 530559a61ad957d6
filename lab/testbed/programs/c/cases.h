/*
 * Cases about one TCP connection each, for a program that does not know what carries it.
 *
 *   PROGRAM serve PORT                      prints "listening", then takes connections one after another
 *   PROGRAM connect ADDRESS PORT CLOSED     runs every case; at port CLOSED of ADDRESS nothing listens
 *
 * A case has an actor, which uses the call it is named after, and a partner, which helps with plain reads and writes. Each case
 * runs twice: its actor at the connecting end, then at the accepting end. The end that acts prints one line:
 *
 *   NAME connecting|accepting: ok | WHAT IT SAW | FAILED: what was expected, and the last error
 *
 * Connections without a case's order come from cases that make connections themselves, and are closed.
 * Each case is a process of its own with a limit of time, so that one that hangs or dies is a line as well.
 * Include this, write `cases`, the last of which acts at both ends, call `run_cases` in main.
 */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <signal.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

enum { LIMIT_S = 20, BULK = 1 << 20, WAIT_MS = 5000 };

struct one_case {
	const char *name;
	void (*act)(int connection);
	void (*help)(int connection);
	int connecting_only;
};
enum { CONNECTING_ONLY = 1 };

static struct sockaddr_in server_address, closed_address;
static char line[4096];

/* Adds to what this case prints. */
__attribute__((format(printf, 1, 2))) static void saw(const char *format, ...) {
	va_list arguments;
	size_t length = strlen(line);
	va_start(arguments, format);
	vsnprintf(line + length, sizeof line - length, format, arguments);
	va_end(arguments);
}

static void print_line(const char *name, int accepting, const char *what) {
	printf("%s %s: %s\n", name, accepting ? "accepting" : "connecting", what);
	fflush(stdout);
}

static const char *case_name;
static int case_accepting;

__attribute__((noreturn)) static void end_case(void) {
	print_line(case_name, case_accepting, line[0] ? line : "ok");
	exit(0);
}

/* Ends the case with a complaint unless the condition holds. */
#define want(condition)                                                                    \
	do {                                                                                   \
		errno = 0;                                                                         \
		if (!(condition)) {                                                                \
			saw("%sFAILED: line %d: %s (%s)", line[0] ? "; " : "", __LINE__, #condition, strerrorname_np(errno)); \
			end_case();                                                                    \
		}                                                                                  \
	} while (0)

/* The name of the error of a call that gave `result`, or "ok". */
static const char *outcome(ssize_t result) { return result >= 0 ? "ok" : strerrorname_np(errno); }

static void pause_ms(int ms) { usleep(ms * 1000); }

static void fill(unsigned char *bytes, size_t length) {
	for (size_t i = 0; i < length; i++) bytes[i] = (unsigned char)(i * 31 + (i >> 8));
}

static int is_filled(const unsigned char *bytes, size_t length) {
	for (size_t i = 0; i < length; i++)
		if (bytes[i] != (unsigned char)(i * 31 + (i >> 8))) return 0;
	return 1;
}

static int write_all(int fd, const void *bytes, size_t length) {
	for (size_t done = 0; done < length;) {
		ssize_t now = write(fd, (const char *)bytes + done, length - done);
		if (now <= 0) return 0;
		done += now;
	}
	return 1;
}

/* Reads until `length` bytes have come or the stream ends; gives the number. */
static size_t read_all(int fd, void *bytes, size_t length) {
	size_t done = 0;
	while (done < length) {
		ssize_t now = read(fd, (char *)bytes + done, length - done);
		if (now <= 0) break;
		done += now;
	}
	return done;
}

/* Waits until `length` bytes can be read at once. */
static int has_come(int fd, int length) {
	int waiting = 0;
	for (int ms = 0; ms < WAIT_MS && waiting < length; ms++) {
		if (ioctl(fd, FIONREAD, &waiting) < 0) return 0;
		pause_ms(1);
	}
	return waiting == length;
}

/* ---- partners ---- */

static void until_end(int fd) {
	char bytes[4096];
	while (read(fd, bytes, sizeof bytes) > 0) {}
}

static void echo(int fd) {
	char bytes[65536];
	for (ssize_t length; (length = read(fd, bytes, sizeof bytes)) > 0;)
		if (!write_all(fd, bytes, length)) return;
}

struct digest {
	uint64_t length;
	uint64_t is_filled;
};

/* Reads to the end, then tells how much came and whether it was what `fill` makes. */
static void digest(int fd) {
	static unsigned char bytes[16 * BULK];
	struct digest told = {.length = read_all(fd, bytes, sizeof bytes)};
	told.is_filled = is_filled(bytes, told.length);
	write_all(fd, &told, sizeof told);
}

/* Ends the stream that was written and hears whether all of it came. */
static int all_came(int fd, size_t length) {
	struct digest told;
	if (shutdown(fd, SHUT_WR) < 0 || read_all(fd, &told, sizeof told) != sizeof told) return 0;
	return told.length == length && told.is_filled;
}

/* ---- running ---- */

/* Defined by who includes this. */
extern const struct one_case cases[];
extern const int case_count;

static void play(int number, int accepting, int fd, int acts) {
	const struct one_case *one = &cases[number];
	if (!acts) {
		one->help(fd);
		close(fd);
		exit(0);
	}
	case_name = one->name;
	case_accepting = accepting;
	one->act(fd);
	close(fd);
	end_case();
}

/* Waits for the process that plays a case; what it could not say itself is said here, by the end that acts. */
static void judge(pid_t child, int number, int accepting, int acts) {
	int status;
	char what[64];
	waitpid(child, &status, 0);
	if (!WIFSIGNALED(status) || !acts) return;
	snprintf(what, sizeof what, "FAILED: %s", WTERMSIG(status) == SIGALRM ? "hangs" : strsignal(WTERMSIG(status)));
	print_line(cases[number].name, accepting, what);
}

struct order {
	uint8_t number, accepting_acts;
};

/* The server, which may still be busy with the case before, says when it begins. */
static int is_taken(int fd) {
	char byte;
	return read_all(fd, &byte, 1) == 1;
}

static void connect_once(int number, int accepting_acts) {
	pid_t child = fork();
	if (child == 0) {
		struct order order = {number, accepting_acts};
		int fd = socket(AF_INET, SOCK_STREAM, 0);
		alarm(LIMIT_S);
		if (connect(fd, (struct sockaddr *)&server_address, sizeof server_address) < 0 ||
			!write_all(fd, &order, sizeof order) || !is_taken(fd)) {
			perror("connect");
			exit(1);
		}
		play(number, 0, fd, !accepting_acts);
	}
	judge(child, number, 0, !accepting_acts);
}

static void serve_once(int listener) {
	struct order order;
	int fd = accept4(listener, NULL, NULL, SOCK_CLOEXEC);
	if (recv(fd, &order, sizeof order, MSG_WAITALL) != sizeof order || order.number >= case_count) {
		close(fd);
		return;
	}
	pid_t child = fork();
	if (child == 0) {
		close(listener);
		alarm(LIMIT_S);
		write_all(fd, "", 1);
		play(order.number, 1, fd, order.accepting_acts);
	}
	close(fd);
	judge(child, order.number, 1, order.accepting_acts);
}

static int listen_on(int port) {
	int listener = socket(AF_INET, SOCK_STREAM, 0), one = 1;
	struct sockaddr_in any = {.sin_family = AF_INET, .sin_port = htons(port)};
	setsockopt(listener, SOL_SOCKET, SO_REUSEADDR, &one, sizeof one);
	if (bind(listener, (struct sockaddr *)&any, sizeof any) < 0 || listen(listener, 16) < 0) {
		perror("listen");
		exit(1);
	}
	return listener;
}

static int run_cases(int count, char **words) {
	signal(SIGPIPE, SIG_IGN);
	if (count == 3 && strcmp(words[1], "serve") == 0) {
		int listener = listen_on(atoi(words[2]));
		puts("listening");
		fflush(stdout);
		for (;;) serve_once(listener);
	}
	if (count != 5 || strcmp(words[1], "connect") != 0) {
		fprintf(stderr, "usage: %s serve PORT | connect ADDRESS PORT CLOSED-PORT\n", words[0]);
		return 2;
	}
	server_address = (struct sockaddr_in){.sin_family = AF_INET, .sin_port = htons(atoi(words[3]))};
	closed_address = (struct sockaddr_in){.sin_family = AF_INET, .sin_port = htons(atoi(words[4]))};
	if (inet_pton(AF_INET, words[2], &server_address.sin_addr) != 1) return 2;
	closed_address.sin_addr = server_address.sin_addr;
	for (int number = 0; number < case_count; number++)
		for (int accepting_acts = 0; accepting_acts < 2 - cases[number].connecting_only; accepting_acts++)
			connect_once(number, accepting_acts);
	return 0;
}
