package main

import (
	"context"
	"fmt"
	"strconv"
	"strings"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"troupe/integration/harness"
)

const (
	valueBytes    = 256
	keySpace      = 100_000
	rangeKeys     = 10_000
	preloadOps    = 100 // operations in one transaction while preloading
	preloadPrefix = "range/"
	preloadLimit  = 2 * time.Minute
	singleKey     = "single"
)

// row is one load of the benchmark tool.
type row struct {
	name, title string
	// args are the tool's, without endpoints and total. Total is sized for two to five seconds on two slow cores.
	args  []string
	total int
	// targets are the greatest ratios to etcd that troupe may show, by column.
	targets map[string]float64
}

// The ratios to etcd that the rows have to reach, and not exceed.
const (
	putCPUTarget       = 0.6
	singleCPUTarget    = 0.7
	wholeCPUTarget     = 0.2
	hundredPutsP99Most = 1.0
)

// allRows lists the loads in the order in which they run: reads first, while the store is small and the same in every
// round.
func allRows() []row {
	clients := func(clients, conns int) []string {
		return []string{"--clients", strconv.Itoa(clients), "--conns", strconv.Itoa(conns)}
	}
	put := append([]string{"put"},
		"--key-space-size", strconv.Itoa(keySpace), "--sequential-keys=false", "--val-size", strconv.Itoa(valueBytes))
	with := func(parts ...[]string) (args []string) {
		for _, part := range parts {
			args = append(args, part...)
		}
		return args
	}
	end := clientv3.GetPrefixRangeEnd(preloadPrefix)
	cpu := func(ratio float64) map[string]float64 { return map[string]float64{cpuColumn: ratio} }
	return []row{
		{"range-linear", "linearizable range of one key, 100 clients",
			with([]string{"range", singleKey, "--consistency", "l"}, clients(100, 100)), 40_000, cpu(singleCPUTarget)},
		{"range-serial", "serializable range of one key, 100 clients",
			with([]string{"range", singleKey, "--consistency", "s"}, clients(100, 100)), 50_000, cpu(singleCPUTarget)},
		{"range-10k", "range of 10,000 keys of 256 bytes, 4 clients",
			with([]string{"range", preloadPrefix, end, "--consistency", "l"}, clients(4, 4)), 200, cpu(wholeCPUTarget)},
		{"lease-keepalive", "lease keep-alive, 100 clients",
			with([]string{"lease-keepalive"}, clients(100, 100)), 40_000, nil},
		{"txn-mixed", "read and write transactions, half and half, reads limited to 100 keys, 100 clients",
			with([]string{"txn-mixed", singleKey, "--limit", "100", "--key-space-size", "1000",
				"--val-size", strconv.Itoa(valueBytes)}, clients(100, 100)), 8_000, nil},
		// Long enough that the number of processors has followed the load (cmd/node/processors.go) in most pieces; the first
		// may still have all of them, from the row before.
		{"put-1", "put, 1 client", with(put, clients(1, 1)), 16_000, cpu(putCPUTarget)},
		{"put-100", "put, 100 clients", with(put, clients(100, 100)), 30_000,
			map[string]float64{cpuColumn: putCPUTarget, p99Column: hundredPutsP99Most}},
		{"put-1000", "put, 1,000 clients on 100 connections", with(put, clients(1000, 100)), 40_000, cpu(putCPUTarget)},
	}
}

// preload writes what the ranges read.
func preload(s *harness.Server) error {
	client, err := clientv3.New(clientv3.Config{Endpoints: []string{s.URL}})
	if err != nil {
		return err
	}
	defer client.Close()
	ctx, cancel := context.WithTimeout(context.Background(), preloadLimit)
	defer cancel()
	value := strings.Repeat("v", valueBytes)
	if _, err := client.Put(ctx, singleKey, value); err != nil {
		return err
	}
	for first := 0; first < rangeKeys; first += preloadOps {
		ops := make([]clientv3.Op, preloadOps)
		for i := range ops {
			ops[i] = clientv3.OpPut(fmt.Sprintf("%s%06d", preloadPrefix, first+i), value)
		}
		if _, err := client.Txn(ctx).Then(ops...).Commit(); err != nil {
			return err
		}
	}
	return nil
}
