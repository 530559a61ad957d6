/*
 * Every system call by which bytes of a TCP connection are sent, received, waited for and asked about; see cases.h. What comes
 * back is compared with what was sent in each of them. Linked with liburing.
 */
#include "cases.h"
#include <liburing.h>
#include <linux/errqueue.h>
#include <sys/epoll.h>
#include <sys/select.h>
#include <sys/sendfile.h>
#include <sys/uio.h>

static unsigned char sent[BULK], got[BULK];

/* What poll says within WAIT_MS: revents. */
static int wait_for(int fd, short events) {
	struct pollfd one = {.fd = fd, .events = events};
	return poll(&one, 1, WAIT_MS) == 1 ? one.revents : 0;
}

static void send_recv(int fd) {
	want(send(fd, sent, 1000, 0) == 1000);
	want(has_come(fd, 1000));
	want(recv(fd, got, sizeof got, 0) == 1000 && is_filled(got, 1000));
	want(send(fd, sent, 0, 0) == 0);
}

static void sendto_recvfrom(int fd) {
	struct sockaddr_storage from;
	socklen_t length = sizeof from;
	want(sendto(fd, sent, 1000, 0, (struct sockaddr *)&server_address, sizeof server_address) == 1000);
	want(has_come(fd, 1000));
	want(recvfrom(fd, got, sizeof got, 0, (struct sockaddr *)&from, &length) == 1000 && is_filled(got, 1000));
	saw("an address of %u bytes", length);
}

static struct msghdr in_three(unsigned char *bytes, struct iovec *parts) {
	parts[0] = (struct iovec){bytes, 1};
	parts[1] = (struct iovec){bytes + 1, 1999};
	parts[2] = (struct iovec){bytes + 2000, 1000};
	return (struct msghdr){.msg_iov = parts, .msg_iovlen = 3};
}

static void sendmsg_recvmsg(int fd) {
	struct iovec parts[3];
	struct msghdr message = in_three(sent, parts);
	want(sendmsg(fd, &message, 0) == 3000);
	want(has_come(fd, 3000));
	message = in_three(got, parts);
	want(recvmsg(fd, &message, 0) == 3000 && is_filled(got, 3000));
	saw("flags %x, %zu bytes of control", message.msg_flags, message.msg_controllen);
}

static void sendmmsg_recvmmsg(int fd) {
	struct iovec parts[2][3];
	struct mmsghdr messages[2] = {{.msg_hdr = in_three(sent, parts[0])}, {.msg_hdr = in_three(sent + 3000, parts[1])}};
	want(sendmmsg(fd, messages, 2, 0) == 2 && messages[1].msg_len == 3000);
	want(has_come(fd, 6000));
	messages[0].msg_hdr = in_three(got, parts[0]);
	messages[1].msg_hdr = in_three(got + 3000, parts[1]);
	want(recvmmsg(fd, messages, 2, 0, NULL) == 2 && messages[0].msg_len == 3000 && is_filled(got, 6000));
}

static void read_write(int fd) {
	want(write(fd, sent, 1000) == 1000);
	want(has_come(fd, 1000));
	want(read(fd, got, 10) == 10);
	want(read(fd, got + 10, 2000) == 990 && is_filled(got, 1000));
}

static void readv_writev(int fd) {
	struct iovec parts[3];
	in_three(sent, parts);
	want(writev(fd, parts, 3) == 3000);
	want(has_come(fd, 3000));
	in_three(got, parts);
	want(readv(fd, parts, 3) == 3000 && is_filled(got, 3000));
	want(preadv2(fd, parts, 3, -1, RWF_NOWAIT) == -1 && errno == EAGAIN);
}

static void ioctl_fionread(int fd) {
	int waiting = -1;
	want(ioctl(fd, FIONREAD, &waiting) == 0 && waiting == 0);
	want(write(fd, sent, 700) == 700 && has_come(fd, 700));
	want(read(fd, got, 300) == 300);
	want(ioctl(fd, FIONREAD, &waiting) == 0 && waiting == 400);
}

