/* An SCTP peer on libusrsctp: a second stack to talk to, as a program of the host.
 *
 *   usrsctp_peer [OPTIONS] MODE ...
 *   MODE: echo PORT                     send every message back on the stream it came by
 *         sink PORT                     read everything
 *         client HOST PORT COUNT SIZE   send COUNT messages of SIZE octets, read each back, compare every octet
 *         send HOST PORT COUNT SIZE     send COUNT messages of SIZE octets, and close
 *   -l ADDRESS         bind it (repeatable); otherwise all
 *   -s N               use N streams in turn
 *   -o                 unordered
 *   -w N               client: N messages at once under way
 *   -g SECONDS         client: pause before each message
 *   -u LOCAL -U REMOTE UDP ports; without -u, packets go out as IP protocol 132 (needs root)
 *   -i                 ask for I-DATA
 *   -r                 fulfil requests about streams; client: after half of the messages, reset streams 0 and 1 of both
 *                      directions, and add streams
 *   -a                 authenticate DATA by SHA-1 under the key of the other peers, and offer ASCONF
 *   -T MS, -R N        send: give a message up after so many milliseconds, or retransmissions
 *   -A ADDRESS         client: add this address before the first message, and remove it behind the last one
 *   -z                 take packets with a checksum of zero, and send them to a peer that does (RFC 9653; not in Debian's version)
 *   -f                 small timers (RTO 50 to 2000 ms, one retransmission fails a path): for tests that cut one
 *
 * It prints "listening" or "connected" when it is. echo and sink serve one association. The exit status is 0 only when it ended with nothing lost.
 */
#include <arpa/inet.h>
#include <errno.h>
#include <netinet/in.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>
#include <usrsctp.h>

#ifndef SCTP_INTERLEAVING_SUPPORTED
#define SCTP_INTERLEAVING_SUPPORTED 0x00001206	/* known to the library, missing from its header */
#endif

#define BUFFER (4 << 20)	/* octets; more than the largest message */
#define MAX_STREAMS 64
#define MAX_NUMBERS 256

struct message {
	char *data;
	size_t size;
	int stream, unordered;
};

static double gap;
static int limit, limit_value;	/* SCTP_PR_SCTP_... */
static int remote_udp, idata, reconf, auth, zero_checksum, unordered, streams = 1, window = 1;
static const char *added;
static struct sockaddr_storage local[4];
static int locals;

static void fail(const char *what)
{
	fprintf(stderr, "usrsctp_peer: %s: %s\n", what, strerror(errno));
	exit(1);
}

/* --- SHA-256 (FIPS 180-4) -------------------------------------------------------------------- */

struct sha256 {
	uint32_t h[8];
	uint8_t block[64];
	uint64_t size;
};

static uint32_t K[64];

static uint32_t root_fraction(int prime, int cube)	/* the first 32 bits of the root's fraction */
{
	uint64_t low = 0, high = (uint64_t)1 << 37;	/* the root, times 2^32 */

	while (high - low > 1) {
		uint64_t mid = low + (high - low) / 2;
		long double x = (long double)mid / 4294967296.0L;

		if ((cube ? x * x * x : x * x) <= prime)
			low = mid;
		else
			high = mid;
	}
	return (uint32_t)low;
}

static void sha256_start(struct sha256 *s)
{
	int n = 0, p, d;

	memset(s, 0, sizeof *s);
	for (p = 2; n < 64; p++) {
		for (d = 2; d * d <= p && p % d; d++)
			;
		if (d * d <= p)
			continue;
		if (n < 8)
			s->h[n] = root_fraction(p, 0);
		K[n++] = root_fraction(p, 1);
	}
}

#define ROR(x, n) ((x) >> (n) | (x) << (32 - (n)))

