package actors_test

import (
	"errors"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"unicode/utf8"
)

// The rules about sizes. The reasons are in the style guide: a reader holds one concept per file and one screen per
// function in the head.
const (
	fileLinesMax     = 800
	functionLinesMax = 70
	lineColumnsMax   = 120
)

// longFunctions are the functions that may be longer, each with a reason: "path: receiver.name" -> why.
var longFunctions = map[string]string{}

// module is the import path of this repository.
const module = "troupe"

// protoactor is the library that only package actors may import, and only its actor package.
const protoactor = "github.com/asynkron/protoactor-go"

// rooms are the packages of the actors. They import actors, proto and outside libraries.
var rooms = []string{"raftactor", "storeactor", "watchactor", "leaseactor", "authactor"}

// protoactorBanned are names of the library that are broken or break our rules, with what to use instead.
var protoactorBanned = map[string]string{
	"NewFuture":                     "put an actors.Reply into the message",
	"RequestFuture":                 "put an actors.Reply into the message",
	"StopFuture":                    "wait on the mailbox's own done channel",
	"PoisonFuture":                  "wait on the mailbox's own done channel",
	"Stash":                         "keep what must wait in the behaviour's state",
	"SetReceiveTimeout":             "use Self.After",
	"ReenterAfter":                  "let the answer come back as a message",
	"Bounded":                       "use the mailbox of this package: the library's spins when it is full",
	"BoundedDropping":               "use the Drop policy",
	"Unbounded":                     "use the mailbox of this package: every mailbox has a bound",
	"UnboundedLockfree":             "use the mailbox of this package: every mailbox has a bound",
	"UnboundedPriority":             "use Lanes",
	"UnboundedPriorityMpsc":         "use Lanes",
	"MessageBatch":                  "use the Batch policy",
	"NewSynchronizedDispatcher":     "use actorstest.Stepper",
	"WithReceiverMiddleware":        "count in the mailbox",
	"WithContextDecorator":          "count in the mailbox",
	"WithMetricProviders":           "use System.Collector",
	"WithDefaultPrometheusProvider": "use System.Collector",
}

// source is one file of the module, with its path from the module's root.
type source struct {
	path string
	text string
}

func (s source) generated() bool {
	head, _, _ := strings.Cut(s.text, "\npackage ")
	return strings.HasSuffix(s.path, ".pb.go") || strings.HasSuffix(s.path, ".pb.gw.go") ||
		strings.Contains(head, "// Code generated ") && strings.Contains(head, "DO NOT EDIT.")
}

// rule gives what is wrong with a file, one text per finding, each with the remedy.
type rule func(s source) []string

var rules = map[string]rule{
	"imports":    checkImports,
	"protoactor": checkProtoactor,
	"size":       checkSize,
	"functions":  checkFunctions,
	"name":       checkName,
	"marks":      checkMarks,
	"headings":   checkHeadings,
}

// TestLayering enforces who may import whom, and the sizes that keep the code readable, for the whole module.
func TestLayering(t *testing.T) {
	files := readModule(t, "..")
	if len(files) < 20 {
		t.Fatalf("found only %d files; the test must run in the module's tree", len(files))
	}
	for name, check := range rules {
		t.Run(name, func(t *testing.T) {
			for _, f := range files {
				for _, finding := range check(f) {
					t.Errorf("%s: %s", f.path, finding)
				}
			}
		})
	}
}