static void ioctl_fionbio(int fd) {
	int on = 1, off = 0;
	want(ioctl(fd, FIONBIO, &on) == 0 && (fcntl(fd, F_GETFL) & O_NONBLOCK));
	want(read(fd, got, 1) == -1 && errno == EAGAIN);
	want(write(fd, sent, 100) == 100 && has_come(fd, 100) && read(fd, got, sizeof got) == 100);
	want(ioctl(fd, FIONBIO, &off) == 0 && !(fcntl(fd, F_GETFL) & O_NONBLOCK));
	want(write(fd, sent, 100) == 100 && read_all(fd, got, 100) == 100);
}

static void by_poll(int fd) {
	struct pollfd one = {.fd = fd, .events = POLLIN | POLLOUT | POLLRDHUP};
	want(poll(&one, 1, 0) == 1 && one.revents == POLLOUT);
	want(write(fd, sent, 100) == 100 && wait_for(fd, POLLIN) == POLLIN);
	want(read_all(fd, got, 100) == 100 && poll(&one, 1, 0) == 1 && one.revents == POLLOUT);
	want(shutdown(fd, SHUT_WR) == 0 && (wait_for(fd, POLLRDHUP) & POLLRDHUP));
	want(poll(&one, 1, 0) == 1);
	saw("at the end %x", one.revents);
}

static int by_select_once(int fd, int for_writing, int seconds) {
	struct timeval limit = {.tv_sec = seconds};
	fd_set set;
	FD_ZERO(&set);
	FD_SET(fd, &set);
	return select(fd + 1, for_writing ? NULL : &set, for_writing ? &set : NULL, NULL, &limit);
}

static void by_select(int fd) {
	want(by_select_once(fd, 0, 0) == 0 && by_select_once(fd, 1, 0) == 1);
	want(write(fd, sent, 100) == 100 && by_select_once(fd, 0, 5) == 1 && read_all(fd, got, 100) == 100);
	want(shutdown(fd, SHUT_WR) == 0 && by_select_once(fd, 0, 5) == 1 && read(fd, got, 1) == 0);
}

static int epoll_for(int fd, uint32_t events) {
	struct epoll_event one = {.events = events};
	int epoll = epoll_create1(EPOLL_CLOEXEC);
	return epoll_ctl(epoll, EPOLL_CTL_ADD, fd, &one) < 0 ? -1 : epoll;
}

static int events_of(int epoll, int ms) {
	struct epoll_event one;
	return epoll_wait(epoll, &one, 1, ms) == 1 ? (int)one.events : 0;
}

static void epoll_level(int fd) {
	int epoll = epoll_for(fd, EPOLLIN | EPOLLRDHUP);
	want(events_of(epoll, 0) == 0);
	want(write(fd, sent, 100) == 100 && events_of(epoll, WAIT_MS) == EPOLLIN);
	want(has_come(fd, 100) && read(fd, got, 50) == 50 && events_of(epoll, 0) == EPOLLIN);
	want(read(fd, got, 50) == 50 && events_of(epoll, 0) == 0);
	want(shutdown(fd, SHUT_WR) == 0 && (events_of(epoll, WAIT_MS) & EPOLLRDHUP));
}

static void epoll_edge(int fd) {
	int epoll = epoll_for(fd, EPOLLIN | EPOLLET);
	want(write(fd, sent, 100) == 100 && events_of(epoll, WAIT_MS) == EPOLLIN && has_come(fd, 100));
	want(read(fd, got, 50) == 50 && events_of(epoll, 100) == 0);
	want(write(fd, sent, 100) == 100 && events_of(epoll, WAIT_MS) == EPOLLIN && has_come(fd, 150));
	want(read(fd, got, sizeof got) == 150 && events_of(epoll, 0) == 0);
}

static volatile sig_atomic_t signals;

static void on_signal(int number) { (void)number, signals++; }

static void signal_driven(int fd) {
	signal(SIGIO, on_signal);
	want(fcntl(fd, F_SETOWN, getpid()) == 0 && fcntl(fd, F_SETFL, O_ASYNC) == 0);
	want(write(fd, sent, 100) == 100 && has_come(fd, 100) && signals > 0);
}