static void sha256_block(struct sha256 *s)
{
	uint32_t w[64], v[8], a, b;
	int i;

	for (i = 0; i < 16; i++)
		w[i] = (uint32_t)s->block[4 * i] << 24 | s->block[4 * i + 1] << 16 | s->block[4 * i + 2] << 8 |
		       s->block[4 * i + 3];
	for (; i < 64; i++)
		w[i] = w[i - 16] + w[i - 7] + (ROR(w[i - 15], 7) ^ ROR(w[i - 15], 18) ^ w[i - 15] >> 3) +
		       (ROR(w[i - 2], 17) ^ ROR(w[i - 2], 19) ^ w[i - 2] >> 10);
	memcpy(v, s->h, sizeof v);
	for (i = 0; i < 64; i++) {
		a = v[7] + (ROR(v[4], 6) ^ ROR(v[4], 11) ^ ROR(v[4], 25)) + ((v[4] & v[5]) ^ (~v[4] & v[6])) + K[i] + w[i];
		b = (ROR(v[0], 2) ^ ROR(v[0], 13) ^ ROR(v[0], 22)) + ((v[0] & v[1]) ^ (v[0] & v[2]) ^ (v[1] & v[2]));
		memmove(v + 1, v, 7 * sizeof *v);
		v[4] += a;
		v[0] = a + b;
	}
	for (i = 0; i < 8; i++)
		s->h[i] += v[i];
}

static void sha256_add(struct sha256 *s, const char *data, size_t size)
{
	while (size--) {
		s->block[s->size++ % 64] = (uint8_t)*data++;
		if (s->size % 64 == 0)
			sha256_block(s);
	}
}

static void sha256_print(struct sha256 *s)
{
	uint64_t bits = s->size * 8;
	char end[8];
	int i;

	sha256_add(s, "\x80", 1);
	while (s->size % 64 != 56)
		sha256_add(s, "", 1);
	for (i = 0; i < 8; i++)
		end[i] = (char)(bits >> (56 - 8 * i));
	sha256_add(s, end, 8);
	for (i = 0; i < 8; i++)
		printf("%08x", s->h[i]);
}

/* --- sockets --------------------------------------------------------------------------------- */

static socklen_t address(struct sockaddr_storage *to, const char *text, int port)
{
	struct sockaddr_in *v4 = (struct sockaddr_in *)to;
	struct sockaddr_in6 *v6 = (struct sockaddr_in6 *)to;

	memset(to, 0, sizeof *to);
	if (inet_pton(AF_INET, text, &v4->sin_addr) == 1) {
		v4->sin_family = AF_INET;
		v4->sin_port = htons(port);
		return sizeof *v4;
	}
	if (inet_pton(AF_INET6, text, &v6->sin6_addr) != 1) {
		fprintf(stderr, "usrsctp_peer: not an address: %s\n", text);
		exit(1);
	}
	v6->sin6_family = AF_INET6;
	v6->sin6_port = htons(port);
	return sizeof *v6;
}

static void ask_for_idata(struct socket *s)
{
	struct sctp_assoc_value value = { .assoc_id = SCTP_FUTURE_ASSOC, .assoc_value = 1 };
	int level = 2;

	if (usrsctp_setsockopt(s, IPPROTO_SCTP, SCTP_FRAGMENT_INTERLEAVE, &level, sizeof level) ||
	    usrsctp_setsockopt(s, IPPROTO_SCTP, SCTP_INTERLEAVING_SUPPORTED, &value, sizeof value))
		fail("SCTP_INTERLEAVING_SUPPORTED");
}

static void allow_resets(struct socket *s)
{
	struct sctp_assoc_value value = {
		.assoc_id = SCTP_FUTURE_ASSOC,
		.assoc_value = SCTP_ENABLE_RESET_STREAM_REQ | SCTP_ENABLE_RESET_ASSOC_REQ | SCTP_ENABLE_CHANGE_ASSOC_REQ,
	};

	if (usrsctp_setsockopt(s, IPPROTO_SCTP, SCTP_ENABLE_STREAM_RESET, &value, sizeof value))
		fail("SCTP_ENABLE_STREAM_RESET");
}

