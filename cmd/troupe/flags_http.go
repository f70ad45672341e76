package main

import (
	"fmt"
	"slices"
	"strings"

	"troupe/cmd/node"
)

// wordsValue is a comma-separated list of words, sorted and each once.
type wordsValue struct{ words *[]string }

func (v wordsValue) Set(s string) error {
	words := strings.Split(s, ",")
	slices.Sort(words)
	*v.words = slices.Compact(words)
	return nil
}

func (v wordsValue) String() string {
	if v.words == nil {
		return ""
	}
	return strings.Join(*v.words, ",")
}

// originsValue is "*" or a comma-separated list of origins: URLs with a scheme, a host and a port.
type originsValue struct{ origins *[]string }

func (v originsValue) Set(s string) error {
	if s == "*" {
		*v.origins = []string{s}
		return nil
	}
	urls, err := node.ParseURLs(s)
	if err != nil {
		return err
	}
	if len(urls) == 0 {
		return fmt.Errorf("%q names no origin: give \"*\" for all, or URLs such as http://dashboard.example:8080", s)
	}
	*v.origins = node.URLStrings(urls)
	return nil
}

func (v originsValue) String() string { return wordsValue{v.origins}.String() }