static void stat_and_seek(int fd) {
	struct stat about;
	want(fstat(fd, &about) == 0 && S_ISSOCK(about.st_mode));
	want(lseek(fd, 0, SEEK_CUR) == -1 && errno == ESPIPE);
	want(pread(fd, got, 1, 0) == -1 && errno == ESPIPE);
}

/* A nameless file of BULK bytes, at its beginning. */
static int file_of(const unsigned char *bytes) {
	char name[] = "/tmp/sctpify-calls-XXXXXX";
	int file = mkstemp(name);
	unlink(name);
	return bytes && (!write_all(file, bytes, BULK) || lseek(file, 0, SEEK_SET) != 0) ? -1 : file;
}

static void sendfile_bulk(int fd) {
	int file = file_of(sent);
	off_t from = 0;
	while (from < BULK) want(sendfile(fd, file, &from, BULK - from) > 0);
	want(all_came(fd, BULK));
}

static void splice_out(int fd) {
	int file = file_of(sent), ends[2];
	want(pipe(ends) == 0);
	for (ssize_t piece; (piece = splice(file, NULL, ends[1], NULL, 65536, 0)) > 0;)
		while (piece > 0) {
			ssize_t now = splice(ends[0], NULL, fd, NULL, piece, SPLICE_F_MORE);
			want(now > 0);
			piece -= now;
		}
	want(all_came(fd, BULK));
}

/* Sends BULK bytes and waits for the end. */
static void source(int fd) {
	static unsigned char bytes[BULK];
	fill(bytes, BULK);
	write_all(fd, bytes, BULK);
	shutdown(fd, SHUT_WR);
	until_end(fd);
}

static void splice_in(int fd) {
	int file = file_of(NULL), ends[2];
	want(pipe(ends) == 0);
	for (ssize_t piece; (piece = splice(fd, NULL, ends[1], NULL, 65536, 0)) > 0;)
		want(splice(ends[0], NULL, file, NULL, piece, 0) == piece);
	want(lseek(file, 0, SEEK_SET) == 0 && read_all(file, got, BULK) == BULK && is_filled(got, BULK));
}

static void vmsplice_out(int fd) {
	int ends[2];
	struct iovec part = {sent, 16384};
	want(pipe(ends) == 0 && vmsplice(ends[1], &part, 1, 0) == 16384);
	want(splice(ends[0], NULL, fd, NULL, 16384, 0) == 16384 && all_came(fd, 16384));
}

/* Takes notices of the error queue until all `count` sends are reported; 0 when one does not come or is of another kind. */
static int are_completed(int fd, uint32_t count) {
	for (uint32_t done = 0; done < count;) {
		char control[128];
		struct msghdr message = {.msg_control = control, .msg_controllen = sizeof control};
		if (!(wait_for(fd, 0) & POLLERR) || recvmsg(fd, &message, MSG_ERRQUEUE) < 0) return 0;
		struct cmsghdr *head = CMSG_FIRSTHDR(&message);
		if (!head || head->cmsg_level != SOL_IP || head->cmsg_type != IP_RECVERR) return 0;
		struct sock_extended_err *told = (struct sock_extended_err *)CMSG_DATA(head);
		if (told->ee_origin != SO_EE_ORIGIN_ZEROCOPY || told->ee_errno != 0 || told->ee_info != done) return 0;
		done = told->ee_data + 1;
	}
	return 1;
}

static void zerocopy(int fd) {
	int one = 1;
	uint32_t sends = 0;
	want(setsockopt(fd, SOL_SOCKET, SO_ZEROCOPY, &one, sizeof one) == 0);
	for (size_t done = 0; done < BULK; sends++) {
		ssize_t now = send(fd, sent + done, BULK - done, MSG_ZEROCOPY);
		want(now > 0);
		done += now;
	}
	want(are_completed(fd, sends));
	want(all_came(fd, BULK));
}

