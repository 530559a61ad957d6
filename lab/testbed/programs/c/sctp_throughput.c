/* The client and the server of the thesis' throughput measurements (Appendix F), with their calls in their order: one-to-many
 * sockets, of which the client connects one and then names its peer with each message, and the server learns of the end by a
 * notification. The thesis waits 10 s before it closes; an orderly end delivers everything by itself.
 *
 *   sctp_throughput serve PORT
 *   sctp_throughput send LOCAL_PORT PORT ADDRESS COUNT LENGTH
 */
#include <arpa/inet.h>
#include <linux/sctp.h>
#include <netinet/in.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/select.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <unistd.h>

#define LONGEST 65536

static void fail(const char *what)
{
    perror(what);
    exit(1);
}

/* A one-to-many socket at this port of all addresses. */
static int open_at(const char *port)
{
    struct sockaddr_in local = { .sin_family = AF_INET, .sin_port = htons(atoi(port)) };
    int fd = socket(PF_INET, SOCK_SEQPACKET, IPPROTO_SCTP);
    if (fd < 0)
        fail("socket");
    if (bind(fd, (struct sockaddr *)&local, sizeof(local)) < 0)
        fail("bind");
    return fd;
}

static void tell(const char *what, long octets, const struct timeval *start, const struct timeval *end)
{
    double us = (end->tv_sec - start->tv_sec) * 1e6 + end->tv_usec - start->tv_usec;
    printf("%s: %ld octets, %g Mbit/s\n", what, octets, octets * 8 / us);
    fflush(stdout);
}

/* Counts what comes until the association ends. */
static void serve(const char *port)
{
    int fd = open_at(port);
    struct sctp_event_subscribe events = { .sctp_association_event = 1 };
    if (setsockopt(fd, IPPROTO_SCTP, SCTP_EVENTS, &events, sizeof(events)) < 0)
        fail("SCTP_EVENTS");
    if (listen(fd, 1) < 0)
        fail("listen");
    printf("listening\n");
    fflush(stdout);
    static char buffer[LONGEST];
    struct timeval first = { 0 }, last = { 0 };
    long octets = 0;
    for (;;) {
        fd_set set;
        FD_ZERO(&set);
        FD_SET(fd, &set);
        if (select(FD_SETSIZE, &set, NULL, NULL, NULL) != 1 || !FD_ISSET(fd, &set))
            fail("select");
        struct iovec part = { buffer, sizeof(buffer) };
        struct msghdr message = { .msg_iov = &part, .msg_iovlen = 1 };
        ssize_t got = recvmsg(fd, &message, MSG_WAITALL);
        if (got < 0)
            fail("recvmsg");
        gettimeofday(&last, NULL);
        if (!(message.msg_flags & MSG_NOTIFICATION)) {
            first = octets == 0 ? last : first;
            octets += got;
            continue;
        }
        union sctp_notification *note = (union sctp_notification *)buffer;
        if (note->sn_header.sn_type == SCTP_ASSOC_CHANGE && note->sn_assoc_change.sac_state == SCTP_SHUTDOWN_COMP)
            break;
    }
    tell("received", octets, &first, &last);
    close(fd);
}

static void transmit(char **words, long count, long length)
{
    int fd = open_at(words[0]);
    struct sockaddr_in remote = { .sin_family = AF_INET, .sin_port = htons(atoi(words[1])) };
    remote.sin_addr.s_addr = inet_addr(words[2]);
    if (connect(fd, (struct sockaddr *)&remote, sizeof(remote)) < 0)
        fail("connect");
    char *buffer = malloc(length);
    memset(buffer, 44, length);
    struct timeval start, end;
    gettimeofday(&start, NULL);
    for (long n = 0; n < count; n++) {
        struct iovec part = { buffer, length };
        struct msghdr message = { .msg_name = &remote, .msg_namelen = sizeof(remote), .msg_iov = &part, .msg_iovlen = 1 };
        if (sendmsg(fd, &message, 0) != length)
            fail("sendmsg");
    }
    gettimeofday(&end, NULL);
    tell("sent", count * length, &start, &end);
    close(fd);
}

int main(int argc, char **argv)
{
    if (argc == 3 && !strcmp(argv[1], "serve"))
        serve(argv[2]);
    else if (argc == 7 && !strcmp(argv[1], "send"))
        transmit(argv + 2, atol(argv[5]), atol(argv[6]));
    else
        return 2;
    return 0;
}