/* DATA only in packets with AUTH, under the known key number 1. */
static void ask_for_auth(struct socket *s)
{
	static const char key_bytes[] = "sctpify golden key";
	char hmac_room[sizeof(struct sctp_hmacalgo) + sizeof(uint16_t)];
	char key_room[sizeof(struct sctp_authkey) + sizeof key_bytes];
	struct sctp_hmacalgo *hmac = (struct sctp_hmacalgo *)hmac_room;
	struct sctp_authkey *key = (struct sctp_authkey *)key_room;
	struct sctp_authchunk chunk = { .sauth_chunk = 0 };
	struct sctp_authkeyid active = { .scact_assoc_id = SCTP_FUTURE_ASSOC, .scact_keynumber = 1 };

	memset(hmac_room, 0, sizeof hmac_room);
	hmac->shmac_number_of_idents = 1;
	hmac->shmac_idents[0] = SCTP_AUTH_HMAC_ID_SHA1;
	memset(key_room, 0, sizeof key_room);
	key->sca_assoc_id = SCTP_FUTURE_ASSOC;
	key->sca_keynumber = 1;
	key->sca_keylength = sizeof key_bytes - 1;
	memcpy(key->sca_key, key_bytes, sizeof key_bytes - 1);
	if (usrsctp_setsockopt(s, IPPROTO_SCTP, SCTP_AUTH_CHUNK, &chunk, sizeof chunk) ||
	    usrsctp_setsockopt(s, IPPROTO_SCTP, SCTP_HMAC_IDENT, hmac, sizeof *hmac + sizeof(uint16_t)) ||
	    usrsctp_setsockopt(s, IPPROTO_SCTP, SCTP_AUTH_KEY, key, sizeof *key + sizeof key_bytes - 1) ||
	    usrsctp_setsockopt(s, IPPROTO_SCTP, SCTP_AUTH_ACTIVE_KEY, &active, sizeof active))
		fail("AUTH");
}

/* As if DTLS were beneath. */
static void allow_zero_checksum(struct socket *s)
{
#ifdef SCTP_ACCEPT_ZERO_CHECKSUM
	uint32_t method = SCTP_EDMID_LOWER_LAYER_DTLS;

	if (usrsctp_setsockopt(s, IPPROTO_SCTP, SCTP_ACCEPT_ZERO_CHECKSUM, &method, sizeof method))
		fail("SCTP_ACCEPT_ZERO_CHECKSUM");
#else
	(void)s;
	fprintf(stderr, "usrsctp_peer: this libusrsctp knows no checksum of zero\n");
	exit(2);
#endif
}

static struct socket *open_socket(int family, int port)
{
	struct socket *s = usrsctp_socket(family, SOCK_STREAM, IPPROTO_SCTP, NULL, NULL, 0, NULL);
	struct sctp_initmsg init = { .sinit_num_ostreams = MAX_STREAMS, .sinit_max_instreams = MAX_STREAMS };
	struct sctp_udpencaps encaps;
	int i, on = 1, off = 0;