/* One operation by io_uring; gives its result. */
static int by_ring(struct io_uring *ring, void (*prepare)(struct io_uring_sqe *, int, void *, size_t), int fd, void *bytes,
				   size_t length) {
	struct io_uring_cqe *done;
	prepare(io_uring_get_sqe(ring), fd, bytes, length);
	if (io_uring_submit_and_wait(ring, 1) != 1 || io_uring_peek_cqe(ring, &done) < 0) return -1;
	int result = done->res;
	io_uring_cqe_seen(ring, done);
	return result;
}

static void prepare_send(struct io_uring_sqe *sqe, int fd, void *bytes, size_t length) {
	io_uring_prep_send(sqe, fd, bytes, length, 0);
}
static void prepare_recv(struct io_uring_sqe *sqe, int fd, void *bytes, size_t length) {
	io_uring_prep_recv(sqe, fd, bytes, length, MSG_WAITALL);
}
static void prepare_write(struct io_uring_sqe *sqe, int fd, void *bytes, size_t length) {
	io_uring_prep_write(sqe, fd, bytes, length, 0);
}
static void prepare_read(struct io_uring_sqe *sqe, int fd, void *bytes, size_t length) {
	io_uring_prep_read(sqe, fd, bytes, length, 0);
}
static void prepare_poll(struct io_uring_sqe *sqe, int fd, void *bytes, size_t events) {
	(void)bytes, io_uring_prep_poll_add(sqe, fd, events);
}
static void prepare_connect(struct io_uring_sqe *sqe, int fd, void *address, size_t length) {
	io_uring_prep_connect(sqe, fd, address, length);
}

static int has_ring(struct io_uring *ring) {
	int refused = io_uring_queue_init(8, ring, 0);
	if (refused < 0) saw("the kernel has no io_uring: %s", strerrorname_np(-refused));
	return refused == 0;
}

static void connect_by_ring(int fd) {
	struct io_uring ring;
	int other = socket(AF_INET, SOCK_STREAM, 0);
	if (!has_ring(&ring)) return;
	want(by_ring(&ring, prepare_connect, other, &closed_address, sizeof closed_address) == -ECONNREFUSED);
	other = socket(AF_INET, SOCK_STREAM, 0);
	want(by_ring(&ring, prepare_connect, other, &server_address, sizeof server_address) == 0);
	(void)fd;
}

static void io_uring(int fd) {
	struct io_uring ring;
	if (!has_ring(&ring)) return;
	want(by_ring(&ring, prepare_send, fd, sent, 3000) == 3000);
	want(by_ring(&ring, prepare_recv, fd, got, 3000) == 3000 && is_filled(got, 3000));
	want(by_ring(&ring, prepare_write, fd, sent, 1000) == 1000 && has_come(fd, 1000));
	want(by_ring(&ring, prepare_poll, fd, NULL, POLLIN) == POLLIN);
	want(by_ring(&ring, prepare_read, fd, got + 3000, 2000) == 1000 && memcmp(got + 3000, sent, 1000) == 0);
	want(shutdown(fd, SHUT_WR) == 0 && by_ring(&ring, prepare_recv, fd, got, 1) == 0);
}

static void msg_peek(int fd) {
	want(write(fd, sent, 100) == 100 && has_come(fd, 100));
	want(recv(fd, got, 100, MSG_PEEK) == 100 && recv(fd, got, 10, MSG_PEEK) == 10 && has_come(fd, 100));
	want(recv(fd, got, sizeof got, 0) == 100 && is_filled(got, 100));
	want(recv(fd, got, 1, MSG_PEEK | MSG_DONTWAIT) == -1 && errno == EAGAIN);
}

static void msg_trunc(int fd) {
	want(write(fd, sent, 100) == 100 && has_come(fd, 100));
	want(recv(fd, NULL, 60, MSG_TRUNC) == 60);
	want(recv(fd, got, sizeof got, 0) == 40 && memcmp(got, sent + 60, 40) == 0);
}

