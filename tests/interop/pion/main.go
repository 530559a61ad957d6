// An SCTP peer on pion/sctp, over UDP with port 9899 at both ends (RFC 6951).
//
//	pionpeer -local ADDRESS [OPTIONS] echo PORT
//	pionpeer -local ADDRESS [OPTIONS] client HOST PORT COUNT SIZE
//
// It sends the same content as the other peers and prints the same digest (tests/kernel-sctp/kernel_peer.py). The SCTP port of a server
// is what its client asks for; a client's own is 5000, the library's. The exit status is 0 only when the association ended
// by SHUTDOWN and nothing was lost.
package main

import (
	"bytes"
	"context"
	"crypto/sha256"
	"errors"
	"flag"
	"fmt"
	"io"
	"net"
	"net/netip"
	"os"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"github.com/pion/sctp"
)

const (
	udpPort = 9899
	// More than the longest message.
	buffer   = 4 << 20
	patience = 20 * time.Second
)

var (
	local     = flag.String("local", "", "our address")
	streams   = flag.Int("streams", 1, "use so many streams in turn")
	window    = flag.Int("window", 1, "client: so many messages at once under way")
	unordered = flag.Bool("unordered", false, "send without order")
	zero      = flag.Bool("zero-checksum", false, "take and send packets with a checksum of zero (RFC 9653)")
	idata     = flag.Bool("idata", false, "offer I-DATA")
)

// server answers where the last packet came from, for the library wants one peer.
type server struct {
	*net.UDPConn
	peer atomic.Pointer[netip.AddrPort]
}

func (s *server) Read(p []byte) (int, error) {
	n, from, err := s.ReadFromUDPAddrPort(p)
	if err == nil {
		s.peer.Store(&from)
	}

	return n, err
}

func (s *server) Write(p []byte) (int, error) {
	to := s.peer.Load()
	if to == nil {
		return 0, errors.New("no peer has been heard")
	}

	return s.WriteToUDPAddrPort(p, *to)
}

func options(conn net.Conn) []sctp.AssociationOption {
	return []sctp.AssociationOption{
		sctp.WithNetConn(conn),
		sctp.WithMaxReceiveBufferSize(buffer),
		sctp.WithMaxMessageSize(buffer),
		sctp.WithEnableZeroChecksum(*zero),
		sctp.WithEnableInterleaving(*idata),
	}
}

func udpAddress(host string) (*net.UDPAddr, error) {
	address, err := netip.ParseAddr(host)

	return net.UDPAddrFromAddrPort(netip.AddrPortFrom(address, udpPort)), err
}

// content is message NUMBER: the octets (NUMBER * 31 + position * 7) mod 256, as in the other peers.
func content(number, size int) []byte {
	message := make([]byte, size)
	for position := range message {
		message[position] = byte(number*31 + position*7)
	}

	return message
}

// isEnd tells the association's orderly end from all other errors.
func isEnd(err error) bool {
	return errors.Is(err, io.EOF) || errors.Is(err, net.ErrClosed)
}

// echo sends every message back on the stream it came by.
func echo() error {
	at, err := udpAddress(*local)
	if err != nil {
		return err
	}
	conn, err := net.ListenUDP("udp", at)
	if err != nil {
		return err
	}
	fmt.Println("listening")
	var shared []sctp.ServerOption
	for _, option := range options(&server{UDPConn: conn}) {
		shared = append(shared, option)
	}
	association, err := sctp.ServerWithOptions(shared...)
	if err != nil {
		return err
	}
	var all sync.WaitGroup
	var messages, octets atomic.Int64
	failures := make(chan error, 1<<16)
	for {
		stream, err := association.AcceptStream()
		if err != nil {
			break
		}
		stream.SetReliabilityParams(*unordered, sctp.ReliabilityTypeReliable, 0)
		all.Add(1)
		go func() {
			defer all.Done()
			message := make([]byte, buffer)
			for {
				n, kind, err := stream.ReadSCTP(message)
				if err == nil {
					_, err = stream.WriteSCTP(message[:n], kind)
				}
				if err != nil {
					failures <- err

					return
				}
				messages.Add(1)
				octets.Add(int64(n))
			}
		}()
	}
	all.Wait()
	close(failures)
	for err := range failures {
		if !isEnd(err) {
			return err
		}
	}
	fmt.Printf("echoed %d messages, %d octets\n", messages.Load(), octets.Load())

	return nil
}