	if (!s)
		fail("socket");
	if (remote_udp) {
		memset(&encaps, 0, sizeof encaps);
		encaps.sue_address.ss_family = family;
		encaps.sue_port = htons(remote_udp);
		if (usrsctp_setsockopt(s, IPPROTO_SCTP, SCTP_REMOTE_UDP_ENCAPS_PORT, &encaps, sizeof encaps))
			fail("SCTP_REMOTE_UDP_ENCAPS_PORT");
	}
	if (idata)
		ask_for_idata(s);
	if (reconf)
		allow_resets(s);
	if (auth)
		ask_for_auth(s);
	if (zero_checksum)
		allow_zero_checksum(s);
	usrsctp_setsockopt(s, IPPROTO_SCTP, SCTP_INITMSG, &init, sizeof init);
	usrsctp_setsockopt(s, IPPROTO_SCTP, SCTP_NODELAY, &on, sizeof on);
	if (usrsctp_setsockopt(s, IPPROTO_SCTP, SCTP_RECVRCVINFO, &on, sizeof on))
		fail("SCTP_RECVRCVINFO");
	if (family == AF_INET6)
		usrsctp_setsockopt(s, IPPROTO_IPV6, IPV6_V6ONLY, &off, sizeof off);
	for (i = 0; i < locals; i++) {
		if (local[i].ss_family == AF_INET)
			((struct sockaddr_in *)&local[i])->sin_port = htons(port);
		else
			((struct sockaddr_in6 *)&local[i])->sin6_port = htons(port);
		if (usrsctp_bindx(s, (struct sockaddr *)&local[i], 1, SCTP_BINDX_ADD_ADDR))
			fail("bindx");
	}
	return s;
}

static void send_message(struct socket *s, const struct message *m)
{
	struct sctp_sendv_spa spa;

	memset(&spa, 0, sizeof spa);
	spa.sendv_flags = SCTP_SEND_SNDINFO_VALID | (limit ? SCTP_SEND_PRINFO_VALID : 0);
	spa.sendv_sndinfo.snd_sid = m->stream;
	spa.sendv_sndinfo.snd_flags = m->unordered ? SCTP_UNORDERED : 0;
	spa.sendv_prinfo.pr_policy = limit;
	spa.sendv_prinfo.pr_value = limit_value;
	if (usrsctp_sendv(s, m->data, m->size, NULL, 0, &spa, sizeof spa, SCTP_SENDV_SPA, 0) != (ssize_t)m->size)
		fail("send");
}

/* One whole message. 1: there is one; 0: the association ended by SHUTDOWN. */
static int receive_message(struct socket *s, struct message *m)
{
	m->size = 0;
	for (;;) {
		struct sctp_rcvinfo info;
		struct sockaddr_storage from;
		socklen_t from_size = sizeof from, info_size = sizeof info;
		unsigned type = 0;
		int flags = 0;
		ssize_t got = usrsctp_recvv(s, m->data + m->size, BUFFER - m->size, (struct sockaddr *)&from, &from_size,
					    &info, &info_size, &type, &flags);

		if (got < 0)
			fail("receive");
		if (got == 0)
			return 0;
		m->size += got;
		if (type == SCTP_RECVV_RCVINFO) {
			m->stream = info.rcv_sid;
			m->unordered = !!(info.rcv_flags & SCTP_UNORDERED);
		}
		if (flags & MSG_EOR)
			return 1;
	}
}

/* --- modes ----------------------------------------------------------------------------------- */

static int serve(int port, int back)
{
	struct sockaddr_storage any;
	struct socket *l = open_socket(locals ? local[0].ss_family : AF_INET6, port), *s;
	struct message m = { .data = malloc(BUFFER) };
	long long total = 0, messages = 0;
	uint8_t numbers[MAX_NUMBERS];
	struct sha256 digest;
	int i;

	sha256_start(&digest);
	if (!locals && usrsctp_bind(l, (struct sockaddr *)&any, address(&any, "::", port)))
		fail("bind");
	if (usrsctp_listen(l, 1))
		fail("listen");
	printf("listening\n");
	s = usrsctp_accept(l, NULL, NULL);
	if (!s)
		fail("accept");
	while (receive_message(s, &m)) {
		if (back) {
			send_message(s, &m);
		} else {
			sha256_add(&digest, m.data, m.size);
			if (messages < MAX_NUMBERS)
				numbers[messages] = (uint8_t)m.data[0];
		}
		total += m.size;
		messages++;
	}
	printf("%s %lld messages, %lld octets", back ? "echoed" : "received", messages, total);
	if (!back) {
		printf(", sha256 ");
		sha256_print(&digest);
		/* A message begins with its number times 31, modulo 256. */
		printf("\nnumbers");
		for (i = 0; i < messages && i < MAX_NUMBERS; i++)
			printf(" %d", numbers[i] * 223 % 256);
	}
	printf("\n");
	usrsctp_close(s);
	usrsctp_close(l);
	return 0;
}

