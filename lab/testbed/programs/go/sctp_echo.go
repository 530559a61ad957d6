// An SCTP server and its client, by system calls alone: a static program, as 5G cores in Go are.
//
//	sctp_echo serve ADDRESS:PORT        echoes each message of one association after the other
//	sctp_echo ask ADDRESS:PORT COUNT    sends COUNT messages, each once the one before has come back
package main

import (
	"fmt"
	"net"
	"os"
	"strconv"
	"syscall"
)

func must(err error, what string) {
	if err != nil {
		fmt.Fprintf(os.Stderr, "sctp_echo: %s: %v\n", what, err)
		os.Exit(1)
	}
}

func main() {
	if len(os.Args) < 3 {
		fmt.Fprintln(os.Stderr, "usage: sctp_echo serve ADDRESS:PORT | sctp_echo ask ADDRESS:PORT COUNT")
		os.Exit(2)
	}
	resolved, err := net.ResolveTCPAddr("tcp4", os.Args[2])
	must(err, "address")
	address := &syscall.SockaddrInet4{Port: resolved.Port}
	copy(address.Addr[:], resolved.IP.To4())
	fd, err := syscall.Socket(syscall.AF_INET, syscall.SOCK_STREAM, syscall.IPPROTO_SCTP)
	must(err, "socket")
	if os.Args[1] == "serve" {
		serve(fd, address)
		return
	}
	count, err := strconv.Atoi(os.Args[3])
	must(err, "count")
	must(syscall.Connect(fd, address), "connect")
	room := make([]byte, 4096)
	for n := 0; n < count; n++ {
		sent := fmt.Sprintf("message %d", n)
		_, err := syscall.Write(fd, []byte(sent))
		must(err, "write")
		length, err := syscall.Read(fd, room)
		must(err, "read")
		if string(room[:length]) != sent {
			must(fmt.Errorf("sent %q, got %q", sent, room[:length]), "echo")
		}
	}
	fmt.Printf("%d messages came back\n", count)
}

func serve(fd int, address syscall.Sockaddr) {
	must(syscall.Bind(fd, address), "bind")
	must(syscall.Listen(fd, 8), "listen")
	fmt.Println("listening")
	room := make([]byte, 4096)
	for {
		peer, _, err := syscall.Accept(fd)
		must(err, "accept")
		for {
			length, err := syscall.Read(peer, room)
			if err != nil || length == 0 {
				break
			}
			_, err = syscall.Write(peer, room[:length])
			must(err, "write")
		}
		syscall.Close(peer)
	}
}
