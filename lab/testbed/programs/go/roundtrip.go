// A server that sends back what it received, and the client that checks it.
//
//	roundtrip serve ADDRESS            for ever; prints "listening" when ready
//	roundtrip send ADDRESS BYTES       once; exit status 0 when all bytes came back
//
// The client sends random bytes and closes its sending half. The server reads to that end, then answers
// with one line, the client's address as it sees it, and with the bytes. Built without cgo, so static: no
// library can be put between it and the kernel.
package main

import (
	"bufio"
	"bytes"
	"crypto/rand"
	"fmt"
	"io"
	"net"
	"os"
	"strconv"
)

func main() {
	var err error
	switch {
	case len(os.Args) == 3 && os.Args[1] == "serve":
		err = serve(os.Args[2])
	case len(os.Args) == 4 && os.Args[1] == "send":
		err = send(os.Args[2], os.Args[3])
	default:
		err = fmt.Errorf("usage: roundtrip serve ADDRESS | roundtrip send ADDRESS BYTES")
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "roundtrip:", err)
		os.Exit(1)
	}
}

func serve(address string) error {
	listener, err := net.Listen("tcp", address)
	if err != nil {
		return err
	}
	fmt.Println("listening")
	for {
		connection, err := listener.Accept()
		if err != nil {
			return err
		}
		go func() {
			defer connection.Close()
			if err := answer(connection); err != nil {
				fmt.Fprintln(os.Stderr, "roundtrip: serving:", err)
			}
		}()
	}
}

func answer(connection net.Conn) error {
	content, err := io.ReadAll(connection)
	if err != nil {
		return err
	}
	if _, err := fmt.Fprintln(connection, connection.RemoteAddr()); err != nil {
		return err
	}
	_, err = connection.Write(content)
	return err
}

func send(address, size string) error {
	bytesToSend, err := strconv.Atoi(size)
	if err != nil {
		return err
	}
	content := make([]byte, bytesToSend)
	if _, err := rand.Read(content); err != nil {
		return err
	}
	connection, err := net.Dial("tcp", address)
	if err != nil {
		return err
	}
	defer connection.Close()
	if _, err := connection.Write(content); err != nil {
		return err
	}
	if err := connection.(*net.TCPConn).CloseWrite(); err != nil {
		return err
	}
	reader := bufio.NewReader(connection)
	seen, err := reader.ReadString('\n')
	if err != nil {
		return err
	}
	back, err := io.ReadAll(reader)
	if err != nil {
		return err
	}
	if !bytes.Equal(content, back) {
		return fmt.Errorf("sent %d bytes, %d came back, and they differ", len(content), len(back))
	}
	fmt.Printf("address here %s, seen by the server %s", connection.LocalAddr(), seen)
	return nil
}