// readModule reads every text file that the rules concern.
func readModule(t *testing.T, root string) []source {
	t.Helper()
	var files []source
	err := filepath.WalkDir(root, func(p string, d fs.DirEntry, err error) error {
		if errors.Is(err, fs.ErrNotExist) {
			return nil // somebody is at work here
		}
		if err != nil {
			return err
		}
		rel, err := filepath.Rel(root, p)
		if err != nil {
			return err
		}
		rel = filepath.ToSlash(rel)
		if d.IsDir() {
			hidden := strings.HasPrefix(d.Name(), ".") && rel != "."
			if hidden || rel == "deps" || rel == "bin" || d.Name() == "testdata" || d.Name() == "node_modules" {
				return fs.SkipDir
			}
			return nil
		}
		switch path.Ext(rel) {
		case ".go", ".md", ".proto":
		default:
			if d.Name() != "Justfile" {
				return nil
			}
		}
		text, err := os.ReadFile(p)
		if errors.Is(err, fs.ErrNotExist) {
			return nil
		}
		files = append(files, source{rel, string(text)})
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return files
}

// within reports whether an import path or file path lies in the package or below it.
func within(p, root string) bool { return p == root || strings.HasPrefix(p, root+"/") }

func importsOf(s source) (imports []string, finding string) {
	f, err := parser.ParseFile(token.NewFileSet(), s.path, s.text, parser.ImportsOnly)
	if err != nil {
		return nil, fmt.Sprintf("does not parse: %v; fix the syntax", err)
	}
	for _, i := range f.Imports {
		p, err := strconv.Unquote(i.Path.Value)
		if err != nil {
			return nil, fmt.Sprintf("import %s is malformed; fix the syntax", i.Path.Value)
		}
		imports = append(imports, p)
	}
	return imports, ""
}

// checkImports enforces the picture of the rooms.
func checkImports(s source) (findings []string) {
	if path.Ext(s.path) != ".go" {
		return nil
	}
	imports, broken := importsOf(s)
	if broken != "" {
		return []string{broken}
	}
	for _, p := range imports {
		if f := checkImport(s.path, p); f != "" {
			findings = append(findings, f)
		}
	}
	return findings
}

func checkImport(file, imported string) string {
	room, _, _ := strings.Cut(file, "/")
	if within(imported, protoactor) {
		switch {
		case path.Dir(file) != "actors":
			return fmt.Sprintf("imports %s; only package actors may: use actors.Spawn, actors.Ref and actors.Reply",
				imported)
		case imported != protoactor+"/actor":
			return fmt.Sprintf("imports %s; only the library's actor package is sound: write what you need in actors",
				imported)
		}
		return ""
	}
	isRoom := slices.Contains(rooms, room)
	if isRoom && within(imported, "google.golang.org/grpc") {
		return fmt.Sprintf("imports %s; rooms do not know the wire: return an error of your own, and let gateway map it",
			imported)
	}
	if !within(imported, module) {
		return ""
	}
	ours := strings.TrimPrefix(strings.TrimPrefix(imported, module), "/")
	own := within(ours, room)
	switch {
	case isRoom && !own && !within(ours, "actors") && !within(ours, "proto"):
		return fmt.Sprintf("imports %s; a room imports only actors and proto: declare the small interface you need here "+
			"and let cmd/node pass the other room's client in", imported)
	case room == "proto" && !own:
		return fmt.Sprintf("imports %s; proto imports nothing of ours: move the type here or the code there", imported)
	case room == "actors" && !own:
		return fmt.Sprintf("imports %s; the runtime knows no room: pass what it needs as a value or an interface",
			imported)
	case within(ours, "cmd") && room != "cmd" && room != "integration":
		return fmt.Sprintf("imports %s; cmd assembles the others and is imported by none: take what you need as a "+
			"parameter", imported)
	case within(ours, "integration") && room != "integration":
		return fmt.Sprintf("imports %s; integration holds tests only: move shared code into the package it is about",
			imported)
	}
	return ""
}

// checkProtoactor enforces which names of the library are used.
func checkProtoactor(s source) (findings []string) {
	if path.Ext(s.path) != ".go" || path.Dir(s.path) != "actors" || !strings.Contains(s.text, protoactor+"/actor\"") {
		return nil
	}
	files := token.NewFileSet()
	f, err := parser.ParseFile(files, s.path, s.text, parser.SkipObjectResolution)
	if err != nil {
		return nil // reported by the imports rule
	}
	ast.Inspect(f, func(n ast.Node) bool {
		sel, ok := n.(*ast.SelectorExpr)
		if !ok {
			return true
		}
		line := files.Position(sel.Pos()).Line
		if instead, banned := protoactorBanned[sel.Sel.Name]; banned {
			findings = append(findings, fmt.Sprintf("line %d uses the library's %s: %s", line, sel.Sel.Name, instead))
		}
		on, ok := sel.X.(*ast.SelectorExpr)
		if ok && on.Sel.Name == "EventStream" && sel.Sel.Name == "Subscribe" {
			findings = append(findings, fmt.Sprintf("line %d subscribes to the library's event stream, which runs in the "+
				"sender's goroutine: use Spec.Stopped or the log", line))
		}
		return true
	})
	return findings
}

// checkSize enforces the length of files and lines.
func checkSize(s source) (findings []string) {
	if path.Ext(s.path) != ".go" || s.generated() {
		return nil
	}
	lines := strings.Split(strings.TrimSuffix(s.text, "\n"), "\n")
	if len(lines) > fileLinesMax {
		findings = append(findings, fmt.Sprintf("has %d lines, at most %d are allowed: split it by concept, one file each",
			len(lines), fileLinesMax))
	}
	for i, l := range lines {
		if strings.HasPrefix(l, "//go:") {
			continue // directives cannot be wrapped
		}
		if n := utf8.RuneCountInString(l); n > lineColumnsMax {
			findings = append(findings, fmt.Sprintf("line %d has %d columns, at most %d are allowed (a tab counts as one): "+
				"wrap it", i+1, n, lineColumnsMax))
		}
	}
	return findings
}

// checkFunctions enforces the length of functions.
func checkFunctions(s source) (findings []string) {
	if path.Ext(s.path) != ".go" || s.generated() {
		return nil
	}
	files := token.NewFileSet()
	f, err := parser.ParseFile(files, s.path, s.text, parser.SkipObjectResolution)
	if err != nil {
		return nil // reported by the imports rule
	}
	for _, d := range f.Decls {
		fn, ok := d.(*ast.FuncDecl)
		if !ok {
			continue
		}
		n := files.Position(fn.End()).Line - files.Position(fn.Pos()).Line + 1
		name := functionName(fn)
		if _, allowed := longFunctions[s.path+": "+name]; n > functionLinesMax && !allowed {
			findings = append(findings, fmt.Sprintf("%s has %d lines, at most %d are allowed: give its steps names of "+
				"their own, or add it to longFunctions in actors/layering_test.go with a reason",
				name, n, functionLinesMax))
		}
	}
	return findings
}

func functionName(fn *ast.FuncDecl) string {
	if fn.Recv == nil || len(fn.Recv.List) == 0 {
		return fn.Name.Name
	}
	of := fn.Recv.List[0].Type
	for {
		switch t := of.(type) {
		case *ast.StarExpr:
			of = t.X
		case *ast.IndexExpr:
			of = t.X
		case *ast.IndexListExpr:
			of = t.X
		case *ast.Ident:
			return t.Name + "." + fn.Name.Name
		default:
			return fn.Name.Name
		}
	}
}

// emptyNames say nothing about what a file holds.
var emptyNames = []string{"util", "utils", "common", "helper", "helpers"}

// checkName enforces that files and folders are named after what they hold.
func checkName(s source) (findings []string) {
	for part := range strings.SplitSeq(s.path, "/") {
		stem, _, _ := strings.Cut(part, ".")
		for word := range strings.SplitSeq(strings.ToLower(stem), "_") {
			if slices.Contains(emptyNames, word) {
				findings = append(findings, fmt.Sprintf("%q says nothing: name it after what it holds", part))
			}
		}
	}
	return findings
}

// The marks of unfinished work, put together so that this file does not contain them.
var (
	fixMark  = regexp.MustCompile(`\bFIX` + `ME\b`)
	todoMark = regexp.MustCompile(`\bTO` + `DO\b(\(#\d+\))?`)
)

// checkMarks enforces that unfinished work is an issue and not a remark.
func checkMarks(s source) (findings []string) {
	if s.generated() {
		return nil
	}
	for i, l := range strings.Split(s.text, "\n") {
		if fixMark.MatchString(l) {
			findings = append(findings, fmt.Sprintf("line %d has a %s: fix it before it is merged", i+1, "FIX"+"ME"))
		}
		for _, m := range todoMark.FindAllStringSubmatch(l, -1) {
			if m[1] == "" {
				findings = append(findings, fmt.Sprintf("line %d has a %s without an issue: write %s(#number) or do it",
					i+1, "TO"+"DO", "TO"+"DO"))
			}
		}
	}
	return findings
}

// checkHeadings enforces one title per document.
func checkHeadings(s source) []string {
	if path.Ext(s.path) != ".md" {
		return nil
	}
	titles, fenced := 0, false
	for l := range strings.SplitSeq(s.text, "\n") {
		if strings.HasPrefix(l, "```") || strings.HasPrefix(l, "~~~") {
			fenced = !fenced
		}
		if !fenced && strings.HasPrefix(l, "# ") {
			titles++
		}
	}
	if titles != 1 {
		return []string{fmt.Sprintf("has %d first-level headings: keep one title and make the others second-level", titles)}
	}
	return nil
}

// TestLayering_FindsEveryBreach proves that each rule can fail, and that it lets through what is allowed.
func TestLayering_FindsEveryBreach(t *testing.T) {
	imports := func(paths ...string) string {
		text := "package x\n"
		for _, p := range paths {
			text += fmt.Sprintf("import _ %q\n", p)
		}
		return text
	}
	long := "package x\nfunc (r *R[K, V]) f() {" + strings.Repeat("\n", functionLinesMax) + "}\n"
	fence := "```"
	for _, c := range []struct {
		rule, path, text, want string // want: a part of the finding; empty: none
	}{
		{"imports", "raftactor/a.go", imports("troupe/actors", "troupe/proto", "troupe/raftactor/disktest", "os"), ""},
		{"imports", "raftactor/a.go", imports("troupe/storeactor"), "declare the small interface"},
		{"imports", "watchactor/a_test.go", imports("troupe/gateway"), "declare the small interface"},
		{"imports", "leaseactor/a.go", imports("google.golang.org/grpc/codes"), "let gateway map it"},
		{"imports", "storeactor/sub/a.go", imports("troupe/raftactor"), "declare the small interface"},
		{"imports", "raftactor/a.go", imports(protoactor + "/actor"), "only package actors may"},
		{"imports", "actors/actorstest/a.go", imports(protoactor + "/actor"), "only package actors may"},
		{"imports", "actors/a.go", imports(protoactor + "/actor"), ""},
		{"imports", "actors/a.go", imports(protoactor + "/remote"), "only the library's actor package"},
		{"imports", "actors/a.go", imports("troupe/proto"), "the runtime knows no room"},
		{"imports", "proto/a.go", imports("troupe/actors"), "proto imports nothing of ours"},
		{"imports", "gateway/a.go", imports("troupe/storeactor", "google.golang.org/grpc"), ""},
		{"imports", "gateway/a.go", imports("troupe/cmd/node"), "cmd assembles the others"},
		{"imports", "integration/a_test.go", imports("troupe/cmd/node"), ""},
		{"imports", "cmd/node/a.go", imports("troupe/integration"), "integration holds tests only"},
		{"imports", "gateway/a.go", "package", "does not parse"},
		{
			"protoactor", "actors/a.go", imports(protoactor+"/actor") + "var _ = actor.NewFuture\n",
			"put an actors.Reply into the message",
		},
		{
			"protoactor", "actors/a.go", imports(protoactor+"/actor") + "func f() { s.EventStream.Subscribe(nil) }\n",
			"subscribes",
		},
		{"protoactor", "actors/a.go", imports(protoactor+"/actor") + "var _ = actor.PropsFromProducer\n", ""},
		{"size", "a.go", strings.Repeat("\n", fileLinesMax+1), "split it by concept"},
		{"size", "a.go", strings.Repeat("\n", fileLinesMax), ""},
		{"size", "a.go", "//" + strings.Repeat("x", lineColumnsMax-1), "wrap it"},
		{"size", "a.go", "//" + strings.Repeat("ä", lineColumnsMax-2), ""},
		{"size", "a.pb.go", strings.Repeat("\n", fileLinesMax+1), ""},
		{"functions", "a.go", long, "R.f has 71 lines"},
		{"functions", "a.go", strings.Replace(long, "\n}", "}", 1), ""},
		{"name", "raftactor/disk_helpers_test.go", "", "name it after what it holds"},
		{"name", "util/a.go", "", "name it after what it holds"},
		{"name", "raftactor/commonplace.go", "", ""},
		{"marks", "a.go", "// FIX" + "ME: later", "fix it before"},
		{"marks", "a.go", "// TO" + "DO: later", "without an issue"},
		{"marks", "a.go", "// TO" + "DO(#12): later", ""},
		{"headings", "a.md", "# One\n\n# Two\n", "has 2 first-level"},
		{"headings", "a.md", "text\n", "has 0 first-level"},
		{"headings", "a.md", "# One\n" + fence + "\n# not one\n" + fence + "\n## Two\n", ""},
	} {
		got := rules[c.rule](source{c.path, c.text})
		switch {
		case c.want == "" && len(got) > 0:
			t.Errorf("%s on %s: unexpected %q", c.rule, c.path, got)
		case c.want != "" && !slices.ContainsFunc(got, func(f string) bool { return strings.Contains(f, c.want) }):
			t.Errorf("%s on %s: found %q, want one with %q", c.rule, c.path, got, c.want)
		}
	}
}
