package node

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/url"
	"os"
	"time"
)

// staleSocketProbe is how long a socket file may take to show that somebody listens on it.
const staleSocketProbe = time.Second

// listeners are the sockets of a member, bound before anything else so that a port in use is said at once.
type listeners struct {
	clients, pages, peers, metrics, debug []net.Listener
}

func listen(cfg *Config) (*listeners, error) {
	l := &listeners{}
	groups := []struct {
		flag string
		urls []url.URL
		out  *[]net.Listener
	}{
		{"--listen-peer-urls", cfg.ListenPeerURLs, &l.peers},
		{"--listen-client-urls", cfg.ListenClientURLs, &l.clients},
		{"--listen-client-http-urls", cfg.ListenClientHTTPURLs, &l.pages},
		{"--listen-metrics-urls", cfg.ListenMetricsURLs, &l.metrics},
		{"--debug-listen-urls", cfg.ListenDebugURLs, &l.debug},
	}
	for _, g := range groups {
		for i := range g.urls {
			s, err := listenOn(&g.urls[i], socketOptions(cfg))
			if err != nil {
				return nil, errors.Join(fmt.Errorf("%s %s: %w", g.flag, g.urls[i].String(), err), l.close())
			}
			*g.out = append(*g.out, s)
		}
	}
	return l, nil
}

func listenOn(u *url.URL, options net.ListenConfig) (net.Listener, error) {
	if u.Scheme != "unix" {
		return options.Listen(context.Background(), "tcp", u.Host)
	}
	path := u.Host + u.Path
	s, err := net.Listen("unix", path)
	if err == nil || !staleSocket(path) {
		return s, err
	}
	if err := os.Remove(path); err != nil {
		return nil, err
	}
	return net.Listen("unix", path)
}

// staleSocket reports whether the path is a socket that a killed process has left: there is one, and nobody answers.
func staleSocket(path string) bool {
	info, err := os.Lstat(path)
	if err != nil || info.Mode()&os.ModeSocket == 0 {
		return false
	}
	conn, err := net.DialTimeout("unix", path, staleSocketProbe)
	if err != nil {
		return true
	}
	_ = conn.Close()
	return false
}

func (l *listeners) close() error {
	var errs []error
	for _, group := range [][]net.Listener{l.clients, l.pages, l.peers, l.metrics, l.debug} {
		for _, s := range group {
			if err := s.Close(); err != nil && !errors.Is(err, net.ErrClosed) {
				errs = append(errs, err)
			}
		}
	}
	return errors.Join(errs...)
}
