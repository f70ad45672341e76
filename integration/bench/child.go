package main

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
)

// readersFlag makes the program run as the readers' process of another one.
const readersFlag = "-readers"

// child is a readers' process.
type child struct {
	cmd     *exec.Cmd
	in      io.WriteCloser
	reports *bufio.Scanner
}

// startReaders starts a readers' process and waits until its watches are created.
func startReaders(ctx context.Context, order readersOrder) (*child, error) {
	self, err := os.Executable()
	if err != nil {
		return nil, err
	}
	// Readers are other machines in earnest. Here they get what the server and the probes leave of the processors: else
	// their own housekeeping, a collection of all that they have read, is what delays the requests.
	cmd := exec.CommandContext(ctx, "nice", "-n", "19", self, readersFlag)
	cmd.Stderr = os.Stderr
	in, err := cmd.StdinPipe()
	if err != nil {
		return nil, err
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	if err := cmd.Start(); err != nil {
		return nil, err
	}
	c := &child{cmd: cmd, in: in, reports: bufio.NewScanner(out)}
	if err := json.NewEncoder(in).Encode(order); err != nil {
		c.end()
		return nil, err
	}
	r, err := c.report()
	if err == nil && !r.Created {
		err = errors.New("readers: no watches")
	}
	if err != nil {
		c.end()
		return nil, err
	}
	return c, nil
}

// read lets held streams go on.
func (c *child) read() error {
	_, err := io.WriteString(c.in, "read\n")
	return err
}

// done waits for the end of the order.
func (c *child) done() (readersReport, error) {
	r, err := c.report()
	if err == nil && !r.Done {
		err = errors.New("readers: not done")
	}
	return r, err
}

func (c *child) report() (readersReport, error) {
	var r readersReport
	if !c.reports.Scan() {
		return r, errors.Join(errors.New("readers: the process has ended"), c.reports.Err())
	}
	if err := json.Unmarshal(c.reports.Bytes(), &r); err != nil {
		return r, err
	}
	if r.Failure != "" {
		return r, fmt.Errorf("readers: %s", r.Failure)
	}
	return r, nil
}

// end closes the process's input, which ends it, and waits for that.
func (c *child) end() {
	c.in.Close()
	_ = c.cmd.Process.Kill()
	_ = c.cmd.Wait()
}