/* Sends 3000 bytes in three pieces with pauses. */
static void pieces(int fd) {
	unsigned char bytes[3000];
	fill(bytes, sizeof bytes);
	for (int piece = 0; piece < 3; piece++) {
		write_all(fd, bytes + 1000 * piece, 1000);
		pause_ms(60);
	}
	until_end(fd);
}

static void msg_waitall(int fd) {
	want(recv(fd, got, 3000, MSG_WAITALL) == 3000 && is_filled(got, 3000));
	want(shutdown(fd, SHUT_WR) == 0 && recv(fd, got, 10, MSG_WAITALL) == 0);
}

static void late_digest(int fd) {
	pause_ms(700);
	digest(fd);
}

static void msg_dontwait(int fd) {
	size_t done = 0;
	want(recv(fd, got, 1, MSG_DONTWAIT) == -1 && errno == EAGAIN);
	ssize_t now;
	while (done < 15 * BULK && (now = send(fd, sent + done % BULK, BULK - done % BULK, MSG_DONTWAIT)) > 0) done += now;
	want(done < 15 * BULK && (now = send(fd, sent, 1, MSG_DONTWAIT)) == -1 && errno == EAGAIN);
	want(wait_for(fd, POLLOUT) == POLLOUT);
	want(send(fd, sent + done % BULK, 1, MSG_DONTWAIT) == 1);
	want(all_came(fd, done + 1));
}

static void rcvlowat(int fd) {
	int low = 200;
	want(setsockopt(fd, SOL_SOCKET, SO_RCVLOWAT, &low, sizeof low) == 0);
	want(write(fd, sent, 100) == 100 && has_come(fd, 100));
	struct pollfd one = {.fd = fd, .events = POLLIN};
	want(poll(&one, 1, 100) == 0);
	want(write(fd, sent + 100, 100) == 100 && wait_for(fd, POLLIN) == POLLIN && read(fd, got, 300) == 200 && is_filled(got, 200));
}

/* "abc", and "d" urgently. */
static void urgent(int fd) {
	send(fd, "abcd", 4, MSG_OOB);
	until_end(fd);
}

static void msg_oob(int fd) {
	char bytes[8] = "", mark = '-';
	want(wait_for(fd, POLLIN | POLLPRI) != 0);
	pause_ms(100);
	saw("poll %x", wait_for(fd, POLLIN | POLLPRI));
	saw(", apart %s", outcome(recv(fd, &mark, 1, MSG_OOB)));
	saw(" '%c'", mark);
	want(recv(fd, bytes, sizeof bytes, 0) > 0);
	saw(", in the stream '%s'", bytes);
}

static void msg_oob_inline(int fd) {
	int one = 1;
	char bytes[8] = "";
	want(setsockopt(fd, SOL_SOCKET, SO_OOBINLINE, &one, sizeof one) == 0);
	want(read_all(fd, bytes, 4) == 4 && memcmp(bytes, "abcd", 4) == 0);
}

static void duplicated(int fd) {
	int other = dup(fd);
	want(other >= 0 && close(fd) == 0);
	want(write(other, sent, 100) == 100 && read_all(other, got, 100) == 100);
	want(dup2(other, fd) == fd && close(other) == 0);
	want(write(fd, sent, 100) == 100 && read_all(fd, got, 100) == 100 && is_filled(got, 100));
}

static void inherited(int fd) {
	int status;
	if (fork() == 0) _exit(write_all(fd, sent, 1000) ? 0 : 1);
	want(read_all(fd, got, 1000) == 1000 && is_filled(got, 1000));
	want(wait(&status) > 0 && status == 0);
	want(write_all(fd, sent, 1000) && read_all(fd, got, 1000) == 1000);
}

static int pass(int through, int fd) {
	union {
		char bytes[CMSG_SPACE(sizeof(int))];
		struct cmsghdr head;
	} control;
	struct iovec part = {"x", 1};
	struct msghdr message = {.msg_iov = &part, .msg_iovlen = 1, .msg_control = control.bytes, .msg_controllen = sizeof control.bytes};
	control.head = (struct cmsghdr){.cmsg_level = SOL_SOCKET, .cmsg_type = SCM_RIGHTS, .cmsg_len = CMSG_LEN(sizeof(int))};
	memcpy(CMSG_DATA(&control.head), &fd, sizeof fd);
	return sendmsg(through, &message, 0) == 1;
}

