// Calls on SCTP sockets that Python does not have: several messages at once, and pointers that are none.
//
//     batches serve PORT          answers what arrives with one message, then takes four by one call
//     batches ask ADDRESS PORT    sends 16 messages of 60,000 octets by one call
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <errno.h>
#include <netinet/in.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/uio.h>
#include <unistd.h>

#define COUNT 16
#define LENGTH 60000

static char room[COUNT][LENGTH];

static int fail(const char *what) {
    perror(what);
    return 1;
}

static struct mmsghdr *messages(size_t length) {
    static struct mmsghdr list[COUNT];
    static struct iovec parts[COUNT];
    for (int n = 0; n < COUNT; n++) {
        parts[n] = (struct iovec){room[n], length};
        list[n].msg_hdr.msg_iov = &parts[n];
        list[n].msg_hdr.msg_iovlen = 1;
    }
    return list;
}

static const char *error(int result) { return result < 0 ? strerrorname_np(errno) : "none"; }

static int serve(int fd, struct sockaddr_in *address) {
    if (bind(fd, (void *)address, sizeof *address) || listen(fd, 4)) return fail("listen");
    puts("listening");
    fflush(stdout);
    struct sockaddr_in peer;
    socklen_t length = sizeof peer;
    printf("getsockname %s", error(getsockname(fd, NULL, &length)));
    int accepted = accept(fd, (void *)&peer, &length);
    if (accepted < 0) return fail("accept");
    printf(", read of nothing %zd", read(accepted, room, 0));
    sleep(1); // The sender's buffer is full by now.
    size_t octets = 0;
    for (ssize_t got; octets < (size_t)COUNT * LENGTH; octets += got)
        if ((got = recv(accepted, room[0], LENGTH, 0)) <= 0) return fail("recv");
    for (int n = 0; n < 4; n++)
        if (send(accepted, "now", 3, 0) != 3) return fail("send");
    int taken = recvmmsg(accepted, messages(LENGTH), 4, 0, NULL);
    printf(", %zu octets, %d messages by one call\n", octets, taken);
    fflush(stdout);
    return 0;
}

static int ask(int fd, struct sockaddr_in *address) {
    if (connect(fd, (void *)address, sizeof *address)) return fail("connect");
    printf("%d sent by one call", sendmmsg(fd, messages(LENGTH), COUNT, 0));
    for (int n = 0; n < 4; n++)
        if (recv(fd, room[0], LENGTH, 0) != 3) return fail("recv");
    for (int n = 0; n < 4; n++, usleep(100000))
        if (send(fd, "late", 4, 0) != 4) return fail("send");
    printf(", read %zd\n", read(fd, room[0], 10));
    return 0;
}

int main(int count, char **words) {
    int fd = socket(AF_INET, SOCK_STREAM, IPPROTO_SCTP);
    if (fd < 0) return fail("socket");
    struct sockaddr_in address = {.sin_family = AF_INET};
    address.sin_port = htons(atoi(words[count - 1]));
    if (count == 4) inet_pton(AF_INET, words[2], &address.sin_addr);
    return count == 4 ? ask(fd, &address) : serve(fd, &address);
}