static double now(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return t.tv_sec + t.tv_nsec / 1e9;
}

/* Message NUMBER: the octets (NUMBER * 31 + position * 7) mod 256, as in the other peers. */
static void content(struct message *m, long number, size_t size)
{
	size_t j;

	m->size = size;
	m->stream = number % streams;
	m->unordered = unordered;
	for (j = 0; j < size; j++)
		m->data[j] = (char)(number * 31 + j * 7);
}

/* Strikes out the number of GOT: the oldest one waiting on its stream, or any one if unordered. */
static int take_back(const struct message *got, struct message *want, char *waiting, long sent, size_t size)
{
	long n;

	for (n = 0; n < sent; n++) {
		if (!waiting[n] || n % streams != got->stream)
			continue;
		content(want, n, size);
		if (got->unordered == unordered && got->size == size && !memcmp(got->data, want->data, size)) {
			waiting[n] = 0;
			return 1;
		}
		if (!unordered)
			return 0;
	}
	return 0;
}

static void step(struct socket *s, int option, const void *value, socklen_t size, const char *what)
{
	if (usrsctp_setsockopt(s, IPPROTO_SCTP, option, value, size))
		fail(what);
	usleep(500000);
}

/* Streams 0 and 1 of both directions, three more to send on and two more to receive on. Not the whole association: the
 * library often stops sending afterwards, also when its peer is itself. */
static void reset_streams(struct socket *s)
{
	char room[sizeof(struct sctp_reset_streams) + 2 * sizeof(uint16_t)];
	struct sctp_reset_streams *both = (struct sctp_reset_streams *)room;
	struct sctp_add_streams more = { .sas_outstrms = 3 };

	memset(room, 0, sizeof room);
	both->srs_flags = SCTP_STREAM_RESET_INCOMING | SCTP_STREAM_RESET_OUTGOING;
	both->srs_number_streams = 2;
	both->srs_stream_list[1] = 1;
	step(s, SCTP_RESET_STREAMS, both, sizeof room, "SCTP_RESET_STREAMS");
	step(s, SCTP_ADD_STREAMS, &more, sizeof more, "SCTP_ADD_STREAMS");
	more.sas_outstrms = 0;
	more.sas_instrms = 2;
	step(s, SCTP_ADD_STREAMS, &more, sizeof more, "SCTP_ADD_STREAMS");
}

static void change_address(struct socket *s, int how)
{
	struct sockaddr_storage it;

	address(&it, added, 0);
	if (usrsctp_bindx(s, (struct sockaddr *)&it, 1, how))
		fail("bindx");
	usleep(500000);
}

