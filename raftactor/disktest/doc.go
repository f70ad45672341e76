// Package disktest simulates a disk that keeps exactly what it promised to keep.
//
// A write is volatile until the file is synced, a name until its directory is synced. Crash takes the power away: of
// what is volatile any part may survive, down to single sectors and in no particular order, as a real disk's cache
// has it. Kill ends the process only: everything stays visible, but what was volatile still is. StopAt ends it in the
// middle of the nth operation. Break turns one named sync into nothing, to prove that it is needed. Everything random
// comes from the seed, so a failure replays.
//
//	d := disktest.New(seed)
//	log, err := raftactor.CreateLog(d, "/member/wal", meta)
//	...
//	d.Crash(seed) // every open file is dead now
//	log, recovered, err := raftactor.OpenLog(d, "/member/wal")
package disktest
