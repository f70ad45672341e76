package gateway

import (
	"bytes"
	"crypto/rand"
	_ "embed" // the pages
	"fmt"
	"html/template"
	"net/http"
	"strings"
)

// The pages are one file each, with style and script inside: whoever debugs a member may have no way to the internet.
var (
	//go:embed debugactors.html
	actorsHTML string
	//go:embed debugclients.html
	clientsHTML string

	actorsPage  = parsePage("actors", actorsHTML)
	clientsPage = parsePage("clients", clientsHTML)
)

// page is what a template gets.
type page struct {
	// Nonce lets exactly this answer's script and style run.
	Nonce string
	View  any
}

func parsePage(name, text string) *template.Template {
	return template.Must(template.New(name).Funcs(template.FuncMap{
		"spell": spell, "rate": perSecond, "size": spellBytes, "message": messageName,
	}).Parse(text))
}

// servePage writes a page that may load nothing and run nothing but what it brings along. All names in it are escaped
// by the template, and by the script, which only ever sets text.
func servePage(w http.ResponseWriter, t *template.Template, view any) {
	p := page{Nonce: rand.Text(), View: view}
	var body bytes.Buffer
	if err := t.Execute(&body, &p); err != nil {
		http.Error(w, err.Error(), http.StatusInternalServerError)
		return
	}
	h := w.Header()
	h.Set("Content-Type", "text/html; charset=utf-8")
	h.Set("Content-Security-Policy", fmt.Sprintf("default-src 'none'; script-src 'nonce-%[1]s'; style-src 'nonce-%[1]s'; "+
		"connect-src 'self'; img-src data:; base-uri 'none'; form-action 'none'; frame-ancestors 'none'", p.Nonce))
	h.Set("X-Content-Type-Options", "nosniff")
	h.Set("X-Frame-Options", "DENY")
	h.Set("Referrer-Policy", "no-referrer")
	_, _ = w.Write(body.Bytes())
}

// messageName shortens the name of a message type: its package says no more than the actor's name.
func messageName(name string) string {
	return name[strings.LastIndexByte(name, '.')+1:]
}

// spellBytes writes a size for people.
func spellBytes(n int64) string {
	units := []string{"B", "KiB", "MiB", "GiB", "TiB"}
	value, unit := float64(n), 0
	for value >= 1024 && unit < len(units)-1 {
		value, unit = value/1024, unit+1
	}
	if unit == 0 || value >= 100 {
		return fmt.Sprintf("%.0f %s", value, units[unit])
	}
	return fmt.Sprintf("%.1f %s", value, units[unit])
}