static int take(int from) {
	char byte, control[CMSG_SPACE(sizeof(int))];
	int fd;
	struct iovec part = {&byte, 1};
	struct msghdr message = {.msg_iov = &part, .msg_iovlen = 1, .msg_control = control, .msg_controllen = sizeof control};
	if (recvmsg(from, &message, 0) != 1 || !CMSG_FIRSTHDR(&message)) return -1;
	memcpy(&fd, CMSG_DATA(CMSG_FIRSTHDR(&message)), sizeof fd);
	return fd;
}

/* The process that used the connection closes it; another goes on. */
static void passed(int fd) {
	int ends[2], status;
	want(socketpair(AF_UNIX, SOCK_STREAM, 0, ends) == 0);
	want(write_all(fd, sent, 500));
	pid_t other = fork();
	if (other == 0) {
		close(fd);
		int mine = take(ends[1]);
		_exit(mine >= 0 && write_all(mine, sent + 500, 500) && read_all(mine, got, 1000) == 1000 && is_filled(got, 1000) ? 0 : 1);
	}
	want(pass(ends[0], fd) && close(fd) == 0);
	want(wait(&status) == other && status == 0);
}

struct names {
	struct sockaddr_in own, peer;
};

static struct names names_of(int fd) {
	struct names names = {0};
	socklen_t length = sizeof names.own;
	getsockname(fd, (struct sockaddr *)&names.own, &length);
	getpeername(fd, (struct sockaddr *)&names.peer, &length);
	return names;
}

static void tell_names(int fd) {
	struct names names = names_of(fd);
	write_all(fd, &names, sizeof names);
	until_end(fd);
}

static void names(int fd) {
	struct names own = names_of(fd), theirs;
	want(read_all(fd, &theirs, sizeof theirs) == sizeof theirs && own.own.sin_port != 0);
	want(memcmp(&own.own, &theirs.peer, sizeof own.own) == 0 && memcmp(&own.peer, &theirs.own, sizeof own.own) == 0);
}

/* SO_ERROR once a connection that was begun without waiting is made or refused. */
static void connect_later(int fd, const struct sockaddr_in *to) {
	int other = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK, 0), error = -1;
	socklen_t length = sizeof error;
	want(connect(other, (const struct sockaddr *)to, sizeof *to) == -1 && errno == EINPROGRESS);
	saw("poll %x", wait_for(other, POLLOUT));
	want(getsockopt(other, SOL_SOCKET, SO_ERROR, &error, &length) == 0);
	saw(", SO_ERROR %s", error ? strerrorname_np(error) : "0");
	want(getsockopt(other, SOL_SOCKET, SO_ERROR, &error, &length) == 0 && error == 0);
	saw(", connect again: %s", outcome(connect(other, (const struct sockaddr *)to, sizeof *to)));
	(void)fd;
}

static void connect_made(int fd) {
	connect_later(fd, &server_address);
}

static void connect_refused(int fd) {
	want(connect(socket(AF_INET, SOCK_STREAM, 0), (struct sockaddr *)&closed_address, sizeof closed_address) == -1 &&
		 errno == ECONNREFUSED);
	connect_later(fd, &closed_address);
}

static void shutdown_writing(int fd) {
	want(write_all(fd, sent, 1000) && shutdown(fd, SHUT_WR) == 0);
	want(send(fd, sent, 1, MSG_NOSIGNAL) == -1 && errno == EPIPE);
	want(read_all(fd, got, sizeof got) == 1000 && is_filled(got, 1000));
}

static void sigpipe(int fd) {
	signal(SIGPIPE, on_signal);
	want(shutdown(fd, SHUT_WR) == 0 && write(fd, sent, 1) == -1 && errno == EPIPE && signals == 1);
}

static void shutdown_reading(int fd) {
	want(shutdown(fd, SHUT_RD) == 0 && read(fd, got, 1) == 0);
	want(write(fd, sent, 100) == 100);
}

