package node

import (
	"net"
	"net/url"
	"path/filepath"
	"strings"
	"testing"
)

func TestListen_PortInUseNamesFlagAndAddress(t *testing.T) {
	taken, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer taken.Close()
	cfg := Default()
	cfg.ListenPeerURLs = mustURLs("http://127.0.0.1:0")
	cfg.ListenClientURLs = mustURLs("http://" + taken.Addr().String())
	names := func(flag string) {
		t.Helper()
		_, err := listen(&cfg)
		if err == nil {
			t.Fatal("two listeners on one port")
		}
		for _, want := range []string{flag, taken.Addr().String()} {
			if !strings.Contains(err.Error(), want) {
				t.Errorf("error %q does not name %q", err, want)
			}
		}
	}
	names("--listen-client-urls")
	cfg.ListenClientURLs, cfg.ListenDebugURLs = mustURLs("http://127.0.0.1:0"), cfg.ListenClientURLs
	names("--debug-listen-urls")
}

func TestListen_SocketFileOfAKilledProcessIsReplacedALiveOneIsNot(t *testing.T) {
	u := &url.URL{Scheme: "unix", Path: filepath.Join(t.TempDir(), "client.sock")}
	first, err := listenOn(u, net.ListenConfig{})
	if err != nil {
		t.Fatal(err)
	}
	if second, err := listenOn(u, net.ListenConfig{}); err == nil {
		second.Close()
		t.Error("a live socket was taken over")
	}
	first.(*net.UnixListener).SetUnlinkOnClose(false)
	first.Close()
	again, err := listenOn(u, net.ListenConfig{})
	if err != nil {
		t.Fatalf("stale socket: %v", err)
	}
	again.Close()
}