static int client(const char *host, int port, long count, long size, int back)
{
	struct sockaddr_storage to;
	socklen_t to_size = address(&to, host, port);
	struct socket *s = open_socket(to.ss_family, 0);
	struct message m = { .data = malloc(BUFFER) }, got = { .data = malloc(BUFFER) };
	char *waiting = calloc(count + 1, 1);
	struct sha256 digest;
	long sent = 0, done = 0;
	int half_done = 0;
	double start, last, longest = 0;

	sha256_start(&digest);
	if (usrsctp_connect(s, (struct sockaddr *)&to, to_size))
		fail("connect");
	printf("connected\n");
	if (added)
		change_address(s, SCTP_BINDX_ADD_ADDR);
	start = last = now();
	while (done < count) {
		if (reconf && !half_done && done == count / 2) {
			reset_streams(s);
			half_done = 1;
		}
		for (; sent < (reconf && !half_done ? count / 2 : count) && sent - done < window; sent++) {
			content(&m, sent, size);
			sha256_add(&digest, m.data, size);
			if (gap > 0)
				usleep((useconds_t)(gap * 1e6));
			send_message(s, &m);
			waiting[sent] = 1;
		}
		if (!back) {
			done = sent;
			continue;
		}
		if (!receive_message(s, &got)) {
			fprintf(stderr, "usrsctp_peer: closed after %ld messages\n", done);
			return 1;
		}
		if (!take_back(&got, &m, waiting, sent, size)) {
			fprintf(stderr, "usrsctp_peer: a message of stream %d came back changed or out of order\n", got.stream);
			return 1;
		}
		if (now() - last > longest)
			longest = now() - last;
		last = now();
		done++;
	}
	if (added)
		change_address(s, SCTP_BINDX_REM_ADDR);
	usrsctp_shutdown(s, SHUT_WR);
	while (receive_message(s, &got))
		;
	printf("%ld messages of %ld octets%s in %.3f s: %.1f Mbit/s, longest silence %.3f s, sha256 ", count, size,
	       back ? " and back" : "", now() - start, count * size * 8 / (now() - start) / 1e6, longest);
	sha256_print(&digest);
	printf("\n");
	usrsctp_close(s);
	return 0;
}

static void short_timers(void)
{
	usrsctp_sysctl_set_sctp_rto_initial_default(200);
	usrsctp_sysctl_set_sctp_rto_min_default(50);
	usrsctp_sysctl_set_sctp_rto_max_default(2000);
	usrsctp_sysctl_set_sctp_path_rtx_max_default(1);
	usrsctp_sysctl_set_sctp_heartbeat_interval_default(500);
}

int main(int argc, char **argv)
{
	int c, udp = 0, tries, fast = 0, status = 2;

	setvbuf(stdout, NULL, _IOLBF, 0);
	while ((c = getopt(argc, argv, "u:U:s:w:l:g:A:T:R:oifraz")) != -1)
		switch (c) {
		case 'u': udp = atoi(optarg); break;
		case 'U': remote_udp = atoi(optarg); break;
		case 's': streams = atoi(optarg); break;
		case 'w': window = atoi(optarg); break;
		case 'g': gap = atof(optarg); break;
		case 'o': unordered = 1; break;
		case 'i': idata = 1; break;
		case 'f': fast = 1; break;
		case 'r': reconf = 1; break;
		case 'a': auth = 1; break;
		case 'z': zero_checksum = 1; break;
		case 'A': added = optarg; break;
		case 'T': limit = SCTP_PR_SCTP_TTL; limit_value = atoi(optarg); break;
		case 'R': limit = SCTP_PR_SCTP_RTX; limit_value = atoi(optarg); break;
		case 'l':
			if (locals == 4)
				return 2;
			address(&local[locals++], optarg, 0);
			break;
		default: return 2;
		}
	if (streams < 1 || streams > MAX_STREAMS)
		return 2;
	argc -= optind;
	argv += optind;
	usrsctp_init(udp, NULL, NULL);
	usrsctp_sysctl_set_sctp_blackhole(2);
	usrsctp_sysctl_set_sctp_sendspace(BUFFER);
	usrsctp_sysctl_set_sctp_recvspace(BUFFER);
	if (fast)
		short_timers();
	if (argc == 2 && (!strcmp(argv[0], "echo") || !strcmp(argv[0], "sink")))
		status = serve(atoi(argv[1]), !strcmp(argv[0], "echo"));
	else if (argc == 5 && (!strcmp(argv[0], "client") || !strcmp(argv[0], "send")))
		status = client(argv[1], atoi(argv[2]), atol(argv[3]), atol(argv[4]), !strcmp(argv[0], "client"));
	for (tries = 0; usrsctp_finish() && tries < 50; tries++)
		usleep(20000);
	return status;
}