static void shutdown_both(int fd) {
	want(shutdown(fd, SHUT_RDWR) == 0 && read(fd, got, 1) == 0 && send(fd, sent, 1, MSG_NOSIGNAL) == -1 && errno == EPIPE);
}

static void leave(int fd) { (void)fd; }

/* The peer's program has closed: its end is read, and what is written finds nobody. */
static void peer_closes(int fd) {
	want(wait_for(fd, POLLIN) == POLLIN && read(fd, got, 1) == 0 && read(fd, got, 1) == 0);
	want(send(fd, sent, 1, MSG_NOSIGNAL) == 1);
	pause_ms(500);
	saw("poll %x", wait_for(fd, POLLIN | POLLRDHUP));
	saw(", write again: %s", outcome(send(fd, sent, 1, MSG_NOSIGNAL)));
	saw(", read: %s", outcome(read(fd, got, 1)));
}

/* Leaves without having read what came. */
static void leave_unread(int fd) { wait_for(fd, POLLIN); }

static void peer_closes_unread(int fd) {
	want(write(fd, sent, 100) == 100);
	want(wait_for(fd, POLLIN) != 0);
	pause_ms(100);
	saw("poll %x", wait_for(fd, POLLIN | POLLRDHUP));
	saw(", read: %s", outcome(read(fd, got, 1)));
	saw(", read again: %s", outcome(read(fd, got, 1)));
	saw(", write: %s", outcome(send(fd, sent, 1, MSG_NOSIGNAL)));
}

const struct one_case cases[] = {
	{"send/recv", send_recv, echo},
	{"sendto/recvfrom", sendto_recvfrom, echo},
	{"sendmsg/recvmsg", sendmsg_recvmsg, echo},
	{"sendmmsg/recvmmsg", sendmmsg_recvmmsg, echo},
	{"read/write", read_write, echo},
	{"readv/writev", readv_writev, echo},
	{"FIONREAD", ioctl_fionread, echo},
	{"FIONBIO", ioctl_fionbio, echo},
	{"poll", by_poll, echo},
	{"select", by_select, echo},
	{"epoll-level", epoll_level, echo},
	{"epoll-edge", epoll_edge, echo},
	{"SIGIO", signal_driven, echo},
	{"fstat", stat_and_seek, echo},
	{"sendfile", sendfile_bulk, digest},
	{"splice-out", splice_out, digest},
	{"splice-in", splice_in, source},
	{"vmsplice", vmsplice_out, digest},
	{"MSG_ZEROCOPY", zerocopy, digest},
	{"io_uring", io_uring, echo},
	{"MSG_PEEK", msg_peek, echo},
	{"MSG_TRUNC", msg_trunc, echo},
	{"MSG_WAITALL", msg_waitall, pieces},
	{"MSG_DONTWAIT", msg_dontwait, late_digest},
	{"SO_RCVLOWAT", rcvlowat, echo},
	{"MSG_OOB", msg_oob, urgent},
	{"SO_OOBINLINE", msg_oob_inline, urgent},
	{"dup", duplicated, echo},
	{"fork", inherited, echo},
	{"SCM_RIGHTS", passed, echo},
	{"getsockname/getpeername", names, tell_names},
	{"connect-made", connect_made, until_end, CONNECTING_ONLY},
	{"connect-refused", connect_refused, until_end, CONNECTING_ONLY},
	{"io_uring-connect", connect_by_ring, until_end, CONNECTING_ONLY},
	{"SHUT_WR", shutdown_writing, echo},
	{"SIGPIPE", sigpipe, until_end},
	{"SHUT_RD", shutdown_reading, until_end},
	{"SHUT_RDWR", shutdown_both, until_end},
	{"peer-closes", peer_closes, leave},
	{"peer-closes-unread", peer_closes_unread, leave_unread},
};
const int case_count = sizeof cases / sizeof cases[0];

int main(int count, char **words) {
	fill(sent, sizeof sent);
	return run_cases(count, words);
}
