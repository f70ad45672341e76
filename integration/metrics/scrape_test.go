package metrics

import (
	"bufio"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"strings"
	"testing"
	"time"

	"troupe/integration/harness"
)

// limit is for one request or one condition on a slow, busy machine.
const limit = 30 * time.Second

// page is one answer of /metrics.
type page struct {
	types map[string]string
	// values are by series: name and labels as they stand on the page.
	values map[string]float64
}

func scrape(t *testing.T, s *harness.Server) page {
	t.Helper()
	return scrapeURL(t, s.URL)
}

func scrapeURL(t *testing.T, url string) page {
	t.Helper()
	text, _ := get(t, url+"/metrics", nil)
	p, err := parse(text)
	if err != nil {
		t.Fatalf("%s/metrics: %v", url, err)
	}
	return p
}

// get gets one page and its headers; any status but 200 fails the test.
func get(t *testing.T, url string, header http.Header) (string, http.Header) {
	t.Helper()
	request, err := http.NewRequestWithContext(harness.Context(t, limit), http.MethodGet, url, nil)
	if err != nil {
		t.Fatal(err)
	}
	for key, values := range header {
		request.Header[key] = values
	}
	r, err := http.DefaultClient.Do(request)
	if err != nil {
		t.Fatalf("GET %s: %v", url, err)
	}
	defer r.Body.Close()
	body, err := io.ReadAll(r.Body)
	if err != nil || r.StatusCode != http.StatusOK {
		t.Fatalf("GET %s: %s, %v", url, r.Status, err)
	}
	return string(body), r.Header
}

// parse reads the text format.
func parse(text string) (page, error) {
	p := page{types: map[string]string{}, values: map[string]float64{}}
	lines := bufio.NewScanner(strings.NewReader(text))
	lines.Buffer(nil, 1<<20)
	for lines.Scan() {
		line := lines.Text()
		if rest, ok := strings.CutPrefix(line, "# TYPE "); ok {
			name, kind, _ := strings.Cut(rest, " ")
			p.types[name] = kind
			continue
		}
		if line == "" || strings.HasPrefix(line, "#") {
			continue
		}
		at := strings.LastIndexByte(line, ' ')
		if at < 0 {
			return page{}, fmt.Errorf("no value in %q", line)
		}
		value, err := strconv.ParseFloat(line[at+1:], 64)
		if err != nil {
			return page{}, fmt.Errorf("%q: %w", line, err)
		}
		if _, again := p.values[line[:at]]; again {
			return page{}, fmt.Errorf("%q is there twice", line[:at])
		}
		p.values[line[:at]] = value
	}
	return p, lines.Err()
}

// family is the metric that a series belongs to: a histogram has several names.
func (p page) family(series string) string {
	name, _, _ := strings.Cut(series, "{")
	if _, ok := p.types[name]; ok {
		return name
	}
	for _, part := range []string{"_bucket", "_sum", "_count"} {
		if base, ok := strings.CutSuffix(name, part); ok && p.types[base] != "" {
			return base
		}
	}
	return ""
}

// part is what a series of a histogram or summary tells: "bucket", "sum", "count"; "" for others.
func (p page) part(series string) string {
	name, _, _ := strings.Cut(series, "{")
	base := p.family(series)
	if kind := p.types[base]; kind != "histogram" && kind != "summary" {
		return ""
	}
	return strings.TrimPrefix(strings.TrimPrefix(name, base), "_")
}

// labels are a series' labels by name. Values with a comma or a quotation mark do not occur.
func labels(series string) map[string]string {
	out := map[string]string{}
	_, rest, found := strings.Cut(strings.TrimSuffix(series, "}"), "{")
	if !found {
		return out
	}
	for _, pair := range strings.Split(rest, ",") {
		name, value, _ := strings.Cut(pair, "=")
		out[name] = strings.Trim(value, `"`)
	}
	return out
}

// sum adds up the series of a metric that have these labels: name=value pairs.
func (p page) sum(name string, want ...string) float64 {
	total := 0.0
	for series, value := range p.values {
		if base, _, _ := strings.Cut(series, "{"); base != name {
			continue
		}
		have, fits := labels(series), true
		for _, pair := range want {
			key, value, _ := strings.Cut(pair, "=")
			fits = fits && have[key] == value
		}
		if fits {
			total += value
		}
	}
	return total
}
