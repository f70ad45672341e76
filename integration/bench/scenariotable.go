package main

import (
	"fmt"
	"runtime"
	"strings"
	"time"

	"troupe/integration/harness"
)

// table renders the scenarios as markdown: one line for each figure, with the medians of the rounds, their ratio, and
// whether troupe reaches the target.
func (p plan) table(result *played) string {
	var b strings.Builder
	fmt.Fprintf(&b, "%s, %d CPUs, %s, %s/%s; scale %g, rounds: %d.\n\n", time.Now().Format("2006-01-02"),
		runtime.NumCPU(), runtime.Version(), runtime.GOOS, runtime.GOARCH, p.scale, p.rounds)
	b.WriteString("| scenario | troupe | etcd | ratio | target | |\n|---|---|---|---|---|---|\n")
	for _, s := range p.scenarios {
		fmt.Fprintf(&b, "| **(%s) %s** | | | | | |\n", s.letter, s.title)
		for _, kind := range p.kinds {
			if err := result.failures[s.letter][kind]; err != nil {
				text := strings.ReplaceAll(strings.Split(err.Error(), "\n")[0], "|", "/")
				fmt.Fprintf(&b, "| %s failed: %.200s | | | | | **missed** |\n", kind, text)
			}
		}
		troupe := medians(s, result.values[s.letter][harness.Troupe])
		etcd := medians(s, result.values[s.letter][harness.Etcd])
		for _, f := range s.figures {
			b.WriteString(f.line(troupe, etcd))
		}
	}
	return b.String()
}

// line renders one figure. Either side may be missing.
func (f figure) line(troupe, etcd values) string {
	show := func(v values) string {
		if v == nil {
			return "-"
		}
		return fmt.Sprintf("%.*f", f.digits, v[f.key])
	}
	ratio, met := "", ""
	if troupe != nil && etcd != nil && etcd[f.key] > 0 {
		ratio = fmt.Sprintf("%.2f", troupe[f.key]/etcd[f.key])
	}
	if f.target.met != nil && troupe != nil {
		met = metWord(f.target.met(troupe, etcd))
	}
	return fmt.Sprintf("| %s | %s | %s | %s | %s | %s |\n", f.title, show(troupe), show(etcd), ratio, f.target.text, met)
}

// medians gives the median of each figure over the rounds, nil without any round.
func medians(s scenario, rounds []values) values {
	if len(rounds) == 0 {
		return nil
	}
	all := values{}
	for _, f := range s.figures {
		samples := make([]float64, len(rounds))
		for i, v := range rounds {
			samples[i] = v[f.key]
		}
		_, all[f.key], _ = spreadOf(samples)
	}
	return all
}