// back is a message that came back, or why none does.
type back struct {
	stream  int
	message []byte
	err     error
}

// takeBack strikes out the number of what came back: the oldest one waiting on its stream, or any one if unordered.
func takeBack(got back, waiting map[int][]int, size int) error {
	queue := waiting[got.stream]
	for place, number := range queue {
		if bytes.Equal(content(number, size), got.message) {
			waiting[got.stream] = append(queue[:place:place], queue[place+1:]...)

			return nil
		}
		if !*unordered {
			break
		}
	}

	return fmt.Errorf("a message of stream %d came back changed or out of order", got.stream)
}

// client sends messages, and compares every octet that comes back.
func client(host string, count, size int) error {
	from, err := udpAddress(*local)
	if err != nil {
		return err
	}
	to, err := udpAddress(host)
	if err != nil {
		return err
	}
	conn, err := net.DialUDP("udp", from, to)
	if err != nil {
		return err
	}
	var shared []sctp.ClientOption
	for _, option := range options(conn) {
		shared = append(shared, option)
	}
	association, err := sctp.ClientWithOptions(shared...)
	if err != nil {
		return err
	}
	fmt.Println("connected")
	start := time.Now()
	arrived := make(chan back, *window)
	var open []*sctp.Stream
	for id := range *streams {
		stream, err := association.OpenStream(uint16(id), sctp.PayloadTypeWebRTCBinary)
		if err != nil {
			return err
		}
		stream.SetReliabilityParams(*unordered, sctp.ReliabilityTypeReliable, 0)
		open = append(open, stream)
		go func() {
			message := make([]byte, buffer)
			for {
				n, err := stream.Read(message)
				arrived <- back{id, bytes.Clone(message[:n]), err}
				if err != nil {
					return
				}
			}
		}()
	}
	waiting, digest := map[int][]int{}, sha256.New()
	for sent, done := 0, 0; done < count; done++ {
		for ; sent < count && sent-done < *window; sent++ {
			message := content(sent, size)
			digest.Write(message)
			if _, err := open[sent%*streams].Write(message); err != nil {
				return err
			}
			waiting[sent%*streams] = append(waiting[sent%*streams], sent)
		}
		select {
		case got := <-arrived:
			if got.err != nil {
				return fmt.Errorf("closed after %d messages: %w", done, got.err)
			}
			if err := takeBack(got, waiting, size); err != nil {
				return err
			}
		case <-time.After(patience):
			return fmt.Errorf("nothing came back for %v, after %d messages", patience, done)
		}
	}
	// Nobody reads any more.
	go func() {
		for range arrived {
		}
	}()
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	if err := association.Shutdown(ctx); err != nil {
		return fmt.Errorf("SHUTDOWN: %w", err)
	}
	fmt.Printf("%d messages of %d octets and back in %v, sha256 %x\n", count, size, time.Since(start), digest.Sum(nil))

	return nil
}

func run(words []string) error {
	switch {
	case len(words) == 2 && words[0] == "echo":
		return echo()
	case len(words) == 5 && words[0] == "client":
		count, err := strconv.Atoi(words[3])
		if err != nil {
			return err
		}
		size, err := strconv.Atoi(words[4])
		if err != nil {
			return err
		}

		return client(words[1], count, size)
	default:
		return errors.New("usage: pionpeer -local ADDRESS [OPTIONS] echo PORT | client HOST PORT COUNT SIZE")
	}
}

func main() {
	flag.Parse()
	if err := run(flag.Args()); err != nil {
		fmt.Fprintln(os.Stderr, "pionpeer:", err)
		os.Exit(1)
	}
}
