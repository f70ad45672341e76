package main

import "fmt"

// target is what a figure of troupe has to reach. The zero value asks for nothing.
type target struct {
	text string
	// met judges troupe's values; etcd's stand beside them, and are nil when etcd was not played.
	met func(troupe, etcd values) bool
}

// shareOfEtcd asks for at most a share of etcd's value.
func shareOfEtcd(key string, share float64) target {
	return target{fmt.Sprintf("at most %.2f of etcd's", share), func(troupe, etcd values) bool {
		return etcd != nil && troupe[key] <= share*etcd[key]
	}}
}

// belowEtcd asks for less than etcd's value.
func belowEtcd(key string) target {
	return target{"below etcd's", func(troupe, etcd values) bool { return etcd != nil && troupe[key] < etcd[key] }}
}

// timesBefore asks for at most a multiple of another of troupe's own values.
func timesBefore(key, before string, factor float64) target {
	return target{fmt.Sprintf("at most %.2f times before", factor), func(troupe, _ values) bool {
		return troupe[key] <= factor*troupe[before]
	}}
}

// aboveBefore asks for at most so much more than another of troupe's own values, in the figure's unit.
func aboveBefore(key, before string, more float64) target {
	return target{fmt.Sprintf("at most %.0f above before", more), func(troupe, _ values) bool {
		return troupe[key] <= troupe[before]+more
	}}
}

// atMost asks for an absolute bound in the figure's unit.
func atMost(key string, bound float64) target {
	return target{fmt.Sprintf("at most %.0f", bound), func(troupe, _ values) bool { return troupe[key] <= bound }}
}
