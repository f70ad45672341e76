package main

import (
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"sync"
	"time"
)

// profileSeconds is how long a CPU profile is at most; it covers the interesting part of every scenario.
const profileSeconds = 10

// pprofFlag makes both servers offer profiles.
const pprofFlag = "--enable-pprof"

// cpuProfilePrefix begins the names of CPU profiles.
const cpuProfilePrefix = "cpu-"

// heapDelay is when the heap profile is taken: in the middle of it all.
const heapDelay = 2 * time.Second

// profile takes a CPU profile of the server from now on, and a heap profile in between, if profiles are wanted. The
// function that it gives waits for both, so it is called after the last figure that the wait could spoil.
func (t *trial) profile(name string) (finish func()) {
	if t.profiles == "" {
		return func() {}
	}
	var group sync.WaitGroup
	group.Go(func() { t.fetchProfile(fmt.Sprintf("profile?seconds=%d", profileSeconds), cpuProfilePrefix+name) })
	group.Go(func() {
		<-time.After(heapDelay)
		t.heap(name)
	})
	return group.Wait
}

// heap takes a heap profile now, if profiles are wanted.
func (t *trial) heap(name string) {
	if t.profiles != "" {
		t.fetchProfile("heap", "heap-"+name)
	}
}

// fetchProfile tells the person at the terminal when it fails: a scenario does not depend on it.
func (t *trial) fetchProfile(query, name string) {
	path := filepath.Join(t.profiles, name+".pprof")
	if err := download(t.server.URL+"/debug/pprof/"+query, path); err != nil {
		t.note("profile %s: %v", path, err)
	}
}

func download(url, path string) error {
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return err
	}
	answer, err := http.Get(url)
	if err != nil {
		return err
	}
	defer answer.Body.Close()
	if answer.StatusCode != http.StatusOK {
		return fmt.Errorf("%s", answer.Status)
	}
	file, err := os.Create(path)
	if err != nil {
		return err
	}
	if _, err := io.Copy(file, answer.Body); err != nil {
		file.Close()
		return err
	}
	return file.Close()
}
