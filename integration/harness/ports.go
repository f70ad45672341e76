package harness

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"os"
	"path/filepath"
	"syscall"
)

// Ports come from below the kernel's ephemeral range, so that an outgoing connection never takes one between the
// moment it was found free and the moment the server listens on it.
const (
	portFirst    = 20000
	portLast     = 31999
	portTriesMax = 400
)

var errNoPort = errors.New("harness: no free port found")

// port is a reserved port of 127.0.0.1. The lock keeps other test processes away from it, also while the server on it
// is down between a kill and a restart.
type port struct {
	number int
	lock   *os.File
}

// reservePort finds a port that nobody listens on and nobody else has reserved.
func reservePort() (*port, error) {
	dir := filepath.Join(os.TempDir(), fmt.Sprintf("troupe-ports-%d", os.Getuid()))
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return nil, err
	}
	for range portTriesMax {
		number := portFirst + rand.IntN(portLast-portFirst+1)
		lock, err := os.OpenFile(filepath.Join(dir, fmt.Sprint(number)), os.O_CREATE|os.O_RDWR, 0o644)
		if err != nil {
			return nil, err
		}
		if syscall.Flock(int(lock.Fd()), syscall.LOCK_EX|syscall.LOCK_NB) != nil {
			lock.Close()
			continue
		}
		listener, err := net.Listen("tcp", fmt.Sprintf("127.0.0.1:%d", number))
		if err != nil {
			lock.Close()
			continue
		}
		listener.Close()
		return &port{number: number, lock: lock}, nil
	}
	return nil, errNoPort
}

func (p *port) release() { p.lock.Close() }

func (p *port) url() string { return fmt.Sprintf("http://127.0.0.1:%d", p.number) }
