// An unmodified program with SCTP sockets, measured by `./x bench sockets`. Its command line and output are those of usrsctp_bench.c.
//
//     sctp_bench receive PORT                       prints "listening", then "BYTES MICROSECONDS"
//     sctp_bench send ADDRESS PORT SECONDS SIZE     messages of SIZE bytes for SECONDS
//     sctp_bench serve PORT                         prints "listening"; sends every message back, for ever
//     sctp_bench ping ADDRESS PORT COUNT SIZE       prints each round trip in microseconds
//     sctp_bench connects ADDRESS PORT COUNT        connects and closes; prints "COUNT MICROSECONDS"
#include <arpa/inet.h>
#include <netinet/in.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#define SIZE_MAX_BYTES (1 << 18)

static char room[SIZE_MAX_BYTES];

static void must(int holds, const char *what) {
    if (!holds) {
        perror(what);
        exit(1);
    }
}

static double now_us(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return t.tv_sec * 1e6 + t.tv_nsec / 1e3;
}

static int open_socket(void) {
    int fd = socket(AF_INET, SOCK_STREAM, IPPROTO_SCTP);
    must(fd >= 0, "socket");
    return fd;
}

static int listening(const char *port) {
    int fd = open_socket();
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_port = htons(atoi(port))};
    must(bind(fd, (void *)&address, sizeof address) == 0, "bind");
    must(listen(fd, 64) == 0, "listen");
    puts("listening");
    fflush(stdout);
    return fd;
}

static int connected(char **words) {
    int fd = open_socket();
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_port = htons(atoi(words[3]))};
    inet_pton(AF_INET, words[2], &address.sin_addr);
    must(connect(fd, (void *)&address, sizeof address) == 0, "connect");
    return fd;
}

static void receive(const char *port) {
    int fd = accept(listening(port), NULL, NULL);
    must(fd >= 0, "accept");
    double first = 0, last = 0;
    unsigned long long bytes = 0;
    for (ssize_t length; (length = recv(fd, room, sizeof room, 0)) > 0; bytes += length) {
        last = now_us();
        if (bytes == 0) first = last;
    }
    printf("%llu %.0f\n", bytes, last - first);
}

static void send_for(char **words) {
    int fd = connected(words);
    double end = now_us() + atof(words[4]) * 1e6;
    size_t size = atoi(words[5]);
    // The clock is read once for several messages.
    while (now_us() < end)
        for (int n = 0; n < 16; n++) must(send(fd, room, size, 0) == (ssize_t)size, "send");
    close(fd);
}

static void serve(const char *port) {
    int listener = listening(port);
    for (;;) {
        int fd = accept(listener, NULL, NULL);
        must(fd >= 0, "accept");
        for (ssize_t length; (length = recv(fd, room, sizeof room, 0)) > 0;)
            if (send(fd, room, length, MSG_NOSIGNAL) != length) break;
        close(fd);
    }
}

static void ping(char **words) {
    int fd = connected(words), count = atoi(words[4]);
    ssize_t size = atoi(words[5]);
    for (int n = 0; n < count; n++) {
        double begun = now_us();
        must(send(fd, room, size, 0) == size, "send");
        must(recv(fd, room, sizeof room, 0) == size, "recv");
        printf("%.1f\n", now_us() - begun);
    }
}

static void connects(char **words) {
    int count = atoi(words[4]);
    double begun = now_us();
    for (int n = 0; n < count; n++) close(connected(words));
    printf("%d %.0f\n", count, now_us() - begun);
}

int main(int count, char **words) {
    const char *mode = count > 2 ? words[1] : "";
    if (!strcmp(mode, "receive")) receive(words[2]);
    else if (!strcmp(mode, "serve")) serve(words[2]);
    else if (!strcmp(mode, "send") && count == 6) send_for(words);
    else if (!strcmp(mode, "ping") && count == 6) ping(words);
    else if (!strcmp(mode, "connects") && count == 5) connects(words);
    else {
        fputs("usage: see the head of sctp_bench.c\n", stderr);
        return 2;
    }
    return 0;
}
