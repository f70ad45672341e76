package gateway

import "time"

const (
	// clientsShownMax is how many connections and how many watch streams /debug/clients lists: those that hold the most.
	// More would be a list that nobody reads; the totals stand beside it.
	clientsShownMax = 200
	// clientWatchesShownMax is how many watches of one stream it lists, those first that are furthest behind.
	clientWatchesShownMax = 10
	// recentSpan is the least time between the two pictures kept for recent quantiles, which therefore cover up to twice
	// as much: long enough to hold some durations of an actor with little to do, short enough to be about now.
	recentSpan = 30 * time.Second
	// keyspaceDepthDefault and keyspaceTopDefault are what a report on the keys shows unless asked otherwise.
	keyspaceDepthDefault = 2
	keyspaceTopDefault   = 50
	// keyspaceWaitersMax bounds those who wait for another's report to be done: one is made at a time.
	keyspaceWaitersMax = 8
	// debugConnectionsMax bounds the connections of the debug ports together: some operators and scrapers.
	debugConnectionsMax = 256
)
